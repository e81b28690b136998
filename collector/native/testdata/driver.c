/* driver.c: a trainer for the tests of the C recorder. Each command does one
 * thing to it; what must hold afterwards the Go side checks. */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"

static int64_t mono(void) {
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

void die(const char *what) {
	perror(what);
	exit(1);
}

void one(int kind, uint16_t text, int64_t v) {
	laggard_range r;
	laggard_attr a = LAGGARD_ATTR_INIT;
	a.text = text;
	a.value = v;
	laggard_begin(&r, kind, &a);
	laggard_end(&r);
}

/* every kind, flag and field once */
static int cmd_all(void) {
	laggard_range step, r, other;
	laggard_attr a = LAGGARD_ATTR_INIT;
	laggard_set_meta("{\"job\":\"c job\",\"rank\":5,\"world_size\":8,\"local_rank\":1,\"writer\":\"c/1\"}");
	laggard_step_begin(&step, 120, 4096);
	laggard_begin(&r, LAGGARD_FP, NULL);
	a.text = laggard_intern("HcclAllreduce");
	a.group = laggard_intern("dp0");
	a.value = 4194304;
	a.dtype = LAGGARD_BF16;
	laggard_begin(&other, LAGGARD_COMMUNICATION, &a);
	laggard_end_exposed(&other, 77);
	laggard_end_device(&r, 1753000000000000001, 5400000);
	a.text = laggard_intern("send");
	a.peer = 3;
	a.stream = 9;
	laggard_begin(&other, LAGGARD_COMMUNICATION, &a);
	laggard_end(&other);
	laggard_end(&other); /* the second does nothing */
	laggard_attr c = LAGGARD_ATTR_INIT;
	c.text = laggard_intern("/ckpt/\"1\"");
	laggard_begin(&r, LAGGARD_SAVE_CHECKPOINT, &c);
	laggard_set_value(&r, 12345);
	laggard_end(&r);
	laggard_begin(&r, LAGGARD_DATA_LOADER, NULL);
	laggard_cancel(&r);
	laggard_end(&step);
	laggard_begin(&r, LAGGARD_DATA_LOADER, NULL);
	laggard_end(&r);
	a = (laggard_attr)LAGGARD_ATTR_INIT;
	a.text = laggard_intern("Evaluate");
	laggard_mark(LAGGARD_OTHER, &a, 1753000000000000002, 8);
	laggard_span s = LAGGARD_SPAN_INIT;
	s.kind = LAGGARD_FP;
	s.step = 121;
	s.start = 1753000000000000003;
	s.dur = 9;
	s.device = 1;
	s.host_start = 1753000000000000000;
	s.host_dur = 4;
	s.attr.stream = 2;
	laggard_emit(&s);
	laggard_range zero = {{0}, NULL, 0, 0, 0};
	laggard_end(&zero);
	return 0;
}

/* ---- killed at any instant ---- */

struct ack { /* one a thread, on a line of its own; rig.Acks */
	_Atomic uint64_t begun, ended;
	_Atomic uint64_t stored; /* by the test: what it has drained of ours */
	char pad[40];
};
static struct ack *acks;
static uint64_t pace_every, window;

static void map_acks(const char *path) {
	int fd = open(path, O_RDWR | O_CREAT, 0600);
	acks = fd < 0 || ftruncate(fd, 4096) != 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (acks == MAP_FAILED)
		die("acks");
}

void nap_ns(long ns) {
	struct timespec nap = {0, ns};
	nanosleep(&nap, NULL);
}

/* turn records the i-th range of a thread, which may take a while, and says so. */
static void turn(struct ack *k, uint16_t text, uint64_t i, long ns) {
	laggard_range r;
	laggard_attr a = LAGGARD_ATTR_INIT;
	a.text = text;
	a.value = (int64_t)i;
	laggard_begin(&r, i % 8 == 3 ? LAGGARD_OTHER : LAGGARD_COMMUNICATION, &a);
	atomic_store(&k->begun, i + 1);
	if (ns)
		nap_ns(ns);
	laggard_end(&r);
	atomic_store(&k->ended, i + 1);
}

static void *emitter(void *p) {
	struct ack *k = p;
	char name[16];
	uint16_t text;
	snprintf(name, sizeof name, "t%d", (int)(k - acks));
	text = laggard_intern(name);
	for (uint64_t i = 0;; i++) {
		while (window && i - atomic_load(&k->stored) >= window)
			nap_ns(50000); /* the ring would overflow */
		/* half of the naps are in a range: what a hang looks like */
		int nap = pace_every && i % pace_every == pace_every - 1;
		turn(k, text, i, nap && i & 1 ? 1000000 : 0);
		if (nap && !(i & 1))
			nap_ns(1000000);
	}
	return NULL;
}

/* steps ACK N: N ranges, a stop, one more range: to be killed after any of its
 * instructions */
static int cmd_steps(char **v) {
	uint64_t n = strtoull(v[1], NULL, 10);
	map_acks(v[0]);
	laggard_set_meta("{\"job\":\"steps\",\"rank\":0,\"world_size\":1,\"writer\":\"c/1\"}");
	uint16_t text = laggard_intern("t0");
	for (uint64_t i = 0; i < n; i++)
		turn(&acks[0], text, i, 0);
	raise(SIGTRAP);
	turn(&acks[0], text, n, 0);
	raise(SIGTRAP);
	return 0;
}

/* kill ACK THREADS PACE [WINDOW]: THREADS record until somebody ends us, a nap of 1 ms
 * every PACE records, and at most WINDOW more than what is drained */
static int cmd_kill(char **v) {
	int threads = atoi(v[1]);
	pthread_t id;
	pace_every = strtoull(v[2], NULL, 10);
	window = v[3] ? strtoull(v[3], NULL, 10) : 0;
	map_acks(v[0]);
	laggard_set_meta("{\"job\":\"kill\",\"rank\":0,\"world_size\":1,\"writer\":\"c/1\"}");
	for (int i = 1; i < threads; i++)
		if (pthread_create(&id, NULL, emitter, &acks[i]) != 0)
			die("thread");
	puts("up");
	fflush(stdout);
	emitter(&acks[0]);
	return 0;
}

/* burst N PER_MS: N records, PER_MS a millisecond, then an end in order */
static int cmd_burst(char **v) {
	uint64_t n = strtoull(v[0], NULL, 10), per = strtoull(v[1], NULL, 10);
	laggard_set_meta("{\"job\":\"burst\",\"rank\":1,\"world_size\":2,\"writer\":\"c/1\"}");
	uint16_t op = laggard_intern("allreduce");
	for (uint64_t i = 0; i < n; i++) {
		one(i % 16 == 15 ? LAGGARD_FP : LAGGARD_COMMUNICATION, i % 16 == 15 ? 0 : op, (int64_t)i);
		if (per && i % per == per - 1) {
			struct timespec nap = {0, 1000000};
			nanosleep(&nap, NULL);
		}
	}
	return 0;
}

/* ---- what is done to its files ---- */

/* truncate: waits for a line on stdin at each stage, then goes on recording */
static int cmd_truncate(void) {
	char line[16];
	for (int i = 0; i < 100; i++)
		one(LAGGARD_FP, 0, i);
	puts("up");
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin))
		return 1;
	for (int i = 0; i < 100000; i++)
		one(i % 2 ? LAGGARD_FP : LAGGARD_COMMUNICATION, 0, i);
	printf("%s; lost %llu\n", laggard_error() ? laggard_error() : "no error", (unsigned long long)(laggard_lost(LAGGARD_FP) + laggard_lost(LAGGARD_COMMUNICATION)));
	return 0;
}

