/* mspti_internal.h: what the files of this library share. */
#ifndef LAGGARD_MSPTI_INTERNAL_H
#define LAGGARD_MSPTI_INTERNAL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <stdatomic.h>

#include "internal.h"
#include "laggard_mspti.h"
#include "mspti_abi.h"

enum { NAME_LIMIT = 1024 }; /* libmspti refuses names of 255 bytes and more */

/* What a name in a domain says of its range. op and group are of the caller's. */
typedef struct mspti_what {
	int kind;
	uint8_t dtype;
	int32_t peer;
	uint16_t stream; /* that the producer names, 0 none */
	int64_t count, step;
	char text[NAME_LIMIT];  /* op, or the word of an own kind */
	char group[NAME_LIMIT];
} mspti_what;

/* mspti_name.c: pure. */
HIDDEN void mspti_classify(const char *name, const char *domain, int instant, mspti_what *out);

/* mspti_buffers.c: the way of a buffer. request and complete run in the trainer. */
HIDDEN int mspti_buffers_make(unsigned n);
HIDDEN void mspti_on_request(uint8_t **buffer, size_t *size, size_t *records);
HIDDEN void mspti_on_complete(uint8_t *buffer, size_t size, size_t valid);
HIDDEN int mspti_buffers_take(uint8_t **buffer, size_t *valid); /* the number of one that is full, or -1 */
HIDDEN void mspti_buffers_return(int number);
HIDDEN int mspti_buffers_plenty(void); /* libmspti has many to fill */
HIDDEN void mspti_buffers_open(int open);
HIDDEN void mspti_buffers_forget(void);
HIDDEN void mspti_bell_wait(int64_t ns);
HIDDEN void mspti_bell_ring(void);

/* mspti_pairs.c: of our thread alone. */
HIDDEN int mspti_pairs_make(void);
HIDDEN void mspti_pairs_add(const uint8_t *marker);
HIDDEN void mspti_pairs_expire(int64_t now, int on);
HIDDEN void mspti_pairs_finish(void);
HIDDEN void mspti_pairs_forget(void);

HIDDEN void mspti_pairs_switched(void); /* looks whether the switch has moved */

/* mspti_late.c */
HIDDEN void mspti_emit_late(const laggard_span *s);

/* mspti_walk.c: the records of a buffer. */
HIDDEN void mspti_walk(uint8_t *buffer, size_t valid, int (*next_record)(uint8_t *, size_t, void **));

/* mspti_load.c */
HIDDEN void mspti_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
HIDDEN long mspti_env(const char *name, long least, long most, long absent);
HIDDEN void *mspti_open_library(void);
HIDDEN void mspti_resolve(void *library, mspti_api *api); /* says what is missing */

/* mspti_open.c: ranges that stay open are named in the ring's table. */
HIDDEN void mspti_open_list(laggard_range *r, const laggard_span *s);

typedef struct mspti_counters {
	_Atomic uint64_t markers, activities, records, unmatched, unknown, dropped_markers, dropped_buffers, buffers, refused;
	_Atomic uint32_t on, waiting;
} mspti_counters;
extern HIDDEN mspti_counters mspti_counted;

static inline void count(_Atomic uint64_t *c, uint64_t n) { atomic_fetch_add_explicit(c, n, memory_order_relaxed); }

#endif
