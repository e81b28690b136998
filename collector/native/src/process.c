/* process.c: what happens rarely: the folder, the switch, fork, the end.
 * Everything here may take a lock and call the system; nothing here fails the
 * program. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "crc.h"
#include "environment.h"
#include "failure.h"
#include "files.h"
#include "intern.h"
#include "process.h"
#include "rings.h"
#include "room.h"

/* As in process.h. */
#if defined(__GLIBC__) && defined(__x86_64__)
__asm__(".symver pthread_key_create, pthread_key_create@GLIBC_2.2.5");
#elif defined(__GLIBC__) && defined(__aarch64__)
__asm__(".symver pthread_key_create, pthread_key_create@GLIBC_2.17");
#endif
#pragma weak pthread_key_create

static _Atomic uint32_t unstarted_word = 0x14; /* no agent writes it, no thread follows it */
static _Atomic uint32_t off_word = 0;
_Atomic(_Atomic uint32_t *) laggard_poll = &unstarted_word;
_Atomic uint32_t laggard_quiet = UNKNOWN_WORD;

pthread_mutex_t laggard_lock = PTHREAD_MUTEX_INITIALIZER;
_Atomic int laggard_phase = UNSTARTED;
_Atomic(unsigned char *) laggard_mapping; /* mapped */
int laggard_folder = -1;
static int process_lock = -1;
int64_t laggard_used;
char laggard_name[17];
ring laggard_rings[MAX_RINGS] ALIGNED;
atomic_uint laggard_ring_count; /* of rings with memory; the array only grows */
static char run_dir[4096];
static uint32_t start_word = ALL_ON;
static uint32_t identity;
pthread_key_t laggard_exit_key;
int laggard_have_exit_key;

uint16_t laggard_intern(const char *s) {
	thread *t = &laggard_self;
	if (!s || !*s || t->busy)
		return 0;
	t->busy = 1;
	pthread_mutex_lock(&laggard_lock);
	uint16_t id = laggard_intern_locked(s, strlen(s));
	pthread_mutex_unlock(&laggard_lock);
	t->busy = 0;
	return id;
}

int laggard_set_meta(const char *json) {
	thread *t = &laggard_self;
	if (!json || t->busy)
		return -1;
	t->busy = 1;
	pthread_mutex_lock(&laggard_lock);
	uint16_t id = laggard_intern_locked(json, strlen(json));
	unsigned char *m = atomic_load(&laggard_mapping);
	if (id) {
		identity = id;
		if (m)
			atomic_store_explicit(p32(m, P_IDENTITY), id, memory_order_release);
	}
	pthread_mutex_unlock(&laggard_lock);
	t->busy = 0;
	return id ? 0 : -1;
}

int laggard_set_run_dir(const char *path) {
	int r = -1;
	pthread_mutex_lock(&laggard_lock);
	if (atomic_load(&laggard_phase) == UNSTARTED && path && strlen(path) < sizeof run_dir) {
		strcpy(run_dir, path);
		r = 0;
	}
	pthread_mutex_unlock(&laggard_lock);
	return r;
}

/* ---- the process folder ---- */

static void remove_fresh(int run, const char *fresh) {
	int dir = laggard_open_at(run, fresh, O_DIRECTORY | O_RDONLY, 0);
	if (dir < 0)
		return;
	unlinkat(dir, "process", 0);
	close(dir);
	unlinkat(run, fresh, AT_REMOVEDIR);
}

/* pid_namespace reads the inode out of "pid:[4026531836]". */
uint64_t laggard_pid_namespace(void) {
	char buf[64];
	ssize_t n = readlink("/proc/self/ns/pid", buf, sizeof buf - 1);
	uint64_t v = 0;
	for (ssize_t i = 0; i < n; i++)
		if (buf[i] >= '0' && buf[i] <= '9')
			v = v * 10 + (uint64_t)(buf[i] - '0');
	return v;
}

