/* lane.h: the way of a finished slot into its ring, or into what is counted as dropped.
 * It belongs to laggard.c, which says what holds in here. */
#ifndef LAGGARD_LANE_H
#define LAGGARD_LANE_H

#include "internal.h"

#include "crc.h"
#include "failure.h"

enum {
	/* Slots between the one that is written and the one that is asked for. A ring is larger
	 * than the nearer caches: in a burst the wait for its lines was half of the cost. The
	 * next slot is asked for as well: at a slow pace the far one is gone when its turn comes. */
	AHEAD = 32
};

static inline int kind_of(words w) { return (int)(w.kind >> 32 & 0xFF); }
static inline void barrier(void) { atomic_signal_fence(memory_order_seq_cst); }

static inline void put64(unsigned char *p, uint64_t v) {
	atomic_store_explicit((_Atomic uint64_t *)(void *)p, v, memory_order_relaxed);
}
static inline void add64(unsigned char *p) {
	_Atomic uint64_t *a = (_Atomic uint64_t *)(void *)p;
	atomic_store_explicit(a, atomic_load_explicit(a, memory_order_relaxed) + 1, memory_order_relaxed);
}

/* store_rest stores the slot but for its first word, which it returns: that comes last
 * and has the checksum. */
static ALWAYS uint64_t store_rest(unsigned char *dst, words w) {
	uint32_t crc = slot_crc(w);
	put64(dst + 8, w.seq);
	put64(dst + 16, w.start);
	put64(dst + 24, w.dur);
	put64(dst + 32, w.host);
	put64(dst + 40, w.text);
	put64(dst + 48, w.step);
	put64(dst + 56, w.value);
	barrier();
	return (w.kind & 0xFFFFFFFF00000000u) | crc;
}

static inline int has_room(lane *l) {
	if (LIKELY(l->head - l->tail <= l->mask))
		return 1;
	/* A tail never goes back: the largest counts. */
	uint64_t tail = atomic_load_explicit(l->tailp, memory_order_acquire);
	if (tail > l->tail)
		l->tail = tail;
	return l->head - l->tail <= l->mask;
}

static COLD void drop(ring *g, words w) {
	_Atomic uint64_t *first = (_Atomic uint64_t *)(void *)(g->mem + R_DROP_FIRST);
	if (atomic_load_explicit(first, memory_order_relaxed) == 0)
		atomic_store_explicit(first, w.start, memory_order_relaxed);
	put64(g->mem + R_DROP_LAST, w.start);
	add64(g->mem + R_DROPPED + 8 * kind_of(w));
	add64(g->mem + R_EMITTED + 8 * kind_of(w));
}

static inline lane *lane_of(ring *g, int kind) { return kind == LAGGARD_COMMUNICATION ? &g->lanes[1] : &g->lanes[0]; }

/* prefetch asks for a line that will be written. */
static inline void prefetch(void *p) {
#if defined(__x86_64__)
	__asm__ volatile("prefetchw (%0)" : : "r"(p));
#else
	__builtin_prefetch(p, 1);
#endif
}

/* publish writes the slot; there is room. */
static ALWAYS void publish(ring *g, lane *l, words w) {
	uint64_t head = l->head;
	w.seq |= (uint32_t)head;
	unsigned char *slot = (unsigned char *)(l->slots + (head & l->mask) * 8);
	put64(slot, store_rest(slot, w));
	prefetch(l->slots + ((head + AHEAD) & l->mask) * 8);
	prefetch(l->slots + ((head + 1) & l->mask) * 8);
	l->head = head + 1;
	atomic_store_explicit(l->headp, head + 1, memory_order_release);
	barrier();
	add64(g->mem + R_EMITTED + 8 * kind_of(w));
}

static ALWAYS void publish_or_drop(ring *g, words w) {
	lane *l = lane_of(g, kind_of(w));
	if (LIKELY(has_room(l)))
		publish(g, l, w);
	else
		drop(g, w);
}

/* enter and leave bracket what a signal handler must not do at the same time. */
static inline int enter(thread *t) {
	if (UNLIKELY(t->busy))
		return 0;
	t->busy = 1;
	barrier();
	return 1;
}

static COLD void unstash(thread *t) {
	ring *g = t->ring;
	do {
		unsigned n = 0, i = 0;
		t->busy = 1;
		barrier();
		/* More may come while we are at it; they go behind the ones we know. */
		while (!atomic_compare_exchange_strong_explicit(&g->stashed, &n, 0, memory_order_acquire, memory_order_acquire))
			for (; i < n; i++)
				publish_or_drop(g, g->stash[i]);
		barrier();
		t->busy = 0;
		barrier();
	} while (UNLIKELY(atomic_load_explicit(&g->stashed, memory_order_relaxed)));
}

/* leave ends the work on g, the thread's ring or NULL. */
static inline void leave(thread *t, ring *g) {
	barrier();
	t->busy = 0;
	barrier();
	if (UNLIKELY(g && atomic_load_explicit(&g->stashed, memory_order_relaxed)))
		unstash(t);
}

/* nested keeps a record of a signal handler that came while its thread was busy;
 * leave publishes it. More than STASH at once are counted as lost. */
static COLD void nested(thread *t, words w) {
	ring *g = t->ring;
	if (g) {
		unsigned i = atomic_load_explicit(&g->stashed, memory_order_relaxed);
		while (i < STASH && !atomic_compare_exchange_weak_explicit(&g->stashed, &i, i + 1, memory_order_relaxed, memory_order_relaxed))
			;
		if (i < STASH) {
			g->stash[i] = w;
			return;
		}
	}
	laggard_lose(kind_of(w));
}

#endif
