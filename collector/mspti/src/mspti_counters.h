/* mspti_counters.h: what was seen, and what was not. */
#ifndef LAGGARD_MSPTI_COUNTERS_H
#define LAGGARD_MSPTI_COUNTERS_H

#include <stdatomic.h>

#include "internal.h"

typedef struct mspti_counters {
	_Atomic uint64_t markers, activities, records, unmatched, unknown, dropped_markers, dropped_buffers, buffers, refused;
	_Atomic uint32_t on, waiting;
} mspti_counters;
extern HIDDEN mspti_counters mspti_counted;

static inline void count(_Atomic uint64_t *c, uint64_t n) { atomic_fetch_add_explicit(c, n, memory_order_relaxed); }

#endif
