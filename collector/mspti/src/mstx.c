/* mstx.c: the mstx functions for a machine without an NPU. Built as
 * libms_tools_ext.so, where a script or an adapter looks for them. A range goes
 * straight into the ring, with the host's times; streams are not looked at. */
#include "mspti_name.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MSTX_API __attribute__((visibility("default")))

enum { OPEN_RANGES = 4096, DOMAINS = 256, PROBES = 64 };
#define BUSY_SLOT UINT64_MAX

/* An open range. Its id is a count with the slot's number below it. */
static struct slot {
	_Atomic uint64_t id;
	laggard_range range;
} slots[OPEN_RANGES];
static _Atomic uint64_t drawn;

typedef struct domain {
	char name[256];
} domain;
static domain domains[DOMAINS];
static unsigned domain_count;
static pthread_mutex_t domain_lock = PTHREAD_MUTEX_INITIALIZER;

/* attr_of reads a name. The kind is returned. */
static int attr_of(const char *message, const char *in, int instant, laggard_attr *a, int64_t *step) {
	mspti_what w;
	mspti_classify(message, in, instant, &w);
	a->text = laggard_intern(w.text);
	a->group = laggard_intern(w.group);
	a->dtype = w.dtype;
	a->peer = w.peer;
	a->value = w.count;
	*step = w.step;
	return w.kind;
}

static uint64_t start(const char *message, const char *in) {
	laggard_attr a = LAGGARD_ATTR_INIT;
	int64_t step;
	if (!message || !(laggard_is_on(LAGGARD_STEP) || laggard_is_on(LAGGARD_COMMUNICATION)))
		return 0;
	int kind = attr_of(message, in, 0, &a, &step);
	if (!laggard_is_on(kind))
		return 0;
	uint64_t n = atomic_fetch_add(&drawn, 1) + 1;
	for (uint64_t i = 0; i < PROBES; i++) {
		uint64_t at = (n + i) % OPEN_RANGES, none = 0;
		struct slot *s = &slots[at];
		if (!atomic_compare_exchange_strong(&s->id, &none, BUSY_SLOT))
			continue;
		if (kind == LAGGARD_STEP)
			laggard_step_begin(&s->range, step, 0);
		else
			laggard_begin(&s->range, kind, &a);
		uint64_t id = n * OPEN_RANGES + at;
		atomic_store(&s->id, id);
		return id;
	}
	return 0; /* thousands are open */
}

static void finish(uint64_t id) {
	struct slot *s = &slots[id % OPEN_RANGES];
	if (!id || !atomic_compare_exchange_strong(&s->id, &id, BUSY_SLOT))
		return;
	laggard_end(&s->range);
	atomic_store(&s->id, 0);
}

static void instant(const char *message, const char *in) {
	laggard_attr a = LAGGARD_ATTR_INIT;
	int64_t step;
	if (message)
		laggard_mark(attr_of(message, in, 1, &a, &step), &a, laggard_now(), 0);
}

static const char *name_of(const void *d) {
	const domain *known = d;
	return known >= domains && known < domains + DOMAINS ? known->name : "default";
}

MSTX_API uint64_t mstxRangeStartA(const char *message, void *stream) {
	(void)stream;
	return start(message, "default");
}
MSTX_API void mstxRangeEnd(uint64_t id) { finish(id); }
MSTX_API void mstxMarkA(const char *message, void *stream) {
	(void)stream;
	instant(message, "default");
}

/* A domain lives as long as the process: its handle may outlive its destruction. */
MSTX_API void *mstxDomainCreateA(const char *name) {
	domain *d = NULL;
	if (!name || strlen(name) >= sizeof d->name)
		return NULL;
	pthread_mutex_lock(&domain_lock);
	for (unsigned i = 0; !d && i < domain_count; i++)
		if (strcmp(domains[i].name, name) == 0)
			d = &domains[i];
	if (!d && domain_count < DOMAINS) {
		d = &domains[domain_count++];
		strcpy(d->name, name);
	}
	pthread_mutex_unlock(&domain_lock);
	return d;
}
MSTX_API void mstxDomainDestroy(void *d) { (void)d; }
MSTX_API void mstxDomainMarkA(void *d, const char *message, void *stream) {
	(void)stream;
	instant(message, name_of(d));
}
MSTX_API uint64_t mstxDomainRangeStartA(void *d, const char *message, void *stream) {
	(void)stream;
	return start(message, name_of(d));
}
MSTX_API void mstxDomainRangeEnd(void *d, uint64_t id) {
	(void)d;
	finish(id);
}
