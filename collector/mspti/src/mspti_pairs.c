/* mspti_pairs.c: markers joined to ranges by their Id and side, in whatever order
 * they come.
 *
 * Invariant: what waits is bounded (RANGES); the oldest goes when there is no room,
 * and what is given up is counted. A range whose device markers do not come is
 * written with the host's times after DEVICE_WAIT. */
#include "mspti_pairs.h"

#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "mspti_abi.h"
#include "mspti_buffers.h"
#include "mspti_counters.h"
#include "mspti_late.h"
#include "mspti_name.h"
#include "mspti_open.h"

enum { RANGES = 1 << 17, SLOTS = RANGES * 2, NOWHERE = 0, WORDS = 1024, NAMES = 512 };
enum { HOST_START = 1, HOST_END = 2, DEVICE_START = 4, DEVICE_END = 8, NAMED = 16, WITH_DEVICE = 32, LISTED = 64 };

static const int64_t DEVICE_WAIT = 10000000000, ORPHAN_WAIT = 60000000000, LIST_AFTER = 2000000000, SLACK = 50000000;

typedef struct range {
	uint64_t id, hs, he, ds, de;
	int64_t step, value, since;
	uint32_t next, before, slot, stream;
	int32_t peer;
	uint16_t text, group, named; /* the stream that the name says, 0 none */
	uint8_t kind, dtype, have;
} range;

static range *ranges;   /* 1...RANGES; 0 is nowhere */
static uint32_t *slots; /* by hash of the Id, linear probing */
static uint32_t free_first, touched, oldest, newest, waiting; /* from touched + 1 on none was ever used */
static int64_t clock_now;

/* Ranges that are named in the ring's table of open ones. */
enum { LISTINGS = 32 };
static laggard_range listed[LISTINGS];
static uint32_t listed_for[LISTINGS];

int mspti_pairs_make(void) {
	size_t size = (RANGES + 1) * sizeof *ranges + SLOTS * sizeof *slots;
	if (ranges)
		return 0;
	void *m = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (m == MAP_FAILED)
		return -1;
	ranges = m;
	slots = (uint32_t *)(void *)(ranges + RANGES + 1);
	free_first = oldest = newest = NOWHERE;
	touched = waiting = 0;
	return 0;
}

void mspti_pairs_forget(void) {
	ranges = NULL; /* the child's copy is given up with its pages */
	memset(listed_for, 0, sizeof listed_for);
}

static uint32_t home(uint64_t id) { return (uint32_t)(id * 0x9E3779B97F4A7C15u >> 40) & (SLOTS - 1); }

static range *find(uint64_t id) {
	for (uint32_t i = home(id); slots[i]; i = (i + 1) & (SLOTS - 1))
		if (ranges[slots[i]].id == id)
			return &ranges[slots[i]];
	return NULL;
}

static void place_in(range *r) {
	uint32_t i = home(r->id);
	while (slots[i])
		i = (i + 1) & (SLOTS - 1);
	slots[i] = (uint32_t)(r - ranges);
	r->slot = i;
}

/* displace empties a slot and moves back what was probed past it. */
static void displace(uint32_t i) {
	for (uint32_t j = i;;) {
		slots[i] = NOWHERE;
		for (;;) {
			j = (j + 1) & (SLOTS - 1);
			if (!slots[j])
				return;
			uint32_t h = home(ranges[slots[j]].id);
			if (((j - h) & (SLOTS - 1)) >= ((j - i) & (SLOTS - 1)))
				break;
		}
		slots[i] = slots[j];
		ranges[slots[i]].slot = i;
		i = j;
	}
}

static void unlist(range *r) {
	for (int i = 0; r->have & LISTED && i < LISTINGS; i++)
		if (listed_for[i] == (uint32_t)(r - ranges)) {
			laggard_cancel(&listed[i]);
			listed_for[i] = NOWHERE;
		}
}

