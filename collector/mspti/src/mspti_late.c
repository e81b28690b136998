/* mspti_late.c: a record of a range that began while its kind was on and reaches us
 * when it is off. laggard_emit would leave it out, so it is published here, the way
 * laggard.c does. Our thread is the only writer of its ring, and has no handlers. */
#include "mspti_late.h"

#include <string.h>

#include "crc.h"
#include "failure.h"
#include "rings.h"

static _Atomic uint64_t *at(ring *g, int offset) { return (_Atomic uint64_t *)(void *)(g->mem + offset); }

static void slot_of(uint64_t w[8], const laggard_span *s) {
	uint64_t flags = s->device ? FLAG_DEVICE | (s->host_start ? FLAG_HOST : 0) : 0;
	uint64_t host = s->host_dur < 0 ? 0 : (uint64_t)s->host_dur & (((uint64_t)1 << 48) - 1);
	uint32_t step = s->step >= 0 && s->step < (int64_t)NO_STEP ? (uint32_t)s->step : NO_STEP;
	w[0] = (uint64_t)s->kind << 32 | flags << 40 | (uint64_t)s->attr.dtype << 48;
	w[1] = (uint64_t)(uint32_t)s->attr.peer << 32;
	w[2] = (uint64_t)s->start;
	w[3] = (uint64_t)s->dur;
	w[4] = flags & FLAG_HOST ? (uint64_t)s->host_start : 0;
	w[5] = (flags & FLAG_HOST ? host : 0) | (uint64_t)s->attr.text << 48;
	w[6] = step | (uint64_t)s->attr.group << 32 | (uint64_t)s->attr.stream << 48;
	w[7] = (uint64_t)s->attr.value;
}

void mspti_emit_late(const laggard_span *s) {
	thread *t = &laggard_self;
	ring *g = t->ring ? t->ring : laggard_get_ring(t, s->start);
	uint64_t w[8];
	if (laggard_error())
		return;
	if (!g) {
		laggard_lose(s->kind);
		return;
	}
	lane *l = &g->lanes[s->kind == LAGGARD_COMMUNICATION];
	uint64_t tail = atomic_load_explicit(l->tailp, memory_order_acquire);
	if (tail > l->tail)
		l->tail = tail;
	if (l->head - l->tail > l->mask) {
		uint64_t none = 0;
		atomic_compare_exchange_strong(at(g, R_DROP_FIRST), &none, (uint64_t)s->start);
		atomic_store(at(g, R_DROP_LAST), (uint64_t)s->start);
		atomic_fetch_add(at(g, R_DROPPED + 8 * s->kind), 1);
		atomic_fetch_add(at(g, R_EMITTED + 8 * s->kind), 1);
		return;
	}
	slot_of(w, s);
	w[1] |= (uint32_t)l->head;
	words sum;
	memcpy(&sum, w, sizeof sum);
	_Atomic uint64_t *slot = (_Atomic uint64_t *)(void *)(l->slots + (l->head & l->mask) * 8);
	for (int i = 1; i < 8; i++)
		atomic_store_explicit(&slot[i], w[i], memory_order_relaxed);
	atomic_store_explicit(&slot[0], w[0] | slot_crc(sum), memory_order_release); /* checksum last */
	l->head++;
	atomic_store_explicit(l->headp, l->head, memory_order_release);
	atomic_fetch_add(at(g, R_EMITTED + 8 * s->kind), 1);
}
