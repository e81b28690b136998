/* clock.h: ns since the Unix epoch at start, and monotonic from there. */
#ifndef LAGGARD_CLOCK_H
#define LAGGARD_CLOCK_H

#include <time.h>

#include "internal.h"

HIDDEN void laggard_clock_init(void);
HIDDEN int64_t laggard_clock_slow(thread *t);
extern HIDDEN int laggard_use_tsc;
extern HIDDEN int64_t laggard_offset;

static inline int64_t monotonic(void) {
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

#if defined(__x86_64__)
static inline uint64_t ticks(void) {
	uint32_t lo, hi;
	__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
	return (uint64_t)hi << 32 | lo;
}

/* now reads the time stamp counter and scales it; every span ticks it looks at
 * the kernel's clock again. A thread has no span where the counter is not used. */
static inline int64_t now(thread *t) {
	if (LIKELY(t->span != 0)) {
		uint64_t d = ticks() - t->tsc0;
		if (LIKELY(d < t->span))
			return t->ns0 + (int64_t)((unsigned __int128)d * t->mult >> 32);
	}
	return laggard_use_tsc ? laggard_clock_slow(t) : monotonic() + laggard_offset;
}
#else
static inline int64_t now(thread *t) {
	(void)t;
	return monotonic() + laggard_offset;
}
#endif

#endif