static void leave_row(range *r) {
	if (r->before)
		ranges[r->before].next = r->next;
	else
		oldest = r->next;
	if (r->next)
		ranges[r->next].before = r->before;
	else
		newest = r->before;
}

static void join_row(range *r) {
	uint32_t n = (uint32_t)(r - ranges);
	r->since = clock_now;
	r->before = newest;
	r->next = NOWHERE;
	if (newest)
		ranges[newest].next = n;
	else
		oldest = n;
	newest = n;
}

static void forget(range *r) {
	uint32_t n = (uint32_t)(r - ranges);
	displace(r->slot);
	leave_row(r);
	r->next = free_first;
	free_first = n;
	waiting--;
}

static int64_t clamp(uint64_t v) { return v > INT64_MAX ? INT64_MAX : (int64_t)v; }
static int64_t between(uint64_t from, uint64_t to) { return to > from ? clamp(to - from) : 0; }

static laggard_span span_of(const range *r) {
	laggard_span s = LAGGARD_SPAN_INIT;
	s.kind = r->kind;
	s.attr.text = r->text;
	s.attr.group = r->group;
	s.attr.dtype = r->dtype;
	s.attr.peer = r->peer;
	s.attr.value = r->value;
	s.step = r->step;
	return s;
}

/* A flush brings a second of ranges at once, more than a ring may hold: our thread can
 * wait for the agent, the trainer's could not. It waits while somebody drains and
 * libmspti has buffers, PATIENCE a second at most. */
static const int64_t NAP = 1000000, PATIENCE = 200000000;
static int64_t patience;

static void make_room(int kind) {
	ring *g = laggard_self.ring;
	if (!g)
		return;
	lane *l = &g->lanes[kind == LAGGARD_COMMUNICATION];
	uint64_t first = l->tail, tail;
	while (l->head - (tail = atomic_load_explicit(l->tailp, memory_order_acquire)) > l->mask && patience > 0 && mspti_buffers_plenty()) {
		struct timespec nap = {0, NAP};
		if (tail == first && patience <= PATIENCE / 2)
			break; /* nobody drains */
		nanosleep(&nap, NULL);
		patience -= NAP;
	}
}

/* Markers come up to a second late: what began before its kind went off counts. */
static int was_on[2];
static int64_t off_at[2];

/* wanted returns 1 when the kind is on, 2 when it was on at the time, else 0. */
static int wanted(int kind, int64_t began) {
	int c = kind == LAGGARD_COMMUNICATION;
	int on = laggard_is_on(kind);
	if (was_on[c] && !on)
		off_at[c] = laggard_now();
	was_on[c] = on;
	return on ? 1 : began && began < off_at[c] ? 2 : 0;
}

void mspti_pairs_switched(void) {
	wanted(LAGGARD_STEP, 0);
	wanted(LAGGARD_COMMUNICATION, 0);
}

/* emit writes the range with the times it has. The ring is our thread's: which
 * thread of the trainer a range was in is not said, rather than said wrongly. */
static int emit(const range *r) {
	laggard_span s = span_of(r);
	int host = (r->have & HOST_END) && r->hs && r->he;
	if ((r->have & DEVICE_START) && (r->have & DEVICE_END) && r->ds && r->de) {
		s.device = 1;
		s.attr.stream = r->named ? r->named : (uint16_t)(r->stream <= 0xFFFF ? r->stream : 0);
		s.start = clamp(r->ds);
		s.dur = between(r->ds, r->de);
		if (host) {
			s.host_start = clamp(r->hs);
			s.host_dur = between(r->hs, r->he);
		}
	} else if (host) {
		s.start = clamp(r->hs);
		s.dur = between(r->hs, r->he);
	} else {
		return 0;
	}
	int want = wanted(s.kind, clamp(r->hs));
	if (!want)
		return -1;
	make_room(s.kind);
	if (want == 1)
		laggard_emit(&s);
	else
		mspti_emit_late(&s);
	if (laggard_self.ring)
		atomic_store((_Atomic uint64_t *)(void *)(laggard_self.ring->mem + R_THREAD), 0);
	return 1;
}

