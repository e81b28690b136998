/* live.c: what recording costs a program that does something else, while an agent
 * drains it. Each command prints one line for the Go side to judge. */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "laggard.h"

static laggard_attr attr = LAGGARD_ATTR_INIT;

static int64_t clock_ns(clockid_t clock) {
	struct timespec ts;
	clock_gettime(clock, &ts);
	return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

static int by_value(const void *a, const void *b) {
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

/* The least that a record could cost: 64 bytes into a ring in shared memory and a store
 * that releases. The ring is as large as ours, its heads are where ours are, and the
 * benchmark reads it as the agent reads ours. */
static struct least {
	char pad[192];
	_Atomic uint64_t head;
	char rest[8192 - 200];
	uint64_t slots[32768][8];
} *least;

static int make_least(const char *path) {
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0 || posix_fallocate(fd, 0, sizeof *least) != 0)
		return -1;
	least = mmap(NULL, sizeof *least, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	return least == MAP_FAILED ? -1 : 0;
}

static inline void least_record(uint64_t start, uint64_t dur) {
	uint64_t i = atomic_load_explicit(&least->head, memory_order_relaxed);
	uint64_t slot[8] = {3, i, start, dur, 5, 6, 7, 8};
	memcpy(least->slots[i & 32767], slot, 64);
	atomic_store_explicit(&least->head, i + 1, memory_order_release);
}

/* ticks is the fastest look at a clock. */
static inline uint64_t ticks(void) {
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#else
	return (uint64_t)clock_ns(CLOCK_MONOTONIC);
#endif
}

enum { NOTHING, OURS, LEAST, SIDES };

/* tail LEAST N PER_SECOND: N records at an even rate, and between each two of them
 * nothing and the least, measured alike; prints the p50, p99, p99.9 and the most of
 * nothing, of ours and of the least, ns */
static int tail(char **v) {
	long n = atol(v[1]);
	int64_t gap = 1000000000 / SIDES / atol(v[2]), next, *took[SIDES];
	for (int k = 0; k < SIDES; k++) {
		if (!(took[k] = malloc((size_t)n * 8)))
			return 1;
		memset(took[k], 0, (size_t)n * 8);
	}
	next = clock_ns(CLOCK_MONOTONIC);
	for (long i = 0; i < SIDES * n; i++) {
		int side = (int)(i % SIDES);
		int64_t a;
		while ((a = clock_ns(CLOCK_MONOTONIC)) < next)
			;
		next = (a - next > 1000000 ? a : next) + gap; /* after a pause no burst */
		a = clock_ns(CLOCK_MONOTONIC);
		if (side == OURS)
			laggard_mark(LAGGARD_COMMUNICATION, &attr, a, i);
		else if (side == LEAST)
			least_record((uint64_t)a, (uint64_t)i);
		took[side][i / SIDES] = clock_ns(CLOCK_MONOTONIC) - a;
	}
	for (int k = 0; k < SIDES; k++) {
		int64_t *t = took[k];
		qsort(t, (size_t)n, 8, by_value);
		printf("%lld %lld %lld %lld ", (long long)t[n / 2], (long long)t[n / 100 * 99], (long long)t[n / 1000 * 999], (long long)t[n - 1]);
	}
	return 0;
}

static double field[32768]; /* 256 KiB: what is recorded takes some of the caches' room */

/* step computes for a while, a part of it for each record. */
static void step(int parts, long part, int side) {
	for (int p = 0; p < parts; p++) {
		laggard_range r;
		uint64_t began = 0;
		if (side == OURS)
			laggard_begin(&r, LAGGARD_COMMUNICATION, &attr);
		else if (side == LEAST)
			began = ticks();
		for (long i = 0; i < part; i++) {
			double *f = field + (i * 8 + p * 512) % 32768;
			f[0] = f[0] * 0.999 + f[1] * 0.001 + 1e-9 * (double)i;
		}
		if (side == OURS)
			laggard_end(&r);
		else if (side == LEAST)
			least_record(began, ticks() - began);
	}
}

/* loop LEAST ROUNDS: blocks of about 0.2 ms, one with nothing, one with 10 ranges and one
 * with 10 of the least, two looks at the counter beside, in every order; prints the
 * thread's CPU time of each, ns */
static int loop(char **v) {
	enum { PARTS = 10 };
	long rounds = atol(v[1]), part = 1000;
	for (int i = 0; i < 5; i++) { /* 20 us a part: 50,000 records/s */
		int64_t a = clock_ns(CLOCK_THREAD_CPUTIME_ID);
		step(PARTS, part, NOTHING);
		part = (long)((double)part * PARTS * 20000 / (double)(clock_ns(CLOCK_THREAD_CPUTIME_ID) - a));
	}
	for (int k = 0; k < SIDES; k++)
		step(PARTS, part, k);
	for (long i = 0; i < rounds; i++) {
		int64_t t[SIDES];
		for (int k = 0; k < SIDES; k++) {
			int side = (int)(i % SIDES + (i & 1 ? SIDES - k : k)) % SIDES;
			step(2, part, side); /* a loop does all the time what this block does */
			int64_t a = clock_ns(CLOCK_THREAD_CPUTIME_ID);
			step(PARTS, part, side);
			t[side] = clock_ns(CLOCK_THREAD_CPUTIME_ID) - a;
		}
		printf("%lld %lld %lld\n", (long long)t[NOTHING], (long long)t[OURS], (long long)t[LEAST]);
	}
	return 0;
}

int main(int argc, char **argv) {
	attr.text = laggard_intern("allreduce");
	attr.value = 4194304;
	laggard_mark(LAGGARD_COMMUNICATION, &attr, 1, 1); /* makes the files */
	if (argc > 2 && make_least(argv[2]) != 0)
		return 1;
	if (argc == 5 && strcmp(argv[1], "tail") == 0)
		return tail(argv + 2);
	if (argc == 4 && strcmp(argv[1], "loop") == 0)
		return loop(argv + 2);
	return 2;
}
