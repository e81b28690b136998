/* mspti_walk.c: the records of a buffer, back to back. */
#include "mspti_walk.h"

#include "mspti_abi.h"
#include "mspti_counters.h"
#include "mspti_pairs.h"

/* Sizes by kind: invalid, marker, kernel, api, hccl, memory, memset, memcpy,
 * external correlation. 0: unknown, may be learnt. */
static uint32_t sizes[ACTIVITY_KINDS] = {0, MARKER_SIZE, 56, 48, 56, 64, 56, 56, 24};

/* learn asks libmspti itself where the record after an unknown one begins. It reads
 * to the end, because libmspti keeps its place until then. */
static uint32_t learn(uint8_t *buffer, size_t valid, size_t at, int (*next_record)(uint8_t *, size_t, void **)) {
	void *record = NULL;
	uint32_t size = 0;
	if (!next_record)
		return 0;
	for (size_t n = 0; n <= valid / 8 && next_record(buffer, valid, &record) == MSPTI_OK; n++) {
		uintptr_t off = (uintptr_t)record - (uintptr_t)buffer;
		if (!size && off > at && off < valid && off - at <= 4096)
			size = (uint32_t)(off - at);
	}
	return size >= 8 && size % 4 == 0 ? size : 0;
}

void mspti_walk(uint8_t *buffer, size_t valid, int (*next_record)(uint8_t *, size_t, void **)) {
	uint64_t markers = 0, others = 0;
	for (size_t at = 0; at + 4 <= valid;) {
		uint32_t kind = load32(buffer + at);
		uint32_t size = kind && kind < ACTIVITY_KINDS ? sizes[kind] : 0;
		if (!size && kind && kind < ACTIVITY_KINDS)
			size = sizes[kind] = learn(buffer, valid, at, next_record);
		if (!size) {
			count(&mspti_counted.unknown, 1);
			break;
		}
		if (size > valid - at)
			break; /* torn by whoever filled the buffer */
		if (kind == ACTIVITY_MARKER) {
			mspti_pairs_add(buffer + at);
			markers++;
		} else {
			others++;
		}
		at += size;
	}
	count(&mspti_counted.markers, markers);
	count(&mspti_counted.activities, others);
}
