/* laggard.h: record what a training process does, from C and C++.
 *
 *   laggard_range step, comm;
 *   laggard_step_begin(&step, n, 0);
 *   laggard_attr a = LAGGARD_ATTR_INIT;
 *   a.text = laggard_intern("HcclAllreduce"); a.group = laggard_intern("dp0");  // once, outside the loop
 *   a.value = count; a.dtype = LAGGARD_BF16;
 *   laggard_begin(&comm, LAGGARD_COMMUNICATION, &a);
 *   ...
 *   laggard_end(&comm);
 *   laggard_end(&step);
 *
 * A range is written into shared memory (schemas/FORMAT.md section 2) that an agent
 * drains. No call blocks, fails, or throws; between begin and end there is no
 * system call but the vDSO clock, no lock and no allocation. What laggard_end has
 * returned from survives a SIGKILL. Where no ring can be had nothing is recorded,
 * one line on stderr says why, and what was lost is counted.
 *
 * Files appear at the first range, never before. A forked child gets its own at its
 * own first range. begin, end and mark may be called from signal handlers; intern,
 * set_meta and set_run_dir may not.
 *
 * Environment: LAGGARD_RUN (run directory, default /dev/shm/laggard), LAGGARD_TRACE
 * (on, off, or the words of what is on), LAGGARD_CLOCK (tsc or monotonic; default:
 * tsc where the kernel itself trusts it), LAGGARD_SIGBUS=0 (do not survive the
 * truncation of a ring by somebody else: our SIGBUS handler, which passes every
 * other SIGBUS on, is then not installed). */
#ifndef LAGGARD_H
#define LAGGARD_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define LAGGARD_API __attribute__((visibility("default")))
#else
#define LAGGARD_API
#endif

#define LAGGARD_VERSION 1

/* Kinds. The numbers are part of the ring format. */
enum {
	LAGGARD_OTHER = 0, /* a kind of your own: its word is laggard_attr.text */
	LAGGARD_STEP = 1,
	LAGGARD_FP = 2,
	LAGGARD_COMMUNICATION = 3,
	LAGGARD_SAVE_CHECKPOINT = 4,
	LAGGARD_DATA_LOADER = 5
};

/* Element types. The numbers are part of the ring format. */
enum {
	LAGGARD_INT8 = 1, LAGGARD_INT16, LAGGARD_INT32, LAGGARD_INT64,
	LAGGARD_UINT8, LAGGARD_UINT16, LAGGARD_UINT32, LAGGARD_UINT64,
	LAGGARD_FP16, LAGGARD_FP32, LAGGARD_FP64, LAGGARD_BF16,
	LAGGARD_BOOL, LAGGARD_FP8, LAGGARD_COMPLEX64, LAGGARD_COMPLEX128
};

/* What is known of a range when it begins. */
typedef struct laggard_attr {
	uint16_t text;   /* id: op, checkpoint path, or word of your own kind */
	uint16_t group;  /* id: communicator */
	uint16_t stream; /* of the device, 0 none */
	uint8_t dtype;
	int32_t peer;    /* rank in the group at the other end, -1 none */
	int64_t value;   /* elements, tokens or bytes */
} laggard_attr;
#define LAGGARD_ATTR_INIT {0, 0, 0, 0, -1, 0}

/* An open range. Its fields are the library's; all zero is one that is not recorded. */
typedef struct laggard_range {
	uint64_t slot[8];
	void *ring;
	uint32_t epoch;
	uint8_t level;
	uint8_t state;
} laggard_range;

/* begin opens a range of a kind; attr may be NULL. */
LAGGARD_API void laggard_begin(laggard_range *r, int kind, const laggard_attr *attr);
/* step_begin opens the range of training step n, and n is the step of every range
 * that begins in this process until it ends. tokens is its work, 0 unknown. */
LAGGARD_API void laggard_step_begin(laggard_range *r, int64_t n, int64_t tokens);
/* end records the range. The second call does nothing. It may come from another
 * thread than begin. */
