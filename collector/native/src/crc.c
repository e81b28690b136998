/* crc.c: CRC32C by table, and whether the processor can do it. */
#include "crc.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

static uint32_t table[256];

uint32_t laggard_crc_table(const void *b, size_t n) {
	const unsigned char *p = b;
	uint32_t c = 0xFFFFFFFFu;
	while (n--)
		c = table[(c ^ *p++) & 0xFF] ^ (c >> 8);
	return ~c;
}

void laggard_crc_init(void) {
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = i;
		for (int k = 0; k < 8; k++)
			c = c & 1 ? (c >> 1) ^ 0x82F63B78u : c >> 1;
		table[i] = c;
	}
#if defined(__x86_64__)
	unsigned a, b, c, d;
	laggard_hardware_crc = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_2);
#elif defined(__aarch64__)
	laggard_hardware_crc = (getauxval(AT_HWCAP) & (1ul << 7)) != 0; /* HWCAP_CRC32 */
#endif
}