/* limit BYTES: a limit on the size of files, then N records */
static int cmd_limit(char **v) {
	struct rlimit l = {strtoull(v[0], NULL, 10), RLIM_INFINITY};
	if (setrlimit(RLIMIT_FSIZE, &l) != 0)
		die("setrlimit");
	for (int i = 0; i < 1000; i++)
		one(LAGGARD_FP, 0, i);
	printf("%s; lost %llu\n", laggard_error() ? laggard_error() : "no error", (unsigned long long)laggard_lost(LAGGARD_FP));
	return 0;
}

/* follow: prints what is on at each line of stdin */
static int cmd_follow(void) {
	char line[16];
	do {
		one(LAGGARD_FP, 0, 1);
		one(LAGGARD_COMMUNICATION, 0, 1);
		printf("%d%d\n", laggard_is_on(LAGGARD_FP), laggard_is_on(LAGGARD_COMMUNICATION));
		fflush(stdout);
	} while (fgets(line, sizeof line, stdin));
	return 0;
}

/* durations MS: ranges for so long, each between readings of the kernel's clock
 * before and after begin and end. Prints, for each, the least and the most ns that
 * they allow it to have lasted. */
static int cmd_durations(char **v) {
	int64_t end = mono() + atoll(v[0]) * 1000000;
	for (int i = 0; mono() < end; i++) {
		laggard_range r;
		int64_t a = mono();
		laggard_begin(&r, LAGGARD_FP, NULL);
		int64_t b = mono();
		if (i % 4)
			nap_ns(i % 4 * 1000000l);
		int64_t c = mono();
		laggard_end(&r);
		printf("%lld %lld\n", (long long)(c - b), (long long)(mono() - a));
	}
	return 0;
}