/* finish emits a range, or counts it as given up, and forgets it. */
static void finish(range *r) {
	int named = (r->have & NAMED) && (r->have & HOST_END);
	unlist(r); /* before the record is there: a kill in between must not leave both */
	int done = named ? emit(r) : 0;
	if (done >= 0)
		count(done ? &mspti_counted.records : &mspti_counted.unmatched, 1);
	forget(r);
}

static range *take(uint64_t id) {
	if (!free_first && touched == RANGES)
		finish(&ranges[oldest]);
	range *r = &ranges[free_first ? free_first : touched + 1];
	if (free_first)
		free_first = r->next;
	else
		touched++;
	memset(r, 0, sizeof *r);
	r->id = id;
	join_row(r);
	place_in(r);
	waiting++;
	return r;
}

/* ---- names: what was read once is remembered by its text ---- */

typedef struct known {
	uint64_t hash;
	int64_t value;
	int32_t peer;
	uint16_t text, group, stream, length;
	uint8_t kind, dtype;
	char name[256];
} known;

static known names[NAMES];
static uint64_t kind_hashes[WORDS]; /* hashes of own kinds that have an id */
static unsigned word_count;

static uint64_t hash_of(const char *s, size_t n) {
	uint64_t h = 0xcbf29ce484222325u;
	for (size_t i = 0; i < n; i++)
		h = (h ^ (unsigned char)s[i]) * 0x100000001b3u;
	return h ? h : 1;
}

/* word_id bounds the ids that hostile names can use up. */
static uint16_t word_id(const char *s) {
	uint64_t h = hash_of(s, strlen(s));
	uint32_t i = (uint32_t)h % WORDS;
	for (; kind_hashes[i]; i = (i + 1) % WORDS)
		if (kind_hashes[i] == h)
			return laggard_intern(s);
	if (word_count >= WORDS / 2)
		return laggard_intern("other");
	kind_hashes[i] = h;
	word_count++;
	return laggard_intern(s);
}

static void fill(range *r, const mspti_what *w) {
	r->kind = (uint8_t)w->kind;
	r->dtype = w->dtype;
	r->peer = w->peer;
	r->named = w->stream;
	r->value = w->count;
	r->step = w->step;
	r->text = w->kind == LAGGARD_OTHER ? word_id(w->text) : laggard_intern(w->text);
	r->group = laggard_intern(w->group);
}

static void name_range(range *r, const uint8_t *m, int instant) {
	static mspti_what w;
	const char *name = load_text(m + M_NAME), *domain = load_text(m + M_DOMAIN);
	int comm = name && domain && strcmp(domain, "communication") == 0;
	size_t n = comm ? strnlen(name, sizeof names[0].name) : 0;
	known *k = NULL;
	if (comm && n < sizeof k->name) {
		uint64_t h = hash_of(name, n);
		k = &names[h % NAMES];
		if (k->hash == h && k->length == n && memcmp(k->name, name, n) == 0) {
			r->kind = k->kind;
			r->dtype = k->dtype;
			r->peer = k->peer;
			r->named = k->stream;
			r->value = k->value;
			r->step = -1;
			r->text = k->text;
			r->group = k->group;
			return;
		}
		k->hash = h;
	}
	mspti_classify(name, domain, instant, &w);
	fill(r, &w);
	if (k) {
		memcpy(k->name, name, n);
		k->length = (uint16_t)n;
		k->kind = r->kind;
		k->dtype = r->dtype;
		k->peer = r->peer;
		k->stream = r->named;
		k->value = r->value;
		k->text = r->text;
		k->group = r->group;
	}
}

/* ---- a marker ---- */

