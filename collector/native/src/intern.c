/* intern.c: the words that slots name by a number. Their image is private until the
 * folder exists, and stays valid in a child. The caller holds laggard_lock. */
#include <string.h>

#include "crc.h"
#include "files.h"
#include "intern.h"
#include "process.h"

static unsigned char image[STRINGS_SIZE];
static uint32_t image_used, string_count, strings_refused;
static uint32_t string_at[65536];
static uint16_t string_index[131072];

uint16_t laggard_intern_locked(const char *s, size_t n) {
	uint32_t i = (uint32_t)laggard_fnv(FNV_START, s, n) & 131071u;
	for (; string_index[i]; i = (i + 1) & 131071u) {
		const unsigned char *e = image + string_at[string_index[i]];
		uint32_t len;
		memcpy(&len, e, 4);
		if (len == n && memcmp(e + 8, s, n) == 0)
			return string_index[i];
	}
	unsigned char *m = atomic_load(&laggard_mapping);
	if (n > STRINGS_SIZE - 16 || string_count >= 65535 || image_used + 8 + ((n + 7) & ~(size_t)7) > STRINGS_SIZE) {
		strings_refused++;
		if (m)
			atomic_store(p64(m, P_LOST_STRINGS), strings_refused);
		return 0;
	}
	uint32_t at = image_used, len = (uint32_t)n, crc = laggard_crc_table(s, n);
	uint32_t size = 8 + ((len + 7) & ~7u);
	memcpy(image + at, &len, 4);
	memcpy(image + at + 4, &crc, 4);
	memcpy(image + at + 8, s, n);
	string_at[++string_count] = at;
	image_used = at + size;
	string_index[i] = (uint16_t)string_count;
	if (m) {
		memcpy(m + PROCESS_HEADER + at, image + at, size);
		atomic_store_explicit(p32(m, P_STRINGS_USED), image_used, memory_order_release);
	}
	return (uint16_t)string_count;
}

void laggard_copy_strings(unsigned char *m) {
	memcpy(m + PROCESS_HEADER, image, image_used);
	put64(m, P_LOST_STRINGS, strings_refused);
	put32(m, P_STRINGS_USED, image_used);
}
