/* crc.h: CRC32C (Castagnoli) of a slot, in hardware where the processor has it. */
#ifndef LAGGARD_CRC_H
#define LAGGARD_CRC_H

#include "internal.h"

HIDDEN void laggard_crc_init(void);
HIDDEN uint32_t laggard_crc_table(const void *b, size_t n); /* of any bytes, by table */

/* The words come one by one: whole, they would be laid into memory for the way with
 * hardware, too. */
static COLD uint32_t slow_crc(uint64_t kind, uint64_t seq, uint64_t start, uint64_t dur, uint64_t host, uint64_t text, uint64_t step, uint64_t value) {
	words w = {kind, seq, start, dur, host, text, step, value};
	return laggard_crc_table((const unsigned char *)&w + 4, SLOT_SIZE - 4);
}

/* slot_crc returns the checksum of bytes 4...63 of a slot. */
static ALWAYS uint32_t slot_crc(words w) {
#if defined(__x86_64__)
	if (LIKELY(laggard_hardware_crc)) {
		uint64_t c = 0xFFFFFFFFu;
#define ADD(word) __asm__("crc32q %1, %0" : "+r"(c) : "r"(word))
		__asm__("crc32l %1, %k0" : "+r"(c) : "r"((uint32_t)(w.kind >> 32)));
		ADD(w.seq); ADD(w.start); ADD(w.dur); ADD(w.host); ADD(w.text); ADD(w.step); ADD(w.value);
#undef ADD
		return ~(uint32_t)c;
	}
#elif defined(__aarch64__)
	if (LIKELY(laggard_hardware_crc)) {
		uint32_t c = 0xFFFFFFFFu;
#define ADD(word) __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(c) : "r"(word))
		__asm__(".arch_extension crc\n\tcrc32cw %w0, %w0, %w1" : "+r"(c) : "r"((uint32_t)(w.kind >> 32)));
		ADD(w.seq); ADD(w.start); ADD(w.dur); ADD(w.host); ADD(w.text); ADD(w.step); ADD(w.value);
#undef ADD
		return ~c;
	}
#endif
	return slow_crc(w.kind, w.seq, w.start, w.dur, w.host, w.text, w.step, w.value);
}

#endif
