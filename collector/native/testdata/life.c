/* life.c: the driver's commands that fork, end threads, and take signals. */
#define _GNU_SOURCE 1
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"

int cmd_fork(char **v) {
	int children = atoi(v[0]);
	laggard_range open_in_parent;
	uint16_t text = laggard_intern("parent's string");
	one(LAGGARD_OTHER, text, 1);
	laggard_begin(&open_in_parent, LAGGARD_STEP, NULL);
	for (int i = 0; i < children; i++) {
		pid_t pid = fork();
		if (pid < 0)
			die("fork");
		if (pid == 0) {
			laggard_end(&open_in_parent); /* the parent's to end */
			if (i % 2 == 0)
				exit(0); /* records nothing: no folder */
			one(LAGGARD_OTHER, text, 100 + i);
			one(LAGGARD_OTHER, laggard_intern("child's string"), 200 + i);
			if (i == 1) { /* a daemon outlives its parents */
				if (fork() == 0) {
					setsid();
					one(LAGGARD_OTHER, text, 300);
					exit(0);
				}
				wait(NULL);
			}
			exit(0);
		}
	}
	for (int i = 0; i < children; i++)
		wait(NULL);
	laggard_end(&open_in_parent);
	one(LAGGARD_OTHER, text, 2);
	return 0;
}

/* ---- threads ---- */

static uint16_t churn_text;
static atomic_int stop;

static void *busy(void *p) {
	uint64_t *n = p;
	char name[32];
	while (!stop) {
		snprintf(name, sizeof name, "busy%d", (int)(*n % 1000)); /* takes the library's lock */
		one(LAGGARD_OTHER, laggard_intern(name), (int64_t)(*n)++);
		nap_ns(2000);
	}
	return NULL;
}

static void *short_lived(void *p) {
	one(LAGGARD_OTHER, churn_text, (int64_t)(intptr_t)p);
	return NULL;
}

enum { AT_ONCE = 48 }; /* children with two rings each that fit a user's share of 256 MiB */

/* workers N: N children forked while 4 threads record; each records three ranges,
 * the second on a thread of its own. Prints what the threads recorded. */
int cmd_workers(char **v) {
	uint64_t n[4] = {0};
	pthread_t id[4], own;
	int children = atoi(v[0]), status, failed = 0;
	laggard_range r;
	churn_text = laggard_intern("worker");
	for (int i = 0; i < 4; i++)
		if (pthread_create(&id[i], NULL, busy, &n[i]) != 0)
			die("thread");
	for (int i = 0; i < children; i++) {
		if (i >= AT_ONCE && (wait(&status) < 0 || status != 0))
			failed = 1;
		pid_t pid = fork();
		if (pid < 0)
			die("fork");
		if (pid == 0) {
			laggard_step_begin(&r, i, 0);
			if (pthread_create(&own, NULL, short_lived, (void *)(intptr_t)i) != 0)
				_exit(1);
			pthread_join(own, NULL);
			one(LAGGARD_OTHER, laggard_intern("worker's own"), i);
			laggard_end(&r);
			exit(0);
		}
	}
	for (int i = 0; i < children && i < AT_ONCE; i++)
		if (wait(&status) < 0 || status != 0)
			failed = 1;
	stop = 1;
	for (int i = 0; i < 4; i++)
		pthread_join(id[i], NULL);
	printf("%llu\n", (unsigned long long)(n[0] + n[1] + n[2] + n[3]));
	return failed;
}


/* churn ROUNDS WIDTH: ROUNDS times WIDTH threads that record once and end */
int cmd_churn(char **v) {
	int rounds = atoi(v[0]), width = atoi(v[1]);
	pthread_t id[256];
	churn_text = laggard_intern("churn");
	for (int i = 0; i < rounds; i++) {
		for (int k = 0; k < width; k++)
			if (pthread_create(&id[k], NULL, short_lived, (void *)(intptr_t)(i * width + k)) != 0)
				die("thread");
		for (int k = 0; k < width; k++)
			pthread_join(id[k], NULL);
	}
	return 0;
}

/* ---- a range that ends on another thread ---- */

static void *ender(void *p) {
	laggard_end(p);
	return NULL;
}

int cmd_handover(void) {
	laggard_range r, s;
	pthread_t id;
	laggard_begin(&r, LAGGARD_FP, NULL);
	laggard_begin(&s, LAGGARD_FP, NULL);
	pthread_create(&id, NULL, ender, &r);
	pthread_join(id, NULL);
	laggard_end_device(&s, 1, 1);
	laggard_begin(&s, LAGGARD_DATA_LOADER, NULL);
	laggard_begin(&r, LAGGARD_FP, NULL); /* stays open */
	laggard_end(&s);
	return 0;
}

