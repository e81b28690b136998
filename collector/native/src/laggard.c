/* laggard.c: the way of a range from begin to its slot. Everything here runs in
 * the trainer's hot path: no lock, no allocation, no system call.
 *
 * One thread writes a ring. A slot is complete before the head that publishes it
 * is stored, in program order, so a SIGKILL at any instruction leaves either the
 * whole record or none. busy guards a thread against its own signal handlers. */
#include "internal.h"

#include "clock.h"
#include "failure.h"
#include "lane.h"
#include "rings.h"

enum {
	RECORDED = 1,  /* laggard_range.state */
	STEP_ONLY = 2, /* a step that is not recorded: it names the current step all the same */
	UNTRACKED = OPEN_LEVELS
};

__thread thread laggard_self __attribute__((tls_model("initial-exec"))) = {.followed = UNKNOWN_WORD};
struct hot laggard_hot ALIGNED = {.step = NO_STEP, .poll = &laggard_poll};

COLD thread *laggard_find_self(void) {
#if defined(__x86_64__) && !defined(__ILP32__)
	char *own;
	__asm__("mov %%fs:0, %0" : "=r"(own));
	atomic_store_explicit(&laggard_hot.self, (char *)&laggard_self - own, memory_order_relaxed);
#endif
	return &laggard_self;
}

static inline unsigned char *open_slot(ring *g, unsigned level) { return g->mem + R_OPEN + level * SLOT_SIZE; }
/* on reports whether ranges of the kind are recorded now. */
static inline int on(thread *t, int kind) {
	_Atomic uint32_t *p = atomic_load_explicit(laggard_hot.poll, memory_order_acquire);
	uint32_t w = atomic_load_explicit(p, memory_order_relaxed);
	if (UNLIKELY(w != t->followed))
		w = laggard_follow(t);
	if (LIKELY(w & (kind == LAGGARD_COMMUNICATION ? COMMUNICATION_ON : LIGHT_ON)))
		return 1;
	if (UNLIKELY(w & FAILED_WORD))
		laggard_lose(kind);
	return 0;
}

static const laggard_attr no_attr = LAGGARD_ATTR_INIT;

/* words_of returns a slot but for dur and the host's times. */
static ALWAYS words words_of(int kind, const laggard_attr *a, int64_t start, uint32_t step) {
	words w = {.start = (uint64_t)start};
	if (UNLIKELY(kind < 0 || kind >= KINDS))
		kind = LAGGARD_OTHER;
	if (!a)
		a = &no_attr;
	w.kind = (uint64_t)(unsigned)kind << 32 | (uint64_t)a->dtype << 48;
	w.seq = (uint64_t)(uint32_t)a->peer << 32;
	w.text = (uint64_t)a->text << 48;
	w.step = step | (uint64_t)a->group << 32 | (uint64_t)a->stream << 48;
	w.value = (uint64_t)a->value;
	return w;
}

/* keep and kept move the words of an open range into its owner's memory and back. */
static ALWAYS void keep(laggard_range *r, words w) {
	uint64_t *s = r->slot;
	s[0] = w.kind, s[1] = w.seq, s[2] = w.start, s[3] = w.dur, s[4] = w.host, s[5] = w.text, s[6] = w.step, s[7] = w.value;
}
static ALWAYS words kept(const laggard_range *r) {
	const uint64_t *s = r->slot;
	return (words){s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]};
}

/* state stores the byte that says what an open-range slot is. */
static inline void state(unsigned char *slot, unsigned char s) {
	atomic_store_explicit((_Atomic unsigned char *)(slot + 7), s, memory_order_release);
}

static inline int is_free(ring *g, unsigned level) {
	return atomic_load_explicit((_Atomic unsigned char *)(open_slot(g, level) + 7), memory_order_acquire) == FREE;
}

static inline unsigned free_level(ring *g) {
	unsigned level = g->depth;
	if (LIKELY(level < OPEN_LEVELS && is_free(g, level)))
		return level;
	for (level = 0; level < OPEN_LEVELS && !is_free(g, level); level++)
		;
	return level;
}

