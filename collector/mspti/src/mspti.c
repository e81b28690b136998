/* mspti.c: our thread, which follows the switch, takes what libmspti has, and ends
 * with the process; and how it comes to be. */
#include "internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "laggard_mspti.h"
#include "mspti_abi.h"
#include "mspti_buffers.h"
#include "mspti_counters.h"
#include "mspti_load.h"
#include "mspti_old.h"
#include "mspti_pairs.h"
#include "mspti_walk.h"

/* Our thread looks every BUSY while buffers come: in that time a million markers a
 * second fill less than one. Else every POLL, which is how soon it follows the switch. */
static const int64_t BUSY = 5000000, POLL = 100000000, FLUSH = 1000000000, SECOND = 1000000000, GRACE = 2000000000;

enum { NOT_STARTED, RUNNING, OVER };
static _Atomic int phase;
static _Atomic int stopping, finished;
static _Atomic int at_once; /* do not wait for a runtime to be loaded */
static int exit_armed;

/* Held by our thread while it is in the loader, and by whoever forks. */
static pthread_mutex_t loader = PTHREAD_MUTEX_INITIALIZER;

/* Of our thread alone. */
static struct follower {
	mspti_api api;
	void *handle;
	int subscribed, enabled, communication; /* the last: -1 unknown */
	int ready;                              /* 1: callbacks are registered, -1: never will be */
	int64_t work_at, retry_at, flush_at, said_at, lost_at;
	uint64_t lost;
	int complained;
} us;

static int64_t now(void) {
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * SECOND + ts.tv_nsec;
}

/* ---- libmspti ---- */

/* loaded reports whether this process has what makes markers. */
static int loaded(void) {
	static const char *const makers[] = {"libms_tools_ext.so", "libascendcl.so"};
	int found = atomic_load(&at_once);
	pthread_mutex_lock(&loader);
	for (size_t i = 0; !found && i < sizeof makers / sizeof *makers; i++) {
		void *h = dlopen(makers[i], RTLD_LAZY | RTLD_NOLOAD);
		if (h) {
			found = 1;
			dlclose(h);
		}
	}
	pthread_mutex_unlock(&loader);
	return found;
}

/* What is registered while the trainer runs comes before every library's end, and so
 * before libmspti's. The destructor is for what was registered too early for that. It is
 * linked behind the recorder's and comes before it. */
static void at_exit(void) { laggard_mspti_stop(); }
__attribute__((destructor)) static void unload(void) { laggard_mspti_stop(); }

/* get_ready loads libmspti and gives it our callbacks. */
static void get_ready(void) {
	us.ready = -1;
	pthread_mutex_lock(&loader);
	void *library = mspti_open_library();
	if (library)
		mspti_resolve(library, &us.api);
	pthread_mutex_unlock(&loader);
	if (!library) {
		mspti_say("no libmspti here: nothing comes from the NPU");
		return;
	}
	if (!us.api.register_callbacks || !us.api.enable) {
		mspti_say("off");
		return;
	}
	if (mspti_pairs_make() || mspti_buffers_make((unsigned)mspti_env("LAGGARD_MSPTI_BUFFERS", 2, 100, 16))) {
		mspti_say("off: no memory");
		return;
	}
	mspti_buffers_open(1);
	int r = us.api.register_callbacks(mspti_on_request, mspti_on_complete);
	if (r != MSPTI_OK) {
		mspti_buffers_open(0);
		mspti_say("off: libmspti refuses our callbacks (%d)", r);
		return;
	}
	us.ready = 1;
	if (!exit_armed)
		exit_armed = atexit(at_exit) == 0;
}

static void ignore_callback(void *user, int domain, uint32_t id, const void *data) {
	(void)user;
	(void)domain;
	(void)id;
	(void)data;
}

static void later(int64_t at, const char *what, int r) {
	us.retry_at = at + mspti_env("LAGGARD_MSPTI_RETRY_MS", 1, 86400000, 30000) * 1000000;
	if (r == MSPTI_MULTIPLE_SUBSCRIBERS)
		count(&mspti_counted.refused, 1);
	if (us.complained != r + 1) {
		us.complained = r + 1;
		if (r == MSPTI_MULTIPLE_SUBSCRIBERS)
			mspti_say("off: somebody else uses libmspti (a full profiling is on?); tried again every %ld s",
			    mspti_env("LAGGARD_MSPTI_RETRY_MS", 1, 86400000, 30000) / 1000);
		else
			mspti_say("off: libmspti fails to %s (%d); tried again later", what, r);
	}
}