/* ---- signal handlers ---- */

static volatile sig_atomic_t handled;
static uint16_t signal_text;

static void on_alarm(int sig) {
	(void)sig;
	one(LAGGARD_OTHER, signal_text, handled);
	laggard_attr a = LAGGARD_ATTR_INIT;
	a.text = signal_text;
	laggard_mark(LAGGARD_COMMUNICATION, &a, 1753000000000000000, handled);
	handled++;
}

/* signal N: records under a storm of signals until N have come */
int cmd_signal(char **v) {
	int n = atoi(v[0]);
	struct sigaction sa;
	int64_t i = 0;
	signal_text = laggard_intern("signal");
	uint16_t text = laggard_intern("main");
	memset(&sa, 0, sizeof sa);
	sa.sa_handler = on_alarm;
	sa.sa_flags = SA_RESTART;
	sigaction(SIGALRM, &sa, NULL);
	pid_t parent = getpid(), child = fork();
	if (child == 0) { /* a storm, from outside: it comes between any two instructions */
		for (;;)
			if (kill(parent, SIGALRM) != 0)
				_exit(0);
	}
	while (handled < n)
		one(LAGGARD_COMMUNICATION, text, i++);
	signal(SIGALRM, SIG_IGN);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	printf("%lld %d\n", (long long)i, (int)handled);
	return 0;
}

/* ---- SIGBUS that is not the recorder's ---- */

static void bus_handler(int sig, siginfo_t *info, void *context) {
	char text[32];
	int n = snprintf(text, sizeof text, "handled %d\n", info->si_code);
	(void)sig;
	(void)context;
	if (write(1, text, (size_t)n) < 0 || info->si_code == BUS_ADRERR)
		_exit(7);
}

/* bus WAY BEFORE: a SIGBUS by fault, sent by kill, or as the kernel tells early of a
 * broken page; before the recorder the program has default, ignored or handled it. */
int cmd_bus(char **v) {
	struct sigaction sa = {.sa_sigaction = bus_handler, .sa_flags = SA_SIGINFO};
	char path[] = "/tmp/laggard-bus-XXXXXX";
	if (strcmp(v[1], "handled") == 0)
		sigaction(SIGBUS, &sa, NULL);
	if (strcmp(v[1], "ignored") == 0)
		signal(SIGBUS, SIG_IGN);
	one(LAGGARD_FP, 0, 1);
	if (strcmp(v[0], "fault") == 0) {
		int fd = mkstemp(path);
		if (fd < 0 || unlink(path) != 0 || ftruncate(fd, 4096) != 0)
			die("file");
		volatile char *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (m == MAP_FAILED || ftruncate(fd, 0) != 0)
			die("map");
		*m = 1;
	} else if (strcmp(v[0], "sent") == 0) {
		kill(getpid(), SIGBUS);
	} else {
		siginfo_t info = {.si_signo = SIGBUS, .si_code = 5 /* BUS_MCEERR_AO */};
		info.si_addr = v; /* memory of the program */
		if (syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), SIGBUS, &info) != 0)
			die("rt_tgsigqueueinfo");
	}
	one(LAGGARD_FP, 0, 2);
	printf("went on, %s\n", laggard_error() ? laggard_error() : "no error");
	return 0;
}

/* orphans N HOW: N forked children record three ranges each and are killed; one after the
 * other, or when all have recorded (HOW is "together"). */
int cmd_orphans(char **v) {
	int n = atoi(v[0]), together = strcmp(v[1], "together") == 0, done[2];
	pid_t *pids = calloc((size_t)n, sizeof *pids);
	char c;
	if (!pids || pipe(done) != 0)
		die("pipe");
	for (int i = 0; i < n; i++) {
		if ((pids[i] = fork()) < 0)
			die("fork");
		if (pids[i] == 0) {
			for (int k = 0; k < 3; k++)
				one(LAGGARD_OTHER, laggard_intern("orphan"), 3 * i + k);
			if (write(done[1], "x", 1) != 1)
				_exit(1);
			pause();
		}
		if (!together) {
			if (read(done[0], &c, 1) != 1)
				die("read");
			kill(pids[i], SIGKILL);
			waitpid(pids[i], NULL, 0);
		}
	}
	for (int i = 0; together && i < n; i++)
		if (read(done[0], &c, 1) != 1)
			die("read");
	for (int i = 0; together && i < n; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	return 0;
}