/* layout N: N records of every kind with given times, the last ones too many, and one
 * that stays open */
static int cmd_layout(char **v) {
	int n = atoi(v[0]);
	laggard_span s = LAGGARD_SPAN_INIT;
	laggard_range r;
	laggard_set_meta("{\"job\":\"layout\",\"rank\":1,\"world_size\":2}");
	uint16_t text = laggard_intern("text"), group = laggard_intern("group");
	for (int i = 0; i < n; i++) {
		s.kind = i % 6;
		s.step = i % 7 - 1;
		s.start = 1753000000000000000 + i;
		s.dur = 10 * i;
		s.attr.text = text;
		s.attr.group = i % 2 ? group : 0;
		s.attr.stream = (uint16_t)i;
		s.attr.dtype = (uint8_t)(i % 17);
		s.attr.peer = i % 5 - 1;
		s.attr.value = (int64_t)i << 33;
		s.device = i % 3 == 0;
		s.host_start = s.device ? 1752000000000000000 + i : 0;
		s.host_dur = s.device ? 7 * i : 0;
		s.exposed = i % 4 == 1 && !s.device ? i : -1;
		laggard_emit(&s);
	}
	laggard_begin(&r, LAGGARD_SAVE_CHECKPOINT, &s.attr);
	puts("up");
	fflush(stdout);
	return getchar() == EOF;
}

/* clock MS: how far our clock runs from the kernel's in MS milliseconds, ns */
static int cmd_clock(char **v) {
	struct timespec ts;
	int64_t first = 0, last = 0, worst = 0, end = atoll(v[0]) * 1000000, began;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	began = ts.tv_sec * 1000000000ll + ts.tv_nsec;
	for (int64_t mono = began; mono - began < end;) {
		int64_t a = laggard_now();
		clock_gettime(CLOCK_MONOTONIC, &ts);
		int64_t b = laggard_now();
		mono = ts.tv_sec * 1000000000ll + ts.tv_nsec;
		if (a < last || b < a) {
			puts("went back");
			return 1;
		}
		last = b;
		if (b - a > 2000)
			continue; /* interrupted */
		int64_t d = a + (b - a) / 2 - mono;
		if (!first)
			first = d;
		d -= first;
		if (d < 0)
			d = -d;
		if (d > worst)
			worst = d;
	}
	printf("%lld\n", (long long)worst);
	return 0;
}

int main(int argc, char **argv) {
	const char *c = argc > 1 ? argv[1] : "";
	char **v = argv + 2;
	if (strcmp(c, "all") == 0)
		return cmd_all();
	if (strcmp(c, "kill") == 0 && argc >= 5)
		return cmd_kill(v);
	if (strcmp(c, "steps") == 0 && argc == 4)
		return cmd_steps(v);
	if (strcmp(c, "burst") == 0 && argc == 4)
		return cmd_burst(v);
	if (strcmp(c, "fork") == 0 && argc == 3)
		return cmd_fork(v);
	if (strcmp(c, "churn") == 0 && argc == 4)
		return cmd_churn(v);
	if (strcmp(c, "workers") == 0 && argc == 3)
		return cmd_workers(v);
	if (strcmp(c, "durations") == 0 && argc == 3)
		return cmd_durations(v);
	if (strcmp(c, "layout") == 0 && argc == 3)
		return cmd_layout(v);
	if (strcmp(c, "handover") == 0)
		return cmd_handover();
	if (strcmp(c, "signal") == 0 && argc == 3)
		return cmd_signal(v);
	if (strcmp(c, "orphans") == 0 && argc == 4)
		return cmd_orphans(v);
	if (strcmp(c, "bus") == 0 && argc == 4)
		return cmd_bus(v);
	if (strcmp(c, "truncate") == 0)
		return cmd_truncate();
	if (strcmp(c, "limit") == 0 && argc == 3)
		return cmd_limit(v);
	if (strcmp(c, "follow") == 0)
		return cmd_follow();
	if (strcmp(c, "clock") == 0 && argc == 3)
		return cmd_clock(v);
	fprintf(stderr, "driver: unknown command\n");
	return 2;
}
