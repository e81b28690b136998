/* live.c: what recording costs a program that does something else, while an agent
 * drains it. Each command prints one line for the Go side to judge. */
#define _GNU_SOURCE 1
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* tail N PER_SECOND: N records at an even rate, and between each two of them nothing,
 * measured alike; prints the p50, p99, p99.9 and the most of both, nothing first, ns */
static int tail(char **v) {
	long n = atol(v[0]);
	int64_t gap = 500000000 / atol(v[1]), next, *took[2] = {malloc((size_t)n * 8), malloc((size_t)n * 8)};
	if (!took[0] || !took[1])
		return 1;
	memset(took[0], 0, (size_t)n * 8);
	memset(took[1], 0, (size_t)n * 8);
	next = clock_ns(CLOCK_MONOTONIC);
	for (long i = 0; i < 2 * n; i++) {
		int64_t a;
		while ((a = clock_ns(CLOCK_MONOTONIC)) < next)
			;
		next = (a - next > 1000000 ? a : next) + gap; /* after a pause no burst */
		a = clock_ns(CLOCK_MONOTONIC);
		if (i & 1)
			laggard_mark(LAGGARD_COMMUNICATION, &attr, a, i);
		took[i & 1][i / 2] = clock_ns(CLOCK_MONOTONIC) - a;
	}
	for (int k = 0; k < 2; k++) {
		int64_t *t = took[k];
		qsort(t, (size_t)n, 8, by_value);
		printf("%lld %lld %lld %lld ", (long long)t[n / 2], (long long)t[n / 100 * 99], (long long)t[n / 1000 * 999], (long long)t[n - 1]);
	}
	return 0;
}

static double field[32768]; /* 256 KiB: what is recorded takes some of the caches' room */

/* step computes for a while, a part of it for each record. */
static void step(int parts, long part, int record) {
	for (int p = 0; p < parts; p++) {
		laggard_range r;
		if (record)
			laggard_begin(&r, LAGGARD_COMMUNICATION, &attr);
		for (long i = 0; i < part; i++) {
			double *f = field + (i * 8 + p * 512) % 32768;
			f[0] = f[0] * 0.999 + f[1] * 0.001 + 1e-9 * (double)i;
		}
		if (record)
			laggard_end(&r);
	}
}

/* loop PAIRS: pairs of blocks of about 1 ms, 50 records each in one of them, in either
 * order; prints the thread's CPU time of both, ns */
static int loop(char **v) {
	enum { PARTS = 50 };
	long pairs = atol(v[0]), part = 1000;
	for (int i = 0; i < 5; i++) { /* 20 us a part: 50,000 records/s */
		int64_t a = clock_ns(CLOCK_THREAD_CPUTIME_ID);
		step(PARTS, part, 0);
		part = (long)((double)part * PARTS * 20000 / (double)(clock_ns(CLOCK_THREAD_CPUTIME_ID) - a));
	}
	step(PARTS, part, 1);
	for (long i = 0; i < pairs; i++) {
		int64_t t[2];
		for (int k = 0; k < 2; k++) {
			int record = (int)(i + k) & 1;
			int64_t a = clock_ns(CLOCK_THREAD_CPUTIME_ID);
			step(PARTS, part, record);
			t[record] = clock_ns(CLOCK_THREAD_CPUTIME_ID) - a;
		}
		printf("%lld %lld\n", (long long)t[0], (long long)t[1]);
	}
	return 0;
}

int main(int argc, char **argv) {
	attr.text = laggard_intern("allreduce");
	attr.value = 4194304;
	laggard_mark(LAGGARD_COMMUNICATION, &attr, 1, 1); /* makes the files */
	if (argc == 4 && strcmp(argv[1], "tail") == 0)
		return tail(argv + 2);
	if (argc == 3 && strcmp(argv[1], "loop") == 0)
		return loop(argv + 2);
	return 2;
}
