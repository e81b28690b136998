/* failure.c: what could not be recorded, and why: counts, the reason, and the signal of
 * a ring that somebody truncated. */
#include "failure.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "process.h"

static _Atomic uint32_t failed_word = FAILED_WORD;
static const char *_Atomic failure;
static char failure_text[512];
static _Atomic uint64_t lost[KINDS], unreported[KINDS];

void laggard_lose(int kind) {
	if (kind < 0 || kind >= KINDS)
		kind = LAGGARD_OTHER;
	atomic_fetch_add(&lost[kind], 1);
	atomic_fetch_add(&unreported[kind], 1);
	unsigned char *m = atomic_load(&laggard_mapping);
	if (m && atomic_load(&laggard_phase) == READY)
		atomic_fetch_add(p64(m, P_LOST + 8 * kind), atomic_exchange(&unreported[kind], 0));
}

void laggard_report_lost(unsigned char *m) {
	for (int k = 0; k < KINDS; k++)
		atomic_fetch_add(p64(m, P_LOST + 8 * k), atomic_exchange(&unreported[k], 0));
}

uint64_t laggard_lost(int kind) { return kind >= 0 && kind < KINDS ? atomic_load(&lost[kind]) : 0; }

const char *laggard_error(void) { return atomic_load(&failure); }

void laggard_forget_failure(void) {
	atomic_store(&failure, NULL);
	for (int k = 0; k < KINDS; k++) {
		atomic_store(&lost[k], 0);
		atomic_store(&unreported[k], 0);
	}
}

/* laggard_fail_locked turns recording off for good and says why, once. */
COLD void laggard_fail_locked(const char *what, int err) {
	if (atomic_load(&laggard_phase) == OFF)
		return;
	atomic_store(&laggard_phase, OFF);
	atomic_store(&laggard_poll, &failed_word);
	int n = snprintf(failure_text, sizeof failure_text, "laggard: records nothing in process %d; it goes on: %s%s%s\n",
			 (int)getpid(), what, err ? ": " : "", err ? strerror(err) : "");
	if (n >= (int)sizeof failure_text) {
		n = (int)sizeof failure_text - 1;
		failure_text[n - 1] = '\n';
	}
	if (n > 0) {
		ssize_t ignored = write(STDERR_FILENO, failure_text, (size_t)n);
		(void)ignored;
		failure_text[n - 1] = 0;
	}
	atomic_store(&failure, failure_text);
}

/* ---- SIGBUS: somebody truncated a ring under us ---- */

static struct sigaction old_bus;
static int have_bus;

/* ours puts private memory in the place of a mapping of ours that lost its file. The
 * faulting store is then done again, into nothing. */
static int ours(siginfo_t *info) {
	if (!info || info->si_code <= 0) /* somebody sent it: there is no address */
		return 0;
	unsigned char *at = info->si_addr, *m = atomic_load(&laggard_mapping);
	size_t size = 0;
	if (m && at >= m && at < m + PROCESS_SIZE)
		size = PROCESS_SIZE;
	for (unsigned i = 0, n = atomic_load(&laggard_ring_count); !size && i < n; i++) {
		m = laggard_rings[i].mem;
		if (m && at >= m && at < m + laggard_rings[i].size)
			size = laggard_rings[i].size;
	}
	if (!size || mmap(m, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != m)
		return 0;
	if (atomic_exchange(&laggard_phase, OFF) != OFF) {
		static const char said[] = "laggard: records nothing any more: a ring was truncated\n";
		ssize_t ignored = write(STDERR_FILENO, said, sizeof said - 1);
		(void)ignored;
		atomic_store(&failure, "a ring was truncated");
		atomic_store(&laggard_poll, &failed_word);
	}
	return 1;
}

/* pass_on does what would have been done without us. A fault comes again when its
 * instruction is done again; a signal that was sent, or that tells of memory which nobody
 * has touched yet, does not: it is raised anew, and comes when we return. */
static void pass_on(int sig, siginfo_t *info, void *context) {
	int sync = info && info->si_code > 0;
#ifdef BUS_MCEERR_AO
	sync = sync && info->si_code != BUS_MCEERR_AO;
#endif
	struct sigaction old = old_bus;
	if (!(old.sa_flags & SA_SIGINFO) && old.sa_handler == SIG_IGN) {
		if (!sync)
			return;
		old.sa_handler = SIG_DFL; /* what the kernel does with an ignored fault */
	}
	if (!(old.sa_flags & SA_SIGINFO) && old.sa_handler == SIG_DFL) {
		sigaction(SIGBUS, &old, NULL);
		if (!sync && (!info || syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), sig, info) != 0))
			raise(sig);
		return;
	}
	sigset_t before;
	if (old.sa_flags & (int)SA_RESETHAND)
		old_bus.sa_handler = SIG_DFL, old_bus.sa_flags = 0;
	sigprocmask(SIG_BLOCK, &old.sa_mask, &before);
	if (old.sa_flags & SA_SIGINFO)
		old.sa_sigaction(sig, info, context);
	else
		old.sa_handler(sig);
	sigprocmask(SIG_SETMASK, &before, NULL);
}

static void on_bus(int sig, siginfo_t *info, void *context) {
	int saved = errno;
	if (!ours(info))
		pass_on(sig, info, context);
	errno = saved;
}

void laggard_catch_bus(void) {
	const char *want = getenv("LAGGARD_SIGBUS");
	struct sigaction sa;
	if (have_bus || (want && strcmp(want, "0") == 0))
		return;
	memset(&sa, 0, sizeof sa);
	sa.sa_sigaction = on_bus;
	sa.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
	sigemptyset(&sa.sa_mask);
	have_bus = sigaction(SIGBUS, &sa, &old_bus) == 0;
}