static void switch_on(int64_t at) {
	int r = MSPTI_OK;
	if (at < us.retry_at)
		return;
	if (!us.subscribed && us.api.subscribe)
		r = us.api.subscribe(&us.handle, ignore_callback, NULL);
	if (r != MSPTI_OK) {
		later(at, "subscribe", r);
		return;
	}
	us.subscribed = 1;
	if ((r = us.api.enable(ACTIVITY_MARKER)) != MSPTI_OK) {
		if (us.api.unsubscribe)
			us.api.unsubscribe(us.handle);
		us.subscribed = 0;
		later(at, "enable markers", r);
		return;
	}
	if (us.complained)
		mspti_say("on");
	us.complained = 0;
	us.enabled = 1;
	us.communication = -1;
}

static void flush(void) {
	if (us.api.flush_all)
		us.api.flush_all(1);
}

static void switch_off(void) {
	flush();
	if (us.api.disable)
		us.api.disable(ACTIVITY_MARKER);
	if (us.api.unsubscribe && us.subscribed)
		us.api.unsubscribe(us.handle);
	us.enabled = us.subscribed = 0;
}

/* follow brings libmspti to where the switch is. */
static void follow(int64_t at) {
	int light = laggard_is_on(LAGGARD_STEP), comm = laggard_is_on(LAGGARD_COMMUNICATION);
	mspti_pairs_switched();
	if (laggard_error())
		light = comm = 0; /* it has said why */
	if ((light || comm) && !us.enabled)
		switch_on(at);
	else if (!light && !comm && us.enabled)
		switch_off();
	if (us.enabled && us.communication != comm) {
		int (*f)(const char *) = comm ? us.api.enable_domain : us.api.disable_domain;
		if (f)
			f("communication");
		us.communication = comm;
	}
	atomic_store(&mspti_counted.on, us.enabled ? (uint32_t)(light | comm << 1) : 0);
}

/* ---- our thread ---- */

static int take(void) {
	uint8_t *buffer;
	size_t valid;
	int n, taken = 0;
	while ((n = mspti_buffers_take(&buffer, &valid)) >= 0) {
		mspti_walk(buffer, valid, us.api.next_record);
		mspti_buffers_return(n);
		taken++;
	}
	return taken;
}

/* tell_losses leaves a record of what came while all buffers were full. */
static void tell_losses(int64_t at) {
	uint64_t lost = atomic_load(&mspti_counted.dropped_markers);
	if (lost == us.lost)
		return;
	laggard_attr a = LAGGARD_ATTR_INIT;
	a.text = laggard_intern("mspti.dropped");
	a.value = (int64_t)(lost - us.lost);
	int64_t end = laggard_now();
	laggard_mark(LAGGARD_OTHER, &a, us.lost_at ? end - (at - us.lost_at) : end, us.lost_at ? at - us.lost_at : 0);
	if (at >= us.said_at) {
		mspti_say("%llu markers came while all buffers were full (LAGGARD_MSPTI_BUFFERS)", (unsigned long long)lost);
		us.said_at = at + 30 * SECOND;
	}
	us.lost = lost;
}

static void work(int64_t at) {
	follow(at);
	if (us.enabled && at >= us.flush_at) {
		us.flush_at = at + FLUSH;
		flush();
		take();
		mspti_pairs_expire(at, 1);
		tell_losses(at);
		us.lost_at = at;
	} else if (at >= us.flush_at) {
		us.flush_at = at + FLUSH;
		mspti_pairs_expire(at, 0);
	}
}

static void end_work(void) {
	if (us.ready == 1) {
		if (us.enabled)
			switch_off();
		take();
		mspti_buffers_open(0);
		mspti_pairs_expire(now(), 0);
		mspti_pairs_finish();
		tell_losses(now());
	}
}

