/* rings.c: which thread writes into which ring: made, handed on, given back. */
#include "rings.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "failure.h"
#include "files.h"
#include "process.h"
#include "room.h"

enum { RETRY_NS = 1000000000 };

static size_t file_size(uint32_t light, uint32_t bulk) { return RING_HEADER + (size_t)SLOT_SIZE * (light + (size_t)bulk); }

/* fit gives the n-th ring (from 1) its slots: fewer the later it comes, so that 64
 * threads find room in the budget. It returns 0 when what is left is too little. */
static int fit(unsigned n, int64_t left, uint32_t *light, uint32_t *bulk) {
	*bulk = n <= FULL_RINGS ? BULK_SLOTS : n <= 8 ? BULK_SLOTS / 4 : n <= 16 ? BULK_SLOTS / 8 :
		n <= 32 ? BULK_SLOTS / 32 : n <= 64 ? BULK_SLOTS / 64 : MIN_SLOTS;
	*light = *bulk / (BULK_SLOTS / LIGHT_SLOTS);
	if (*light < MIN_SLOTS)
		*light = MIN_SLOTS;
	return (int64_t)file_size(*light, *bulk) <= left;
}

static lane make_lane(unsigned char *m, size_t slots, uint32_t n, int head, int tail) {
	lane l = {0, 0, n - 1, (uint64_t *)(void *)(m + slots), p64(m, head), p64(m, tail)};
	return l;
}

/* allocate_within allocates a ring's file within the user's share: once it is there the
 * share is looked at again, for others who looked at the same moment. */
static unsigned char *allocate_within(const char *fresh, size_t size) {
	unsigned char *m = NULL;
	int run = laggard_open_at(laggard_folder, "..", O_DIRECTORY | O_RDONLY, 0);
	if (run < 0)
		return NULL;
	if (laggard_room(run, laggard_name, (int64_t)size, 0) && (m = laggard_allocate(laggard_folder, fresh, size)) && !laggard_room(run, laggard_name, 0, 0)) {
		munmap(m, size);
		unlinkat(laggard_folder, fresh, 0);
		m = NULL;
	}
	close(run);
	return m;
}

static ring *make_ring_locked(void) {
	unsigned i = atomic_load(&laggard_ring_count), n = i + 1;
	uint32_t light, bulk;
	char name[32], fresh[40];
	if (i >= MAX_RINGS || !fit(n, BUDGET - laggard_used, &light, &bulk))
		return NULL;
	size_t size = file_size(light, bulk);
	snprintf(name, sizeof name, "ring-%u", n);
	snprintf(fresh, sizeof fresh, ".%s.new", name);
	unsigned char *m = allocate_within(fresh, size);
	if (!m)
		return NULL; /* what finds no ring is counted in the file process */
	memcpy(m, "LAGRING1", 8);
	put32(m, R_VERSION, 1);
	put32(m, R_HEADER_SIZE, RING_HEADER);
	put32(m, R_CHECKSUM, CRC32C_KIND);
	put32(m, R_NUMBER, n);
	put32(m, R_LIGHT_SLOTS, light);
	put32(m, R_BULK_SLOTS, bulk);
	put32(m, R_STATE, LIVE);
	if (laggard_publish_name(laggard_folder, fresh, name) != 0) {
		munmap(m, size);
		unlinkat(laggard_folder, fresh, 0);
		return NULL;
	}
	ring *g = &laggard_rings[i];
	g->size = size;
	g->mem = m;
	g->lanes[0] = make_lane(m, RING_HEADER, light, R_LIGHT_HEAD, R_LIGHT_TAIL);
	g->lanes[1] = make_lane(m, RING_HEADER + (size_t)SLOT_SIZE * light, bulk, R_BULK_HEAD, R_BULK_TAIL);
	laggard_used += (int64_t)size;
	atomic_store(&laggard_ring_count, n);
	atomic_store(p32(atomic_load(&laggard_mapping), P_RINGS), n);
	return g;
}

/* room returns the free slots of the fuller lane, and whether both are drained. */
static uint64_t room(ring *g, int *drained) {
	uint64_t least = UINT64_MAX;
	*drained = 1;
	for (int i = 0; i < 2; i++) {
		lane *l = &g->lanes[i];
		uint64_t tail = atomic_load_explicit(l->tailp, memory_order_acquire);
		if (tail > l->tail)
			l->tail = tail;
		uint64_t full = l->head - l->tail, slots = l->mask + 1;
		uint64_t left = full < slots ? slots - full : 0;
		*drained = *drained && full == 0;
		least = left < least ? left : least;
	}
	return least;
}

/* left_ring finds a ring whose thread has ended and that is drained, else the one
 * with the most room. */
static ring *left_ring(int *drained) {
	ring *best = NULL;
	uint64_t most = 0;
	*drained = 0;
	for (unsigned i = 0, n = atomic_load(&laggard_ring_count); i < n; i++) {
		ring *g = &laggard_rings[i];
		int empty;
		if (atomic_load_explicit(&g->live, memory_order_acquire))
			continue;
		uint64_t r = room(g, &empty);
		if (empty) {
			*drained = 1;
			return g;
		}
		if (r > most) {
			most = r;
			best = g;
		}
	}
	return best;
}

/* get_ring gives the thread one that another left, or a new one. A ring that is
 * handed on before it was drained says thread 0: the agent could not tell whose
 * slots it holds. */
ring *laggard_get_ring(thread *t, int64_t now) {
	uint64_t tid = (uint64_t)syscall(SYS_gettid);
	int drained;
	ring *g = NULL;
	if (now < t->retry_at)
		return NULL;
	pthread_mutex_lock(&laggard_lock);
	if (atomic_load(&laggard_phase) == READY) {
		ring *left = left_ring(&drained);
		if (drained) {
			g = left;
		} else if (!left || atomic_load(&laggard_ring_count) < FULL_RINGS) {
			g = make_ring_locked();
		}
		if (!g && left) {
			g = left;
			tid = 0;
		}
	}
	if (g) {
		g->depth = 0;
		atomic_store(p64(g->mem, R_THREAD), tid);
		atomic_store(p32(g->mem, R_STATE), LIVE);
		atomic_store(&g->live, 1);
		t->ring = g;
		if (laggard_have_exit_key)
			pthread_setspecific(laggard_exit_key, g);
	} else {
		t->retry_at = now + RETRY_NS;
	}
	pthread_mutex_unlock(&laggard_lock);
	return g;
}

/* laggard_leave_ring gives a thread's ring back. */
void laggard_leave_ring(void *p) {
	ring *g = p;
	thread *t = &laggard_self;
	if (t->ring != g)
		return; /* another process's: we were forked meanwhile */
	t->busy = 1;
	t->ring = NULL;
	atomic_store(p32(g->mem, R_STATE), CLOSED);
	atomic_store_explicit(&g->live, 0, memory_order_release);
	t->busy = 0;
}
