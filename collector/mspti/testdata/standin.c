/* standin.c: a libmspti for tests. It follows the ABI: packed records, buffers of
 * 2 MiB and more, handed over at 80 % or at a flush, device markers in buffers of
 * their own, which are handed over first and in the reverse order.
 *
 *   -DWITHOUT_<symbol>    leaves a symbol out
 *   STANDIN_BUSY          a file; while it is there subscribe says: multiple subscribers
 *   STANDIN_FULL          markers after which a buffer counts as full
 *   STANDIN_STRANGE=1     each flush ends with a record of a kind nobody knows
 *
 * The mstx functions, which a trainer calls, are here as well. */
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

typedef void (*request_fn)(uint8_t **, size_t *, size_t *);
typedef void (*complete_fn)(uint8_t *, size_t, size_t);

enum { LEAST = 2 << 20, LATE = 1 << 16, NAMES = 1 << 20 };

struct lane {
	uint8_t *buffer;
	size_t size, used;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static request_fn request;
static complete_fn complete;
static struct lane host, device;
static int enabled, subscribed, communication = 1;
static uint64_t next_id = 1;
static uint8_t late[LATE][56];
static unsigned late_count;
static size_t full_at;
static const char *interned[NAMES];

/* What a trainer can ask: emitted per side, refused, and the callbacks' times. */
static uint64_t written, refused, calls, waits, histogram[64][16];

static uint64_t now(clockid_t c) {
	struct timespec ts;
	clock_gettime(c, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* switches counts how often this thread gave its processor up by itself. */
static long switches(void) {
	struct rusage u;
	getrusage(RUSAGE_THREAD, &u);
	return u.ru_nvcsw;
}

/* timed files a duration by its leading bits: good to 6 %. */
static void timed(uint64_t from, long before) {
	uint64_t d = now(CLOCK_MONOTONIC) - from;
	waits += (uint64_t)(switches() - before);
	int e = d < 16 ? 0 : 63 - __builtin_clzll(d) - 3;
	histogram[e][d >> e & 15]++;
	calls++;
}

/* of so few calls that none is above it, the quantile is the longest */
uint64_t standin_quantile(double q) {
	uint64_t n = 0, want = (uint64_t)(q * (double)calls);
	if (want >= calls)
		want = calls ? calls - 1 : 0;
	for (int e = 0; e < 64; e++)
		for (uint64_t m = 0; m < 16; m++)
			if ((n += histogram[e][m]) > want)
				return (m + 1) << e;
	return 0;
}
uint64_t standin_calls(void) { return calls; }
uint64_t standin_waits(void) { return waits; }
uint64_t standin_written(void) { return written; }
uint64_t standin_refused(void) { return refused; }

static void hand_over(struct lane *l) {
	struct lane old = *l;
	memset(l, 0, sizeof *l);
	if (!old.buffer)
		return;
	long before = switches();
	uint64_t from = now(CLOCK_MONOTONIC);
	complete(old.buffer, old.size, old.used);
	timed(from, before);
}

static void put(struct lane *l, const void *record, size_t size) {
	if (!l->buffer) {
		size_t most = 0;
		long before = switches();
		uint64_t from = now(CLOCK_MONOTONIC);
		request(&l->buffer, &l->size, &most);
		timed(from, before);
		l->used = 0;
		if (!l->buffer || l->size < LEAST) {
			l->buffer = NULL;
			refused++;
			return;
		}
	}
	if (l->size - l->used < size) {
		refused++;
		return;
	}
	memcpy(l->buffer + l->used, record, size);
	l->used += size;
	written++;
	if (l->used * 5 >= l->size * 4 || (full_at && l->used >= full_at * 56))
		hand_over(l);
}

static void send_late(void) {
	while (late_count)
		put(&device, late[--late_count], 56);
}

static const char *intern(const char *s) {
	uint32_t h = 5381;
	for (const char *p = s; *p; p++)
		h = h * 33 + (unsigned char)*p;
	for (uint32_t i = h % NAMES, tries = 0; tries < 1000; i = (i + 1) % NAMES, tries++) {
		if (!interned[i])
			return interned[i] = strdup(s);
		if (strcmp(interned[i], s) == 0)
			return interned[i];
	}
	fputs("stand-in libmspti: too many different names\n", stderr);
	abort();
}

static void marker(uint8_t m[56], uint32_t flag, uint32_t side, uint64_t at, uint64_t id, uint32_t a, uint32_t b, const char *name, const char *domain) {
	uint32_t kind = 1;
	memcpy(m, &kind, 4);
	memcpy(m + 4, &flag, 4);
	memcpy(m + 8, &side, 4);
	memcpy(m + 12, &at, 8);
	memcpy(m + 20, &id, 8);
	memcpy(m + 28, &a, 4);
	memcpy(m + 32, &b, 4);
	memset(m + 36, 0, 20);
	memcpy(m + 36, &name, 8);
	memcpy(m + 44, &domain, 8);
}

static uint32_t thread_id(void) { return (uint32_t)gettid(); }

static void late_marker(uint32_t flag, uint64_t at, uint64_t id) {
	if (late_count == LATE)
		send_late();
	marker(late[late_count++], flag, 1, at, id, 0, 2, "", "");
}

/* ---- libmspti ---- */

#ifndef WITHOUT_msptiActivityRegisterCallbacks
int msptiActivityRegisterCallbacks(request_fn r, complete_fn c) {
	const char *full = getenv("STANDIN_FULL");
	full_at = full ? (size_t)atol(full) : 0;
	request = r;
	complete = c;
	return r && c ? 0 : 1;
}
#endif
#ifndef WITHOUT_msptiActivityEnable
int msptiActivityEnable(int kind) {
	pthread_mutex_lock(&lock);
	enabled = kind == 1;
	pthread_mutex_unlock(&lock);
	return kind == 1 ? 0 : 1;
}
#endif
#ifndef WITHOUT_msptiActivityDisable
int msptiActivityDisable(int kind) {
	pthread_mutex_lock(&lock);
	if (kind == 1)
		enabled = 0;
	pthread_mutex_unlock(&lock);
	return 0;
}
#endif
#ifndef WITHOUT_msptiActivityGetNextRecord
int msptiActivityGetNextRecord(uint8_t *buffer, size_t valid, void **record) {
	static _Thread_local size_t at;
	uint32_t kind;
	if (at + 4 > valid) {
		at = 0;
		return 3;
	}
	*record = buffer + at;
	memcpy(&kind, buffer + at, 4);
	at += kind == 1 ? 56 : 40;
	return 0;
}
#endif
#ifndef WITHOUT_msptiActivityFlushAll
int msptiActivityFlushAll(uint32_t flag) {
	(void)flag;
	pthread_mutex_lock(&lock);
	send_late();
	hand_over(&device);
	const char *strange = getenv("STANDIN_STRANGE");
	if (strange && host.buffer) {
		uint8_t record[40] = {9};
		uint8_t m[56];
		put(&host, record, sizeof record);
		marker(m, 1, 0, now(CLOCK_REALTIME), next_id++, 1, 1, intern("after the stranger"), "default");
		put(&host, m, sizeof m);
	}
	hand_over(&host);
	pthread_mutex_unlock(&lock);
	return 0;
}
#endif
static int domain_is(const char *name, int on) {
	pthread_mutex_lock(&lock);
	if (strcmp(name, "communication") == 0)
		communication = on;
	pthread_mutex_unlock(&lock);
	return 0;
}
#ifndef WITHOUT_msptiActivityEnableMarkerDomain
int msptiActivityEnableMarkerDomain(const char *name) { return domain_is(name, 1); }
#endif
#ifndef WITHOUT_msptiActivityDisableMarkerDomain
int msptiActivityDisableMarkerDomain(const char *name) { return domain_is(name, 0); }
#endif
#ifndef WITHOUT_msptiSubscribe
int msptiSubscribe(void **handle, void *cb, void *user) {
	const char *busy = getenv("STANDIN_BUSY");
	(void)cb;
	(void)user;
	if (subscribed || (busy && access(busy, F_OK) == 0))
		return 2;
	subscribed = 1;
	*handle = &subscribed;
	return 0;
}
#endif
#ifndef WITHOUT_msptiUnsubscribe
int msptiUnsubscribe(void *handle) {
	(void)handle;
	subscribed = 0;
	return 0;
}
#endif

/* ---- mstx ---- */

static uint8_t with_stream[NAMES];

static uint64_t begin(const char *domain, const char *message, void *stream, int instant) {
	uint8_t m[56];
	uint64_t id = 0;
	pthread_mutex_lock(&lock);
	int off = !enabled || (strcmp(domain, "communication") == 0 && !communication);
	if (!off && message && strlen(message) < 255) {
		uint64_t at = now(CLOCK_REALTIME);
		uint32_t flag = instant ? (stream ? 8 : 1) : (stream ? 16 : 2);
		id = next_id++;
		with_stream[id % NAMES] = stream != NULL;
		marker(m, flag, 0, at, id, (uint32_t)getpid(), thread_id(), intern(message), intern(domain));
		put(&host, m, sizeof m);
		if (stream)
			late_marker(flag, at + 1000, id);
	}
	pthread_mutex_unlock(&lock);
	return id;
}

static void finish(uint64_t id) {
	uint8_t m[56];
	if (!id)
		return;
	pthread_mutex_lock(&lock);
	if (enabled) {
		uint64_t at = now(CLOCK_REALTIME);
		uint32_t flag = with_stream[id % NAMES] ? 32 : 4;
		marker(m, flag, 0, at, id, (uint32_t)getpid(), thread_id(), "", "");
		put(&host, m, sizeof m);
		if (flag == 32)
			late_marker(flag, at + 5000, id);
	}
	pthread_mutex_unlock(&lock);
}

uint64_t mstxRangeStartA(const char *message, void *stream) { return begin("default", message, stream, 0); }
void mstxRangeEnd(uint64_t id) { finish(id); }
void mstxMarkA(const char *message, void *stream) { begin("default", message, stream, 1); }
void *mstxDomainCreateA(const char *name) { return (void *)(uintptr_t)intern(name); }
void mstxDomainDestroy(void *domain) { (void)domain; }
void mstxDomainMarkA(void *domain, const char *message, void *stream) { begin(domain, message, stream, 1); }
uint64_t mstxDomainRangeStartA(void *domain, const char *message, void *stream) { return begin(domain, message, stream, 0); }
void mstxDomainRangeEnd(void *domain, uint64_t id) {
	(void)domain;
	finish(id);
}
