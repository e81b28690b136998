/* internal.h: what the library's files share. Nothing here leaves the .so. */
#ifndef LAGGARD_INTERNAL_H
#define LAGGARD_INTERNAL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define LAGGARD_BUILD 1
#include "laggard.h"

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the ring format is little-endian"
#endif

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define HIDDEN __attribute__((visibility("hidden")))
#define COLD __attribute__((noinline, cold))
/* What takes the words of a slot: called, it would have them laid into memory. */
#define ALWAYS inline __attribute__((always_inline))

/* Layout, schemas/FORMAT.md section 2. */
enum {
	PROCESS_HEADER = 4096, STRINGS_SIZE = 262144, PROCESS_SIZE = PROCESS_HEADER + STRINGS_SIZE,
	P_VERSION = 8, P_STRINGS_OFF = 12, P_STRINGS_CAP = 16, P_PID = 20, P_TICKS = 24, P_STARTED = 32,
	P_INCARNATION = 40, P_NAMESPACE = 48, P_BOOT_ID = 56, BOOT_ID_SIZE = 36, P_CHECKSUM = 92, P_STATE = 96,
	P_IDENTITY = 100, P_WANTED = 128, P_FOLLOWED = 132, P_FOLLOWED_AT = 136, P_STRINGS_USED = 192,
	P_RINGS = 196, P_LOST = 256, P_LOST_STRINGS = 384,

	RING_HEADER = 8192, SLOT_SIZE = 64, LIGHT_SLOTS = 1024, BULK_SLOTS = 32768, MIN_SLOTS = 64,
	R_VERSION = 8, R_HEADER_SIZE = 12, R_CHECKSUM = 16, R_NUMBER = 20, R_LIGHT_SLOTS = 24, R_BULK_SLOTS = 28,
	R_THREAD = 32, R_STATE = 40, R_LIGHT_HEAD = 64, R_LIGHT_TAIL = 128, R_BULK_HEAD = 192, R_BULK_TAIL = 256,
	R_DROPPED = 320, R_DROP_FIRST = 384, R_DROP_LAST = 392, R_EMITTED = 448, R_OPEN = 1024,

	OPEN_LEVELS = 64, FULL_RINGS = 4, BUDGET = 16 << 20,
	USER_BYTES = 256 << 20, USER_FOLDERS = 1024, /* of one user's processes in a run directory */
	LIVE = 1, CLOSED = 2, CRC32C_KIND = 1,
	FREE = 0, OPEN = 1, CLOSING = 2,
	FLAG_DEVICE = 2, FLAG_HOST = 4, FLAG_EXPOSED = 8,
	LIGHT_ON = 1, COMMUNICATION_ON = 2, ALL_ON = 3,
	KINDS = 6
};
#define NO_STEP 0xFFFFFFFFu

/* A word that no agent writes: "look the switch up". */
#define UNKNOWN_WORD 4u
/* Nothing is recorded because something failed: what begins is counted as lost. */
#define FAILED_WORD 8u

enum { MAX_RINGS = 128, STASH = 8 }; /* rings: more than the budget holds */

/* The words of a slot, in order, named by what is in them or by the first of it. They
 * go by value, so that they stay in registers. */
typedef struct words {
	uint64_t kind, seq, start, dur, host, text, step, value;
} words;

typedef struct lane {
	uint64_t head, tail, mask; /* head: ours; tail: the largest seen */
	uint64_t *slots;
	_Atomic uint64_t *headp, *tailp;
} lane;

/* What a range touches in private memory is as few lines as it can be: a trainer's own
 * work has taken the nearer caches between two of them. */
enum { LINE = 64 };
#define ALIGNED __attribute__((aligned(LINE)))

/* The writing end of one ring file, in private memory. The bulk lane and what is beside
 * it, where most ranges go, is one line. */
typedef struct ring {
	size_t size;
	atomic_int live;
	lane lanes[2];
	unsigned char *mem;
	uint32_t depth; /* level that begin tries first */
	/* What signal handlers emitted while their thread was busy in here. */
	atomic_uint stashed;
	words stash[STASH];
} ring;

/* Not aligned to a line: the room that a C library keeps for what is loaded late may be
 * aligned to less, on arm64 it is, and then the library can't be loaded. */
typedef struct thread {
	ring *ring;
	uint32_t followed; /* switch word, as we looked last */
	volatile uint32_t busy;
	/* clock */
	uint64_t tsc0, span;
	int64_t ns0;
	uint64_t mult; /* ns a tick, 32.32 */
	/* what is rarely needed */
	uint64_t first_tsc;
	int64_t first_ns, retry_at;
	volatile uint32_t forking; /* it holds the lock until the fork is done */
} thread;

_Static_assert(offsetof(ring, lanes) + sizeof(lane) == LINE && offsetof(ring, stash) == 2 * LINE, "a lane across lines");

extern HIDDEN __thread thread laggard_self __attribute__((tls_model("initial-exec")));
extern LAGGARD_API _Atomic(_Atomic uint32_t *) laggard_poll; /* the switch */
extern LAGGARD_API _Atomic uint32_t laggard_quiet;

/* What every range looks at, in one line: a page that was not looked at for some
 * microseconds costs as much as a look at the clock. So what the linker would keep in
 * a table of its own, in a page of its own, is here, too. */
extern HIDDEN struct hot {
	_Atomic uint32_t step;
	uint32_t epoch; /* one more after each fork */
	int hardware_crc;
	_Atomic(_Atomic uint32_t *) *poll; /* &laggard_poll, which the program may hold */
	_Atomic intptr_t self; /* laggard_self, from the thread's own address; 0 not known yet */
} laggard_hot ALIGNED;
#define laggard_step laggard_hot.step
#define laggard_epoch laggard_hot.epoch
#define laggard_hardware_crc laggard_hot.hardware_crc

HIDDEN thread *laggard_find_self(void);
static ALWAYS thread *self(void) {
#if defined(__x86_64__) && !defined(__ILP32__)
	intptr_t at = atomic_load_explicit(&laggard_hot.self, memory_order_relaxed);
	char *own;
	if (UNLIKELY(at == 0))
		return laggard_find_self();
	__asm__("mov %%fs:0, %0" : "=r"(own));
	return (thread *)(void *)(own + at);
#else
	return &laggard_self;
#endif
}

/* The first range of a process, and each after the switch moved. Like rings.h and failure.h it is
 * the Python extension's, where that stands around laggard.c. */
HIDDEN uint32_t laggard_follow(thread *t);

#endif
