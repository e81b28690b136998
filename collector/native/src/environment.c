/* environment.c: what the environment says: who this rank is, and what to record. */
#include "environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* append_json adds "key":"value" with what JSON must have escaped. */
static size_t append_json(char *dst, size_t at, size_t size, const char *key, const char *value) {
	if (!value || !*value)
		return at;
	size_t i = at + (size_t)snprintf(dst + at, size - at, "\"%s\":\"", key);
	for (; *value; value++) {
		unsigned char c = (unsigned char)*value;
		if (i + 16 > size)
			return at;
		if (c == '"' || c == '\\')
			dst[i++] = '\\';
		if (c < 0x20)
			i += (size_t)snprintf(dst + i, 7, "\\u%04x", c);
		else
			dst[i++] = (char)c;
	}
	return i + (size_t)snprintf(dst + i, size - i, "\",");
}

static long env_number(const char *name, long absent) {
	const char *s = getenv(name);
	long v = 0;
	if (!s || !*s)
		return absent;
	for (; *s; s++) {
		if (*s < '0' || *s > '9' || v > 100000000)
			return absent;
		v = v * 10 + (*s - '0');
	}
	return v;
}

/* laggard_default_identity writes the identity JSON that the environment tells, at
 * most size bytes (4096 are enough), and returns its length. */
size_t laggard_default_identity(char *json, size_t size) {
	const char *job = getenv("MINDX_TASK_ID");
	int ranked = getenv("LOCAL_RANK") != NULL; /* RANK alone says little */
	size_t n = 1;
	if (!job || !*job)
		job = getenv("LAGGARD_JOB");
	json[0] = '{';
	n = append_json(json, n, size - 1024, "job", job);
	n = append_json(json, n, size - 1024, "node", getenv("NODE_NAME"));
	n = append_json(json, n, size - 1024, "pod", getenv("POD_NAME"));
	n += (size_t)snprintf(json + n, size - n, "\"rank\":%ld,\"local_rank\":%ld,\"world_size\":%ld,\"writer\":\"c/1\"}",
			      ranked ? env_number("RANK", 0) : 0, ranked ? env_number("LOCAL_RANK", 0) : 0,
			      ranked ? env_number("WORLD_SIZE", 1) : 1);
	return n;
}

static int same_word(const char *a, size_t n, const char *b) {
	for (size_t i = 0; i < n; i++)
		if (!b[i] || ((unsigned char)a[i] | 32) != ((unsigned char)b[i] | 32))
			return 0;
	return b[n] == 0;
}

/* trace_word reads LAGGARD_TRACE as collector/trace documents it. A typo must not
 * turn the recording off. */
uint32_t laggard_trace_word(void) {
	static const char *const light[] = {"Step", "FP", "SaveCheckpoint", "DataLoader"};
	const char *s = getenv("LAGGARD_TRACE");
	uint32_t w = 0;
	if (!s || !*s)
		return ALL_ON;
	int alone = strchr(s, ',') == NULL;
	for (;;) {
		while (*s == ' ')
			s++;
		size_t n = strcspn(s, ","), k = n;
		int known = 0;
		while (k && s[k - 1] == ' ')
			k--;
		if (same_word(s, k, "on") || same_word(s, k, "CommunicationOperator") || same_word(s, k, "Communication")) {
			w = ALL_ON;
			known = 1;
		}
		for (int i = 0; i < 4; i++)
			if (same_word(s, k, light[i])) {
				w |= LIGHT_ON;
				known = 1;
			}
		if (!known && !(alone && same_word(s, k, "off"))) {
			dprintf(STDERR_FILENO, "laggard: LAGGARD_TRACE: \"%.*s\" is none of on, off, CommunicationOperator, Step, SaveCheckpoint, FP, DataLoader: all is on\n", (int)k, s);
			return ALL_ON;
		}
		if (!s[n])
			return w;
		s += n + 1;
	}
}