static ALWAYS void begin(thread *t, laggard_range *r, int kind, const laggard_attr *a, uint32_t step) {
	int64_t start = now(t);
	words w = words_of(kind, a, start, step);
	keep(r, w);
	r->epoch = laggard_epoch;
	r->state = RECORDED;
	if (UNLIKELY(!enter(t))) { /* a signal handler: its range is not in the table */
		r->ring = NULL;
		r->level = UNTRACKED;
		return;
	}
	ring *g = t->ring;
	if (UNLIKELY(!g))
		g = laggard_get_ring(t, start);
	unsigned level = UNTRACKED;
	if (LIKELY(g != NULL)) {
		level = free_level(g);
		if (LIKELY(level < OPEN_LEVELS)) {
			unsigned char *slot = open_slot(g, level);
			uint64_t first = store_rest(slot, w) | (uint64_t)OPEN << 56;
			atomic_store_explicit((_Atomic uint64_t *)(void *)slot, first, memory_order_release);
			g->depth = level + 1;
		}
	}
	r->ring = g;
	r->level = (uint8_t)level;
	leave(t, g);
}

void laggard_begin(laggard_range *r, int kind, const laggard_attr *attr) {
	thread *t = self();
	if (LIKELY(on(t, kind)))
		begin(t, r, kind, attr, atomic_load_explicit(&laggard_step, memory_order_relaxed));
	else
		r->state = 0;
}

static inline uint32_t step_number(int64_t n) { return n >= 0 && n < (int64_t)NO_STEP ? (uint32_t)n : NO_STEP; }

void laggard_step_begin(laggard_range *r, int64_t n, int64_t tokens) {
	thread *t = self();
	uint32_t step = step_number(n);
	laggard_attr a = LAGGARD_ATTR_INIT;
	a.value = tokens;
	atomic_store_explicit(&laggard_step, step, memory_order_relaxed);
	if (LIKELY(on(t, LAGGARD_STEP))) {
		begin(t, r, LAGGARD_STEP, &a, step);
	} else {
		r->state = STEP_ONLY;
		r->slot[6] = step;
	}
}

/* release takes a range out of the table of the thread that began it. From another
 * thread it may come late, when the level belongs to a later range: the start tells. */
static inline void release(thread *t, laggard_range *r) {
	ring *g = r->ring;
	if (r->level >= OPEN_LEVELS || !g)
		return;
	unsigned char *slot = open_slot(g, r->level);
	if (LIKELY(g == t->ring)) {
		state(slot, FREE);
		g->depth = r->level;
	} else if (atomic_load_explicit((_Atomic uint64_t *)(void *)(slot + 16), memory_order_relaxed) == r->slot[2]) {
		state(slot, FREE);
	}
}

/* end_own ends a range in the ring that it began in. The table names the seq that
 * the record gets before it is published: a kill in between leaves the range open
 * or recorded, never both. */
static ALWAYS void end_own(thread *t, ring *g, laggard_range *r, words w) {
	lane *l = lane_of(g, kind_of(w));
	if (UNLIKELY(!has_room(l))) {
		drop(g, w);
		release(t, r);
		return;
	}
	unsigned char *slot = open_slot(g, r->level);
	uint32_t seq = ((uint32_t)l->head & 0x7FFFFFFFu) | (l == &g->lanes[1] ? 0x80000000u : 0);
	atomic_store_explicit((_Atomic uint32_t *)(void *)(slot + 8), seq, memory_order_relaxed);
	state(slot, CLOSING);
	publish(g, l, w);
	state(slot, FREE);
	g->depth = r->level;
}

static ALWAYS void end(thread *t, laggard_range *r, words w) {
	if (UNLIKELY(r->epoch != laggard_epoch))
		return; /* begun before a fork: the parent ends it */
	if (UNLIKELY(!enter(t))) {
		nested(t, w);
		return;
	}
	ring *g = t->ring;
	if (LIKELY(g && g == r->ring && r->level < OPEN_LEVELS)) {
		end_own(t, g, r, w);
	} else {
		release(t, r);
		if (!g)
			g = laggard_get_ring(t, (int64_t)(w.start + w.dur));
		if (g)
			publish_or_drop(g, w);
		else
			laggard_lose(kind_of(w));
	}
	leave(t, g);
}

/* leave_step ends the current step when it is still that of the range. */
static void leave_step(const laggard_range *r) {
	uint32_t step = (uint32_t)r->slot[6];
	atomic_compare_exchange_strong_explicit(&laggard_step, &step, NO_STEP, memory_order_relaxed, memory_order_relaxed);
}