static void *run(void *unused) {
	(void)unused;
	prctl(PR_SET_NAME, "laggard-mspti", 0, 0, 0);
	while (!atomic_load(&stopping)) {
		int64_t at = now(), nap = POLL;
		if (us.ready == 0 && loaded())
			get_ready();
		if (us.ready < 0)
			break;
		if (us.ready) {
			if (at >= us.work_at) {
				work(at);
				us.work_at = at + POLL;
			}
			if (take())
				nap = BUSY;
		}
		mspti_bell_wait(nap);
	}
	end_work();
	atomic_store(&finished, 1);
	return NULL;
}


/* after_fork: the child has no thread of ours, and its copy of libmspti gets no
 * buffers. */
static void before_fork(void) { pthread_mutex_lock(&loader); }
static void parent_forked(void) { pthread_mutex_unlock(&loader); }
static void child_forked(void) {
	pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
	memcpy(&loader, &fresh, sizeof loader);
	if (atomic_load(&phase) == NOT_STARTED)
		return;
	mspti_buffers_forget();
	mspti_pairs_forget();
	memset(&us, 0, sizeof us);
	memset(&mspti_counted, 0, sizeof mspti_counted);
	atomic_store(&stopping, 0);
	atomic_store(&finished, 0);
	atomic_store(&phase, NOT_STARTED);
}

static int begin(void) {
	int was = NOT_STARTED;
	if (!pthread_create || !dlopen || !dlsym || !dlclose)
		return -1;
	if (!atomic_compare_exchange_strong(&phase, &was, RUNNING))
		return was == RUNNING ? 0 : -1;
	pthread_attr_t detached;
	pthread_t thread;
	sigset_t all, before;
	sigfillset(&all); /* signals are the trainer's; faults of our own must come here */
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGILL);
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	sigprocmask(SIG_SETMASK, &all, &before);
	int r = pthread_create(&thread, &detached, run, NULL);
	sigprocmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&detached);
	if (r != 0) {
		atomic_store(&phase, NOT_STARTED);
		mspti_say("off: no thread: %s", strerror(r));
		return -1;
	}
	return 0;
}

int laggard_mspti_start(void) {
	atomic_store(&at_once, 1); /* whoever calls knows that this process trains */
	return begin();
}

void laggard_mspti_stop(void) {
	int was = RUNNING;
	if (!atomic_compare_exchange_strong(&phase, &was, OVER))
		return;
	atomic_store(&stopping, 1);
	mspti_bell_ring();
	struct timespec nap = {0, 200000};
	for (int64_t end = now() + GRACE; !atomic_load(&finished) && now() < end;)
		nanosleep(&nap, NULL);
}

/* word returns the switch word in the ring folder, NULL where there is none. */
static _Atomic uint32_t *word(void) {
	laggard_is_on(LAGGARD_STEP); /* makes the folder */
	if (laggard_error() || atomic_load(&phase) == OVER)
		return NULL;
	return atomic_load(&laggard_poll);
}

int laggard_mspti_want(uint32_t bits) {
	_Atomic uint32_t *p = word();
	if (!p)
		return -1;
	uint32_t old = atomic_load(p);
	while ((old & ALL_ON) != (bits & ALL_ON) &&
	       !atomic_compare_exchange_weak(p, &old, ((old >> 8) + 1) << 8 | (bits & ALL_ON)))
		;
	mspti_bell_ring();
	return 0;
}

uint32_t laggard_mspti_wanted(void) {
	_Atomic uint32_t *p = word();
	return p ? atomic_load(p) : 0xFFFFFFFFu;
}

void laggard_mspti_count(laggard_mspti_counts *out) {
	mspti_counters *c = &mspti_counted;
	*out = (laggard_mspti_counts){c->markers, c->activities, c->records, c->unmatched, c->unknown,
				      c->dropped_markers, c->dropped_buffers, c->buffers, c->refused, c->on, c->waiting};
}

/* a_rank reports whether the environment says that this process trains. */
static int a_rank(void) {
	const char *role = getenv("MS_ROLE");
	return (getenv("RANK") && getenv("LOCAL_RANK")) || (role && strcmp(role, "MS_WORKER") == 0);
}

__attribute__((constructor)) static void load(void) {
	const char *want = getenv("LAGGARD_MSPTI");
	pthread_atfork(before_fork, parent_forked, child_forked);
	if (want && strcmp(want, "off") == 0)
		return;
	if (want && strcmp(want, "on") == 0)
		laggard_mspti_start();
	else if (a_rank())
		begin();
}