/* fill_process writes the constant fields and returns the incarnation. */
static void fill_process(unsigned char *m, uint64_t ticks, uint64_t incarnation, const char *boot) {
	struct timespec real, since;
	clock_gettime(CLOCK_REALTIME, &real);
	clock_gettime(CLOCK_BOOTTIME, &since);
	long hz = sysconf(_SC_CLK_TCK);
	int64_t started = ((int64_t)real.tv_sec - since.tv_sec) * 1000000000 + real.tv_nsec - since.tv_nsec +
			  (int64_t)ticks * (1000000000 / (hz > 0 ? hz : 100));
	memcpy(m, "LAGPROC1", 8);
	put32(m, P_VERSION, 1);
	put32(m, P_STRINGS_OFF, PROCESS_HEADER);
	put32(m, P_STRINGS_CAP, STRINGS_SIZE);
	put32(m, P_PID, (uint32_t)getpid());
	put64(m, P_TICKS, ticks);
	put64(m, P_STARTED, (uint64_t)started);
	put64(m, P_INCARNATION, incarnation);
	put64(m, P_NAMESPACE, laggard_pid_namespace());
	memcpy(m + P_BOOT_ID, boot, strlen(boot) < BOOT_ID_SIZE ? strlen(boot) : BOOT_ID_SIZE);
	put32(m, P_CHECKSUM, CRC32C_KIND);
	put32(m, P_STATE, LIVE);
	put32(m, P_IDENTITY, identity);
	put32(m, P_WANTED, start_word);
	put32(m, P_FOLLOWED, start_word);
	put64(m, P_FOLLOWED_AT, (uint64_t)started);
	laggard_copy_strings(m);
}

static COLD int create_locked(void) {
	char boot[64], number[32], fresh[40], *name = laggard_name;
	if (!run_dir[0]) {
		const char *d = getenv("LAGGARD_RUN");
		snprintf(run_dir, sizeof run_dir, "%s", d && *d ? d : "/dev/shm/laggard");
	}
	start_word = laggard_trace_word();
	if (!identity) {
		char json[4096];
		identity = laggard_intern_locked(json, laggard_default_identity(json, sizeof json));
	}
	boot[laggard_read_file("/proc/sys/kernel/random/boot_id", boot, sizeof boot)] = 0;
	boot[strcspn(boot, "\n")] = 0;
	uint64_t ticks = laggard_start_ticks(), h;
	if (!ticks)
		return laggard_fail_locked("can't read /proc/self/stat", 0), -1;
	h = laggard_hash_part(FNV_START, boot);
	snprintf(number, sizeof number, "%d", (int)getpid());
	h = laggard_hash_part(h, number);
	snprintf(number, sizeof number, "%llu", (unsigned long long)ticks);
	h = laggard_hash_part(h, number);
	snprintf(name, sizeof laggard_name, "%016llx", (unsigned long long)h);
	snprintf(fresh, sizeof fresh, ".%s.new", name);

	const char *what = run_dir;
	unsigned char *m = NULL;
	int dir = -1, held = -1, err, run = laggard_make_run_dir(run_dir);
	if (run < 0)
		return laggard_fail_locked(what, errno), -1;
	remove_fresh(run, fresh);
	what = "can't make a ring folder";
	if (mkdirat(run, fresh, 0770) != 0 || (dir = laggard_open_at(run, fresh, O_DIRECTORY | O_RDONLY, 0)) < 0 || laggard_set_dir_mode(dir, 0770) != 0)
		goto failed;
	what = "can't allocate shared memory";
	if (!(m = laggard_allocate(dir, "process", PROCESS_SIZE)))
		goto failed;
	what = "the rings of this user's processes fill their share of the run directory: is an agent draining it?";
	if (!laggard_room(run, name, 0, 1)) {
		errno = 0;
		goto failed;
	}
	/* A mapping keeps the open file it was made from, and that file's lock, alive in
	 * every child that inherits it: the lock is on an open file of its own. */
	what = "can't lock the ring folder";
	if ((held = laggard_open_at(dir, "process", O_RDWR, 0)) < 0 || flock(held, LOCK_EX | LOCK_NB) != 0)
		goto failed;
	fill_process(m, ticks, h, boot);
	what = "can't publish the ring folder";
	if (laggard_publish_name(run, fresh, name) != 0)
		goto failed;
	close(run);
	laggard_folder = dir;
	process_lock = held;
	laggard_used = PROCESS_SIZE;
	laggard_catch_bus();
	atomic_store(&laggard_mapping, m);
	atomic_store(&laggard_phase, READY);
	laggard_report_lost(m);
	atomic_store(&laggard_poll, p32(m, P_WANTED));
	return 0;
failed:
	err = errno;
	if (m)
		munmap(m, PROCESS_SIZE);
	if (held >= 0)
		close(held);
	if (dir >= 0)
		close(dir);
	remove_fresh(run, fresh);
	close(run);
	laggard_fail_locked(what, err);
	return -1;
}