/* finish is what every way to end begins with; false when there is nothing to end. */
static ALWAYS int finish(thread *t, laggard_range *r, int64_t *dur) {
	unsigned was = r->state;
	r->state = 0;
	if (UNLIKELY(was != RECORDED)) {
		if (was == STEP_ONLY)
			leave_step(r);
		return 0;
	}
	int64_t d = now(t) - (int64_t)r->slot[2];
	*dur = d > 0 ? d : 0;
	if ((r->slot[0] >> 32 & 0xFF) == LAGGARD_STEP)
		leave_step(r);
	return 1;
}

void laggard_end(laggard_range *r) {
	thread *t = self();
	int64_t dur;
	if (!finish(t, r, &dur))
		return;
	words w = kept(r);
	w.dur = (uint64_t)dur;
	end(t, r, w);
}

static inline uint64_t bits48(int64_t v) { return v < 0 ? 0 : v >= (int64_t)1 << 48 ? ((uint64_t)1 << 48) - 1 : (uint64_t)v; }

void laggard_end_device(laggard_range *r, int64_t start, int64_t dur) {
	thread *t = self();
	int64_t host;
	if (!finish(t, r, &host))
		return;
	if (r->ring != t->ring && r->epoch == laggard_epoch) {
		release(t, r); /* from afar it knows the range by its host start */
		r->level = UNTRACKED;
	}
	words w = kept(r);
	w.kind |= (uint64_t)(FLAG_DEVICE | FLAG_HOST) << 40;
	w.host = w.start;
	w.text |= bits48(host);
	w.start = (uint64_t)start;
	w.dur = (uint64_t)(dur > 0 ? dur : 0);
	end(t, r, w);
}

void laggard_end_exposed(laggard_range *r, int64_t exposed) {
	if (r->state == RECORDED) {
		r->slot[0] |= (uint64_t)FLAG_EXPOSED << 40;
		r->slot[4] = (uint64_t)(exposed > 0 ? exposed : 0);
	}
	laggard_end(r);
}

void laggard_set_value(laggard_range *r, int64_t value) { r->slot[7] = (uint64_t)value; }

void laggard_cancel(laggard_range *r) {
	thread *t = self();
	int64_t dur;
	if (!finish(t, r, &dur))
		return;
	if (r->epoch == laggard_epoch && enter(t)) {
		release(t, r);
		leave(t, t->ring);
	}
}

static ALWAYS void emit(thread *t, words w) {
	if (UNLIKELY(!enter(t))) {
		nested(t, w);
		return;
	}
	ring *g = t->ring;
	if (UNLIKELY(!g))
		g = laggard_get_ring(t, (int64_t)w.start);
	if (LIKELY(g != NULL))
		publish_or_drop(g, w);
	else
		laggard_lose(kind_of(w));
	leave(t, g);
}

void laggard_mark(int kind, const laggard_attr *attr, int64_t start, int64_t dur) {
	thread *t = self();
	if (UNLIKELY(!on(t, kind)))
		return;
	words w = words_of(kind, attr, start, atomic_load_explicit(&laggard_step, memory_order_relaxed));
	w.dur = (uint64_t)(dur > 0 ? dur : 0);
	emit(t, w);
}

void laggard_emit(const laggard_span *s) {
	thread *t = self();
	uint64_t flags = 0;
	if (!on(t, s->kind))
		return;
	words w = words_of(s->kind, &s->attr, s->start, step_number(s->step));
	w.dur = (uint64_t)(s->dur > 0 ? s->dur : 0);
	if (s->device)
		flags |= FLAG_DEVICE;
	if (s->exposed >= 0) {
		flags |= FLAG_EXPOSED;
		w.host = (uint64_t)s->exposed;
	} else if (s->device && s->host_start) {
		flags |= FLAG_HOST;
		w.host = (uint64_t)s->host_start;
		w.text |= bits48(s->host_dur);
	}
	w.kind |= flags << 40;
	emit(t, w);
}

int laggard_is_on(int kind) {
	thread *t = self();
	_Atomic uint32_t *p = atomic_load_explicit(laggard_hot.poll, memory_order_acquire);
	uint32_t w = atomic_load_explicit(p, memory_order_relaxed);
	if (w != t->followed)
		w = laggard_follow(t);
	return (w & (kind == LAGGARD_COMMUNICATION ? COMMUNICATION_ON : LIGHT_ON)) != 0;
}

int64_t laggard_now(void) { return now(self()); }