static void start(const uint8_t *m, uint32_t flag, uint64_t id, uint64_t at) {
	range *r = find(id);
	int instant = flag == MARK_INSTANT || flag == MARK_INSTANT_DEVICE;
	if (r && r->have & NAMED) { /* its end was lost */
		finish(r);
		r = NULL;
	}
	if (!r)
		r = take(id);
	r->hs = at;
	r->have |= HOST_START | NAMED;
	if (flag == MARK_START_DEVICE || flag == MARK_INSTANT_DEVICE)
		r->have |= WITH_DEVICE;
	if (instant) {
		r->he = at;
		r->have |= HOST_END;
	}
	name_range(r, m, instant);
	/* What came before the start is of this range when its time fits. */
	if (r->have & (DEVICE_START | DEVICE_END) && ((r->ds && r->ds + SLACK < at) || !(r->have & WITH_DEVICE)))
		r->have &= (uint8_t)~(DEVICE_START | DEVICE_END);
}

static int whole(const range *r) {
	uint8_t all = NAMED | HOST_START | HOST_END;
	if (r->have & WITH_DEVICE)
		all |= DEVICE_START | DEVICE_END;
	return (r->have & all) == all;
}

void mspti_pairs_add(const uint8_t *m) {
	uint32_t flag = load32(m + M_FLAG), side = load32(m + M_SIDE);
	uint64_t id = load64(m + M_ID), at = load64(m + M_TIMESTAMP);
	int begins = flag & (MARK_INSTANT | MARK_START | MARK_INSTANT_DEVICE | MARK_START_DEVICE);
	int ends = flag & (MARK_END | MARK_END_DEVICE);
	if (side > SIDE_DEVICE || (flag & (flag - 1)) || !(begins || ends)) {
		count(&mspti_counted.unmatched, 1);
		return;
	}
	if (side == SIDE_HOST && begins) {
		start(m, flag, id, at);
	} else {
		range *r = find(id);
		if (!r)
			r = take(id);
		if (side == SIDE_HOST) {
			r->he = at;
			r->have |= HOST_END;
			if (r->have & NAMED && r->have & WITH_DEVICE) {
				leave_row(r); /* its wait for the device begins */
				join_row(r);
			}
		} else {
			r->stream = load32(m + O_STREAM);
			if (begins) {
				r->ds = at;
				r->have |= DEVICE_START;
			}
			if (ends || flag == MARK_INSTANT_DEVICE) {
				r->de = at;
				r->have |= DEVICE_END;
			}
		}
	}
	range *r = find(id);
	if (r && whole(r))
		finish(r);
}

/* list names a range that has been open for long, so that a hang is seen. */
static void list(range *r) {
	laggard_span s = span_of(r);
	s.start = clamp(r->hs);
	for (int i = 0; i < LISTINGS; i++)
		if (!listed_for[i]) {
			mspti_open_list(&listed[i], &s);
			listed_for[i] = (uint32_t)(r - ranges);
			r->have |= LISTED;
			return;
		}
}

/* expire gives up waiting. While libmspti is off it drops the ends of what is open. */
void mspti_pairs_expire(int64_t now, int on) {
	clock_now = now;
	patience = PATIENCE;
	for (uint32_t n = oldest, next; n; n = next) {
		range *r = &ranges[n];
		int64_t age = now - r->since;
		next = r->next;
		if (age < LIST_AFTER)
			break; /* those that follow came later */
		if (r->have & NAMED && r->have & HOST_END) {
			if (age >= DEVICE_WAIT)
				finish(r);
		} else if (r->have & NAMED) {
			if (!on && age >= DEVICE_WAIT)
				finish(r);
			else if (on && r->hs && !(r->have & LISTED))
				list(r);
		} else if (age >= ORPHAN_WAIT) {
			finish(r);
		}
	}
	atomic_store(&mspti_counted.waiting, waiting);
}

/* finish_all is the end of the process: what the host ended is written with the
 * times it has. What is open stays in the ring's table. */
void mspti_pairs_finish(void) {
	for (uint32_t n = oldest, next; n; n = next) {
		next = ranges[n].next;
		if (ranges[n].have & HOST_END)
			finish(&ranges[n]);
	}
}
