/* mspti_abi.h: what libmspti's binary interface looks like from here. The record
 * structures are packed, so their 64-bit fields lie on 4-byte offsets: they are read
 * by offset and copy, never through a C structure. */
#ifndef LAGGARD_MSPTI_ABI_H
#define LAGGARD_MSPTI_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { MSPTI_OK = 0, MSPTI_MULTIPLE_SUBSCRIBERS = 2, MSPTI_END_OF_BUFFER = 3 };

/* Kinds of activity. */
enum { ACTIVITY_MARKER = 1, ACTIVITY_KINDS = 32 };

/* Flags of a marker. */
enum { MARK_INSTANT = 1, MARK_START = 2, MARK_END = 4, MARK_INSTANT_DEVICE = 8, MARK_START_DEVICE = 16, MARK_END_DEVICE = 32 };

/* Where a marker's time stamp was taken. */
enum { SIDE_HOST = 0, SIDE_DEVICE = 1 };

/* A marker, 56 bytes. */
enum {
	M_KIND = 0, M_FLAG = 4, M_SIDE = 8, M_TIMESTAMP = 12, M_ID = 20, M_OBJECT = 28, M_NAME = 36, M_DOMAIN = 44,
	MARKER_SIZE = 56,
	O_PROCESS = 28, O_THREAD = 32, /* host side */
	O_DEVICE = 28, O_STREAM = 32   /* device side */
};

/* Buffers that are smaller are refused. */
#define MSPTI_BUFFER ((size_t)2 << 20)

typedef void (*mspti_request)(uint8_t **buffer, size_t *size, size_t *records);
typedef void (*mspti_complete)(uint8_t *buffer, size_t size, size_t valid);
typedef void (*mspti_callback)(void *user, int domain, uint32_t id, const void *data);

/* The symbols we look for. One that is missing is NULL and costs what it does. */
typedef struct mspti_api {
	int (*register_callbacks)(mspti_request, mspti_complete);
	int (*enable)(int kind);
	int (*disable)(int kind);
	int (*next_record)(uint8_t *buffer, size_t valid, void **record);
	int (*flush_all)(uint32_t flag);
	int (*enable_domain)(const char *name);
	int (*disable_domain)(const char *name);
	int (*subscribe)(void **handle, mspti_callback, void *user);
	int (*unsubscribe)(void *handle);
} mspti_api;

static inline uint32_t load32(const uint8_t *p) {
	uint32_t v;
	memcpy(&v, p, sizeof v);
	return v;
}
static inline uint64_t load64(const uint8_t *p) {
	uint64_t v;
	memcpy(&v, p, sizeof v);
	return v;
}
static inline const char *load_text(const uint8_t *p) {
	const char *s;
	memcpy(&s, p, sizeof s);
	return s;
}

#endif
