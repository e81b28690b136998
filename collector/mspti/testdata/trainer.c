/* trainer.c: a training process for tests. It calls mstx only, and libmspti's
 * stand-in where that tells something; it does not know the library under test but
 * for its counts, which it asks for when they are there. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "laggard_mspti.h"

uint64_t mstxRangeStartA(const char *message, void *stream);
void mstxRangeEnd(uint64_t id);
void mstxMarkA(const char *message, void *stream);
void *mstxDomainCreateA(const char *name);
void mstxDomainDestroy(void *domain);
uint64_t mstxDomainRangeStartA(void *domain, const char *message, void *stream);
void mstxDomainRangeEnd(void *domain, uint64_t id);
void mstxDomainMarkA(void *domain, const char *message, void *stream);

#pragma weak laggard_mspti_count
#pragma weak laggard_mspti_start
static uint64_t (*quantile)(double), (*calls)(void), (*written)(void), (*refused)(void), (*waits)(void);

static int64_t now(void) {
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void *stream = &stream;
static void *communication;

/* step trains one step: 2 forwards, a dataloader, and comms collectives. */
static void step(int n, int comms) {
	char name[64];
	snprintf(name, sizeof name, "step %d", n);
	uint64_t s = mstxRangeStartA(name, stream);
	uint64_t d = mstxRangeStartA("dataloader", NULL);
	mstxRangeEnd(d);
	for (int i = 0; i < 2; i++) {
		uint64_t f = mstxRangeStartA("forward", stream);
		mstxRangeEnd(f);
	}
	for (int i = 0; i < comms; i++) {
		const char *text = i % 2 ? "{\\\"streamId\\\": \\\"55\\\",\\\"count\\\": \\\"4194304\\\",\\\"dataType\\\": \\\"bfp16\\\",\\\"groupName\\\": \\\"10.0.0.7%eth0_60000_0\\\",\\\"opName\\\": \\\"HcclAllreduce\\\"}"
					 : "{\\\"opName\\\": \\\"HcclSend\\\",\\\"destRank\\\": \\\"3\\\",\\\"groupName\\\": \\\"pp\\\",\\\"count\\\": \\\"7\\\",\\\"dataType\\\": \\\"fp32\\\"}";
		uint64_t c = mstxDomainRangeStartA(communication, text, stream);
		mstxDomainRangeEnd(communication, c);
	}
	if (n % 10 == 9) {
		uint64_t c = mstxRangeStartA("save_checkpoint", NULL);
		mstxRangeEnd(c);
	}
	mstxRangeEnd(s);
}

/* wait_on waits until libmspti makes markers, as long as a minute. */
static void wait_on(void) {
	for (int64_t end = now() + 60000000000; now() < end;) {
		uint64_t id = mstxRangeStartA("warm up", NULL);
		mstxRangeEnd(id);
		if (id)
			return;
		usleep(1000);
	}
	fputs("no marker is taken\n", stderr);
	exit(3);
}

static void report(void) {
	laggard_mspti_counts c;
	memset(&c, 0, sizeof c);
	if (laggard_mspti_count)
		laggard_mspti_count(&c);
	printf("{\"markers\":%llu,\"activities\":%llu,\"records\":%llu,\"unmatched\":%llu,\"unknown\":%llu,\"dropped\":%llu,\"dropped_buffers\":%llu,\"buffers\":%llu,\"multiple\":%llu,\"on\":%u,\"written\":%llu,\"refused\":%llu,\"calls\":%llu,\"waits\":%llu,\"p50\":%llu,\"p99\":%llu,\"p999\":%llu,\"max\":%llu}\n",
	       (unsigned long long)c.markers, (unsigned long long)c.activities, (unsigned long long)c.records, (unsigned long long)c.unmatched, (unsigned long long)c.unknown,
	       (unsigned long long)c.dropped_markers, (unsigned long long)c.dropped_buffers, (unsigned long long)c.buffers, (unsigned long long)c.refused, c.on,
	       written ? (unsigned long long)written() : 0, refused ? (unsigned long long)refused() : 0, calls ? (unsigned long long)calls() : 0,
	       waits ? (unsigned long long)waits() : 0,
	       quantile ? (unsigned long long)quantile(0.5) : 0, quantile ? (unsigned long long)quantile(0.99) : 0,
	       quantile ? (unsigned long long)quantile(0.999) : 0, quantile ? (unsigned long long)quantile(1) : 0);
	fflush(stdout);
}

static volatile int running = 1;
static int64_t pace; /* ns a range */
static long per_thread;