/* follow makes the folder at the first range, and says that from now on this
 * process acts on the word that the agent wants. */
uint32_t laggard_follow(thread *t) {
	if (t->busy)
		return start_word; /* a signal handler during the very first range */
	t->busy = 1;
	pthread_mutex_lock(&laggard_lock);
	if (atomic_load(&laggard_phase) == UNSTARTED)
		create_locked();
	uint32_t w = atomic_load(atomic_load(&laggard_poll));
	unsigned char *m = atomic_load(&laggard_mapping);
	if (atomic_load(&laggard_phase) == READY && m && atomic_load(p32(m, P_FOLLOWED)) != w) {
		atomic_store(p64(m, P_FOLLOWED_AT), (uint64_t)(monotonic() + laggard_offset));
		atomic_store(p32(m, P_FOLLOWED), w);
	}
	t->followed = w;
	atomic_store(&laggard_quiet, w & (ALL_ON | FAILED_WORD) ? UNKNOWN_WORD : w);
	pthread_mutex_unlock(&laggard_lock);
	t->busy = 0;
	return w;
}

/* ---- life and death ---- */

/* before_fork waits until no other thread is in the middle of a string, a ring or the
 * folder: a child sees the stores of its parent's other threads in no order, and would
 * go on from half of one. A fork out of a signal handler that came while its own
 * thread was in here does not wait. */
static void before_fork(void) {
	thread *t = &laggard_self;
	if (t->busy)
		return;
	t->busy = 1;
	pthread_mutex_lock(&laggard_lock);
	t->forking = 1;
}

static void after_fork_in_parent(void) {
	thread *t = &laggard_self;
	if (!t->forking)
		return;
	t->forking = 0;
	pthread_mutex_unlock(&laggard_lock);
	t->busy = 0;
}

/* after_fork makes the child forget its parent's files: it makes its own at its
 * own first range. Ids stay valid, the strings are private. */
static void after_fork(void) {
	pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
	unsigned char *m = atomic_load(&laggard_mapping);
	laggard_epoch++;
	atomic_store(&laggard_poll, &unstarted_word);
	memcpy(&laggard_lock, &fresh, sizeof laggard_lock);
	for (unsigned i = 0, n = atomic_load(&laggard_ring_count); i < n; i++) {
		munmap(laggard_rings[i].mem, laggard_rings[i].size);
		memset(&laggard_rings[i], 0, sizeof laggard_rings[i]);
	}
	atomic_store(&laggard_ring_count, 0);
	if (m)
		munmap(m, PROCESS_SIZE);
	atomic_store(&laggard_mapping, NULL);
	if (process_lock >= 0)
		close(process_lock);
	if (laggard_folder >= 0)
		close(laggard_folder);
	process_lock = laggard_folder = -1;
	laggard_used = 0;
	atomic_store(&laggard_phase, UNSTARTED);
	laggard_forget_failure();
	memset(&laggard_self, 0, sizeof laggard_self);
	laggard_self.followed = UNKNOWN_WORD;
	if (laggard_have_exit_key)
		pthread_setspecific(laggard_exit_key, NULL);
}

__attribute__((constructor)) static void load(void) {
	laggard_crc_init();
	laggard_clock_init();
	if (pthread_key_create && pthread_setspecific)
		laggard_have_exit_key = pthread_key_create(&laggard_exit_key, laggard_leave_ring) == 0;
	pthread_atfork(before_fork, after_fork_in_parent, after_fork);
}

void laggard_close(void) {
	pthread_mutex_lock(&laggard_lock);
	unsigned char *m = atomic_load(&laggard_mapping);
	if (atomic_load(&laggard_phase) != OFF) {
		atomic_store(&laggard_phase, OFF);
		atomic_store(&laggard_poll, &off_word);
		if (m) {
			atomic_store(p32(m, P_STATE), CLOSED);
			close(process_lock); /* and with it the lock */
			close(laggard_folder);
			process_lock = laggard_folder = -1;
		}
	}
	pthread_mutex_unlock(&laggard_lock);
}

/* exit may have been called by a signal handler in the middle of our own work. */
__attribute__((destructor)) static void unload(void) {
	if (!laggard_self.busy)
		laggard_close();
}
