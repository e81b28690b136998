/* bench.c: what a record costs, beside the least that it could cost. Every pair
 * is measured in one run, interleaved, and the median of the rounds is printed as
 * NAME NS, one a line. */
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

enum { ROUNDS = 15, N = 20000 };

static char *slots; /* 2 MiB of shared memory, as the bulk ring is */
static _Atomic uint64_t head;
static laggard_attr attr = LAGGARD_ATTR_INIT;
static volatile uint64_t sink;

static int64_t mono(void) {
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

static uint64_t slot[8] = {1, 2, 3, 4, 5, 6, 7, 8};

static inline void copy_and_store(uint64_t i) {
	slot[2] = i;
	memcpy(slots + (i & 32767) * 64, slot, 64);
	atomic_store_explicit(&head, i + 1, memory_order_release);
}

/* 64 bytes and a release store */
static void copy(void) {
	for (uint64_t i = 0; i < N; i++) {
		copy_and_store(i);
		__asm__ volatile("" ::: "memory");
	}
}

/* the same and two looks at the clock */
static void copy_clocks(void) {
	for (uint64_t i = 0; i < N; i++) {
		slot[3] = (uint64_t)mono();
		slot[4] = (uint64_t)mono();
		copy_and_store(i);
		__asm__ volatile("" ::: "memory");
	}
}

/* publish alone: the times are known */
static void mark(void) {
	for (uint64_t i = 0; i < N; i++)
		laggard_mark(LAGGARD_COMMUNICATION, &attr, 1753000000000000000, (int64_t)i);
}

/* begin and end: open table, checksum, two looks at the clock */
static void range(void) {
	for (uint64_t i = 0; i < N; i++) {
		laggard_range r;
		laggard_begin(&r, LAGGARD_COMMUNICATION, &attr);
		laggard_end(&r);
	}
}

static void clock_ours(void) {
	for (uint64_t i = 0; i < N; i++)
		sink += (uint64_t)laggard_now();
}

static void clock_kernel(void) {
	for (uint64_t i = 0; i < N; i++)
		sink += (uint64_t)mono();
}

/* an event as a line of JSON, a write for each */
static int file = -1;
static void write_line(void) {
	char b[256];
	for (uint64_t i = 0; i < N; i++) {
		int n = snprintf(b, sizeof b, "{\"kind\":\"Communication\",\"step\":1,\"start\":%llu,\"dur\":%llu,\"op\":\"allreduce\",\"group\":\"dp0\",\"count\":4194304,\"dtype\":\"bf16\"}\n", 1753000000000000000ull, (unsigned long long)i);
		if (write(file, b, (size_t)n) != n)
			exit(1);
	}
}

/* empty says that everything is drained, as a fast agent would: only the tail is
 * of interest here. */
static void empty(const char *ring) {
	int fd = open(ring, O_RDWR);
	uint64_t h;
	if (fd < 0)
		return;
	for (int at = 64; at <= 192; at += 128)
		if (pread(fd, &h, 8, at) != 8 || pwrite(fd, &h, 8, at + 64) != 8)
			exit(1);
	close(fd);
}

static int by_value(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void measure(const char *ring, int n, const char **names, void (**f)(void)) {
	static double t[8][ROUNDS];
	for (int r = 0; r < ROUNDS; r++)
		for (int i = 0; i < n; i++) {
			struct timespec a, b;
			empty(ring);
			f[i](); /* warm */
			empty(ring);
			/* the time this thread had: others share the machine */
			clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
			f[i]();
			clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
			t[i][r] = ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / N;
		}
	for (int i = 0; i < n; i++) {
		qsort(t[i], ROUNDS, sizeof(double), by_value);
		printf("%s %.2f %.2f %.2f\n", names[i], t[i][ROUNDS / 2], t[i][0], t[i][ROUNDS - 1]);
	}
}

int main(int argc, char **argv) {
	if (argc != 3)
		return 2;
	slots = mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	file = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC, 0600);
	attr.text = laggard_intern("allreduce");
	attr.group = laggard_intern("dp0");
	attr.value = 4194304;
	attr.dtype = LAGGARD_BF16;
	range();
	char ring[512];
	snprintf(ring, sizeof ring, "ls -d %s/*/ring-1", argv[1]);
	FILE *p = popen(ring, "r");
	if (!p || !fgets(ring, sizeof ring, p))
		return 1;
	ring[strcspn(ring, "\n")] = 0;
	pclose(p);
	const char *names[] = {"copy", "mark", "copy_clocks", "range", "clock_kernel", "clock_ours", "write_line"};
	void (*f[])(void) = {copy, mark, copy_clocks, range, clock_kernel, clock_ours, write_line};
	measure(ring, 7, names, f);
	laggard_close();
	const char *off[] = {"off"};
	void (*g[])(void) = {range};
	measure(ring, 1, off, g);
	return laggard_lost(LAGGARD_COMMUNICATION) != 0;
}