static void *flood(void *unused) {
	(void)unused;
	int64_t next = now();
	for (long i = 0; i < per_thread; i++) {
		uint64_t c = mstxDomainRangeStartA(communication, "{\\\"opName\\\": \\\"HcclAllGather\\\",\\\"groupName\\\": \\\"tp\\\",\\\"count\\\": \\\"64\\\",\\\"dataType\\\": \\\"int8\\\"}", stream);
		mstxDomainRangeEnd(communication, c);
		if ((next += pace) - now() > 50000) {
			struct timespec ts = {0, next - now()};
			if (ts.tv_nsec > 0)
				nanosleep(&ts, NULL);
		}
	}
	return NULL;
}

int main(int argc, char **argv) {
	char line[64];
	const char *mode = argc > 1 ? argv[1] : "train";
	int n = argc > 2 ? atoi(argv[2]) : 10, m = argc > 3 ? atoi(argv[3]) : 4;
	quantile = (uint64_t(*)(double))dlsym(RTLD_DEFAULT, "standin_quantile");
	calls = (uint64_t(*)(void))dlsym(RTLD_DEFAULT, "standin_calls");
	written = (uint64_t(*)(void))dlsym(RTLD_DEFAULT, "standin_written");
	refused = (uint64_t(*)(void))dlsym(RTLD_DEFAULT, "standin_refused");
	waits = (uint64_t(*)(void))dlsym(RTLD_DEFAULT, "standin_waits");
	communication = mstxDomainCreateA("communication");
	if (strcmp(mode, "plain") == 0) { /* with whatever is there, nothing waited for */
		for (int i = 0; i < n; i++)
			step(i, m);
		puts("done");
	} else if (strcmp(mode, "train") == 0) {
		wait_on();
		for (int i = 0; i < n; i++)
			step(i, m);
		mstxMarkA("a moment", NULL);
		mstxMarkA("a moment on the device", stream);
		report();
	} else if (strcmp(mode, "follow") == 0) { /* a step a line, and what was taken of it */
		for (int i = 0; fgets(line, sizeof line, stdin); i++) {
			uint64_t s = mstxRangeStartA("step 1", stream), c = mstxDomainRangeStartA(communication, "{}", stream);
			mstxDomainRangeEnd(communication, c);
			mstxRangeEnd(s);
			printf("%d%d\n", s != 0, c != 0);
			fflush(stdout);
		}
		report();
	} else if (strcmp(mode, "flood") == 0) { /* n ranges in all, m thousand markers a second, from 2 threads */
		pthread_t t[2];
		wait_on();
		per_thread = n / 2;
		pace = 1000000000 / (m * 1000L / 4 / 2);
		int64_t from = now();
		for (int i = 0; i < 2; i++)
			pthread_create(&t[i], NULL, flood, NULL);
		for (int i = 0; i < 2; i++)
			pthread_join(t[i], NULL);
		fprintf(stderr, "%.0f markers a second\n", 4.0 * n / ((double)(now() - from) / 1e9));
		report();
	} else if (strcmp(mode, "hang") == 0) { /* a range is begun and nothing follows */
		wait_on();
		step(0, m);
		mstxRangeStartA("step 77", stream);
		mstxDomainRangeStartA(communication, "{\\\"opName\\\": \\\"HcclBroadcast\\\",\\\"groupName\\\": \\\"dp\\\"}", stream);
		puts("hangs");
		fflush(stdout);
		for (;;)
			pause();
	} else if (strcmp(mode, "forever") == 0) {
		wait_on();
		puts("on");
		fflush(stdout);
		for (int i = 0;; i++) {
			step(i, m);
			usleep(5000);
		}
	} else if (strcmp(mode, "fork") == 0) {
		wait_on();
		step(0, m);
		pid_t child = fork();
		if (child == 0) {
			step(1, m); /* goes to the child's copy of libmspti: nobody takes it */
			exit(0);
		}
		int status;
		waitpid(child, &status, 0);
		step(2, m);
		printf("%d\n", status);
		report();
	} else if (strcmp(mode, "signals") == 0) { /* which handlers and masks there are */
		wait_on();
		for (int s = 1; s < 32; s++) {
			struct sigaction sa;
			if (sigaction(s, NULL, &sa) == 0 && (sa.sa_handler != SIG_DFL || sa.sa_flags & SA_SIGINFO))
				printf("%d ", s);
		}
		puts("");
	}
	mstxDomainDestroy(communication);
	return 0;
}
