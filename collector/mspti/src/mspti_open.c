/* mspti_open.c: a range that libmspti has begun and not ended, named in the ring's
 * table of open ranges with the time it really began. */
#include "mspti_open.h"

#include <string.h>

#include "crc.h"

void mspti_open_list(laggard_range *r, const laggard_span *s) {
	laggard_begin(r, s->kind, &s->attr);
	ring *g = r->ring;
	if (!r->state || !g || r->level >= OPEN_LEVELS)
		return;
	_Atomic uint64_t *slot = (_Atomic uint64_t *)(void *)(g->mem + R_OPEN + r->level * SLOT_SIZE);
	r->slot[2] = (uint64_t)s->start;
	r->slot[6] = (r->slot[6] & 0xFFFFFFFF00000000u) | (s->step >= 0 && s->step < (int64_t)NO_STEP ? (uint32_t)s->step : NO_STEP);
	/* A reader that comes in between finds a checksum that is wrong, and looks again. */
	atomic_store_explicit(&slot[2], r->slot[2], memory_order_relaxed);
	atomic_store_explicit(&slot[6], r->slot[6], memory_order_relaxed);
	words sum;
	memcpy(&sum, r->slot, sizeof sum);
	uint64_t first = (r->slot[0] & 0xFFFFFFFF00000000u) | (uint64_t)OPEN << 56;
	atomic_signal_fence(memory_order_seq_cst);
	atomic_store_explicit(&slot[0], first | slot_crc(sum), memory_order_release);
}