LAGGARD_API void laggard_end(laggard_range *r);
/* end_device records it with the device's times, start in ns since the Unix epoch
 * and dur in ns; the host's are kept beside them. */
LAGGARD_API void laggard_end_device(laggard_range *r, int64_t start, int64_t dur);
/* end_exposed records a communication of which the caller waited exposed ns. */
LAGGARD_API void laggard_end_exposed(laggard_range *r, int64_t exposed);
/* set_value sets laggard_attr.value when it is known only now. */
LAGGARD_API void laggard_set_value(laggard_range *r, int64_t value);
/* cancel forgets the range. */
LAGGARD_API void laggard_cancel(laggard_range *r);

/* mark records a range that is over: start in ns since the Unix epoch. */
LAGGARD_API void laggard_mark(int kind, const laggard_attr *attr, int64_t start, int64_t dur);

/* A finished range with everything a record can say. */
typedef struct laggard_span {
	int kind;
	laggard_attr attr;
	int64_t step;                 /* -1 none */
	int64_t start, dur;           /* ns since the Unix epoch, ns */
	int device;                   /* start and dur are the device's */
	int64_t host_start, host_dur; /* 0, 0 unknown; only with device */
	int64_t exposed;              /* ns, -1 unknown; takes the place of the host's times */
} laggard_span;
#define LAGGARD_SPAN_INIT {0, LAGGARD_ATTR_INIT, -1, 0, 0, 0, 0, 0, -1}
LAGGARD_API void laggard_emit(const laggard_span *s);

/* intern returns the id of a string, the same each time; 0 when 256 KiB of strings
 * or 65535 ids are out, and for "" and NULL. */
LAGGARD_API uint16_t laggard_intern(const char *s);
/* set_meta publishes the identity: the JSON object "meta" of FORMAT.md section 1. At
 * least job, rank and world_size; what belongs to the process is filled in by the
 * agent. Without it RANK, LOCAL_RANK, WORLD_SIZE, MINDX_TASK_ID or LAGGARD_JOB and
 * NODE_NAME tell. Returns 0, or -1 when there is no room. */
LAGGARD_API int laggard_set_meta(const char *json);
/* set_run_dir takes the place of LAGGARD_RUN. Returns -1 after the first range. */
LAGGARD_API int laggard_set_run_dir(const char *path);

/* is_on reports whether a range of the kind would be recorded now. */
LAGGARD_API int laggard_is_on(int kind);
/* now returns the clock of start: ns since the Unix epoch when the library was
 * loaded, and the monotonic clock from there. */
LAGGARD_API int64_t laggard_now(void);
/* lost returns the ranges of a kind that found no ring. */
LAGGARD_API uint64_t laggard_lost(int kind);
/* error returns why nothing is recorded, NULL while all is well. */
LAGGARD_API const char *laggard_error(void);
/* close says that this process records no more. It is called at exit. */
LAGGARD_API void laggard_close(void);

/* While all is off, begin and end cost a caller that was compiled two loads and a
 * branch: what follows looks before it calls. The functions above stay what a
 * dlsym finds. */
#if defined(__GNUC__) && !defined(LAGGARD_BUILD) && !defined(LAGGARD_NO_INLINE)
LAGGARD_API extern const uint32_t *laggard_poll; /* the switch */
LAGGARD_API extern const uint32_t laggard_quiet; /* what it says while all is off and nobody needs to know */

static inline void laggard_begin_(laggard_range *r, int kind, const laggard_attr *attr) {
	const uint32_t *p = __atomic_load_n(&laggard_poll, __ATOMIC_ACQUIRE);
	if (__atomic_load_n(p, __ATOMIC_RELAXED) == __atomic_load_n(&laggard_quiet, __ATOMIC_RELAXED))
		r->state = 0;
	else
		laggard_begin(r, kind, attr);
}
static inline void laggard_end_(laggard_range *r) {
	if (r->state)
		laggard_end(r);
}
#define laggard_begin laggard_begin_
#define laggard_end laggard_end_
#endif

#ifdef __cplusplus
}
#endif
#endif
