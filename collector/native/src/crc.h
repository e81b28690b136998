/* crc.h: CRC32C (Castagnoli) of a slot, in hardware where the processor has it. */
#ifndef LAGGARD_CRC_H
#define LAGGARD_CRC_H

#include "internal.h"

/* slot_crc returns the checksum of bytes 4...63 of the slot with words w. */
static inline uint32_t slot_crc(const uint64_t w[8]) {
#if defined(__x86_64__)
	if (LIKELY(laggard_hardware_crc)) {
		uint64_t c = 0xFFFFFFFFu;
		uint32_t first = (uint32_t)(w[0] >> 32);
		__asm__("crc32l %1, %k0" : "+r"(c) : "r"(first));
		for (int i = 1; i < 8; i++)
			__asm__("crc32q %1, %0" : "+r"(c) : "r"(w[i]));
		return ~(uint32_t)c;
	}
#elif defined(__aarch64__)
	if (LIKELY(laggard_hardware_crc)) {
		uint32_t c = 0xFFFFFFFFu, first = (uint32_t)(w[0] >> 32);
		__asm__(".arch_extension crc\n\tcrc32cw %w0, %w0, %w1" : "+r"(c) : "r"(first));
		for (int i = 1; i < 8; i++)
			__asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(c) : "r"(w[i]));
		return ~c;
	}
#endif
	return laggard_crc_table((const unsigned char *)w + 4, 60);
}

#endif
