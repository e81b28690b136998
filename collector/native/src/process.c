/* process.c: what happens rarely: the folder and its rings, strings, the switch,
 * fork, the end. Everything here may take a lock and call the system; nothing here
 * fails the program. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"

/* Bind to what a C library of 2012 has as well. */
#if defined(__x86_64__)
#define OLD_GLIBC "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define OLD_GLIBC "GLIBC_2.17"
#endif
#if defined(OLD_GLIBC) && defined(__GLIBC__)
__asm__(".symver pthread_key_create, pthread_key_create@" OLD_GLIBC);
__asm__(".symver pthread_setspecific, pthread_setspecific@" OLD_GLIBC);
#endif
/* A program without threads may not have them. */
#pragma weak pthread_key_create
#pragma weak pthread_setspecific

enum { UNSTARTED, READY, OFF };
enum { RETRY_NS = 1000000000 };

static _Atomic uint32_t unstarted_word = 0x14; /* no agent writes it, no thread follows it */
static _Atomic uint32_t failed_word = FAILED_WORD, off_word = 0;
_Atomic(_Atomic uint32_t *) laggard_poll = &unstarted_word;
_Atomic uint32_t laggard_quiet = UNKNOWN_WORD;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int phase = UNSTARTED;
static _Atomic(unsigned char *) process; /* mapped */
static int folder = -1, process_lock = -1;
static int64_t used;
static ring rings[MAX_RINGS];
static atomic_uint ring_count; /* of rings with memory; the array only grows */
static char run_dir[4096];
static uint32_t start_word = ALL_ON;
static uint32_t identity;
static const char *_Atomic failure;
static char failure_text[512];
static pthread_key_t exit_key;
static int have_exit_key;
static _Atomic uint64_t lost[KINDS], unreported[KINDS];

/* ---- strings: their image is private until the folder exists ---- */

static unsigned char image[STRINGS_SIZE];
static uint32_t image_used, string_count, strings_refused;
static uint32_t string_at[65536];
static uint16_t string_index[131072];

static _Atomic uint32_t *p32(unsigned char *m, int at) { return (_Atomic uint32_t *)(void *)(m + at); }
static _Atomic uint64_t *p64(unsigned char *m, int at) { return (_Atomic uint64_t *)(void *)(m + at); }

static uint64_t fnv(uint64_t h, const void *p, size_t n) {
	const unsigned char *b = p;
	while (n--)
		h = (h ^ *b++) * 0x100000001b3u;
	return h;
}
#define FNV_START 0xcbf29ce484222325u

static uint16_t intern_locked(const char *s, size_t n) {
	uint32_t i = (uint32_t)fnv(FNV_START, s, n) & 131071u;
	for (; string_index[i]; i = (i + 1) & 131071u) {
		const unsigned char *e = image + string_at[string_index[i]];
		uint32_t len;
		memcpy(&len, e, 4);
		if (len == n && memcmp(e + 8, s, n) == 0)
			return string_index[i];
	}
	unsigned char *m = atomic_load(&process);
	if (n > STRINGS_SIZE - 16 || string_count >= 65535 || image_used + 8 + ((n + 7) & ~(size_t)7) > STRINGS_SIZE) {
		strings_refused++;
		if (m)
			atomic_store(p64(m, P_LOST_STRINGS), strings_refused);
		return 0;
	}
	uint32_t at = image_used, len = (uint32_t)n, crc = laggard_crc_table(s, n);
	uint32_t size = 8 + ((len + 7) & ~7u);
	memcpy(image + at, &len, 4);
	memcpy(image + at + 4, &crc, 4);
	memcpy(image + at + 8, s, n);
	string_at[++string_count] = at;
	image_used = at + size;
	string_index[i] = (uint16_t)string_count;
	if (m) {
		memcpy(m + PROCESS_HEADER + at, image + at, size);
		atomic_store_explicit(p32(m, P_STRINGS_USED), image_used, memory_order_release);
	}
	return (uint16_t)string_count;
}

uint16_t laggard_intern(const char *s) {
	thread *t = &laggard_self;
	if (!s || !*s || t->busy)
		return 0;
	t->busy = 1;
	pthread_mutex_lock(&lock);
	uint16_t id = intern_locked(s, strlen(s));
	pthread_mutex_unlock(&lock);
	t->busy = 0;
	return id;
}

int laggard_set_meta(const char *json) {
	thread *t = &laggard_self;
	if (!json || t->busy)
		return -1;
	t->busy = 1;
	pthread_mutex_lock(&lock);
	uint16_t id = intern_locked(json, strlen(json));
	unsigned char *m = atomic_load(&process);
	if (id) {
		identity = id;
		if (m)
			atomic_store_explicit(p32(m, P_IDENTITY), id, memory_order_release);
	}
	pthread_mutex_unlock(&lock);
	t->busy = 0;
	return id ? 0 : -1;
}

int laggard_set_run_dir(const char *path) {
	int r = -1;
	pthread_mutex_lock(&lock);
	if (atomic_load(&phase) == UNSTARTED && path && strlen(path) < sizeof run_dir) {
		strcpy(run_dir, path);
		r = 0;
	}
	pthread_mutex_unlock(&lock);
	return r;
}

/* ---- losses ---- */

void laggard_lose(int kind) {
	if (kind < 0 || kind >= KINDS)
		kind = LAGGARD_OTHER;
	atomic_fetch_add(&lost[kind], 1);
	atomic_fetch_add(&unreported[kind], 1);
	unsigned char *m = atomic_load(&process);
	if (m && atomic_load(&phase) == READY)
		atomic_fetch_add(p64(m, P_LOST + 8 * kind), atomic_exchange(&unreported[kind], 0));
}

uint64_t laggard_lost(int kind) { return kind >= 0 && kind < KINDS ? atomic_load(&lost[kind]) : 0; }

const char *laggard_error(void) { return atomic_load(&failure); }

/* fail_locked turns recording off for good and says why, once. */
static COLD void fail_locked(const char *what, int err) {
	if (atomic_load(&phase) == OFF)
		return;
	atomic_store(&phase, OFF);
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

/* on_bus puts private memory in the place of a mapping that lost its file. The
 * faulting store is then done again, into nothing. */
static void on_bus(int sig, siginfo_t *info, void *context) {
	int saved = errno;
	unsigned char *at = info ? info->si_addr : NULL, *m = atomic_load(&process);
	size_t size = 0;
	if (m && at >= m && at < m + PROCESS_SIZE)
		size = PROCESS_SIZE;
	for (unsigned i = 0, n = atomic_load(&ring_count); !size && i < n; i++) {
		m = rings[i].mem;
		if (m && at >= m && at < m + rings[i].size)
			size = rings[i].size;
	}
	if (size && mmap(m, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == m) {
		static const char said[] = "laggard: records nothing any more: a ring was truncated\n";
		if (atomic_exchange(&phase, OFF) != OFF) {
			ssize_t ignored = write(STDERR_FILENO, said, sizeof said - 1);
			(void)ignored;
			atomic_store(&failure, "a ring was truncated");
			atomic_store(&laggard_poll, &failed_word);
		}
		errno = saved;
		return;
	}
	if (old_bus.sa_flags & SA_SIGINFO && old_bus.sa_sigaction)
		old_bus.sa_sigaction(sig, info, context);
	else if (old_bus.sa_handler != SIG_DFL && old_bus.sa_handler != SIG_IGN)
		old_bus.sa_handler(sig);
	else
		sigaction(SIGBUS, &old_bus, NULL); /* the fault comes again and does what it did without us */
	errno = saved;
}

static void catch_bus(void) {
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

/* ---- files ---- */

static int open_at(int dir, const char *name, int flags, mode_t mode) {
	int fd;
	do
		fd = openat(dir, name, flags | O_NOFOLLOW | O_CLOEXEC, mode);
	while (fd < 0 && errno == EINTR);
	return fd;
}

/* allocate makes a file of zeros with every page in place, and maps it: a tmpfs
 * that fills up later can't raise SIGBUS. NULL and errno on failure. */
static unsigned char *allocate(int dir, const char *name, size_t size) {
	struct rlimit limit;
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < size) {
		errno = EFBIG; /* asking the kernel would raise SIGXFSZ */
		return NULL;
	}
	int fd = open_at(dir, name, O_CREAT | O_EXCL | O_RDWR, 0660);
	if (fd < 0)
		return NULL;
	int err = fchmod(fd, 0660) ? errno : 0;
	unsigned char *m = MAP_FAILED;
	while (!err && (err = posix_fallocate(fd, 0, (off_t)size)) == EINTR)
		err = 0;
	if (!err) {
		m = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (m == MAP_FAILED)
			err = errno;
	}
	close(fd);
	if (err) {
		unlinkat(dir, name, 0);
		errno = err;
		return NULL;
	}
	for (size_t i = 0; i < size; i += 4096)
		*(volatile unsigned char *)(m + i) = 0;
	return m;
}

/* publish_name renames to a name that must not exist. */
static int publish_name(int dir, const char *from, const char *to) {
#ifdef SYS_renameat2
	if (syscall(SYS_renameat2, dir, from, dir, to, 1u /* RENAME_NOREPLACE */) == 0)
		return 0;
	if (errno != ENOSYS && errno != EINVAL)
		return -1;
#endif
	return renameat(dir, from, dir, to);
}

static size_t read_file(const char *path, char *buf, size_t size) {
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, buf, size - 1);
	if (fd >= 0)
		close(fd);
	if (n < 0)
		n = 0;
	buf[n] = 0;
	return (size_t)n;
}

/* start_ticks reads field 22 of /proc/self/stat. */
static uint64_t start_ticks(void) {
	char buf[1024], *p;
	uint64_t v = 0;
	read_file("/proc/self/stat", buf, sizeof buf);
	p = strrchr(buf, ')'); /* the command before it may hold anything */
	for (int field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	if (!p)
		return 0;
	for (p++; *p >= '0' && *p <= '9'; p++)
		v = v * 10 + (uint64_t)(*p - '0');
	return v;
}

static uint64_t hash_part(uint64_t h, const char *s) {
	uint64_t n = strlen(s);
	return fnv(fnv(h, &n, 8), s, n);
}

/* make_run_dir opens the run directory and makes it when it is missing. */
static int make_run_dir(void) {
	for (char *p = run_dir + 1; (p = strchr(p, '/')); p++) {
		*p = 0;
		mkdir(run_dir, 0755);
		*p = '/';
	}
	if (mkdir(run_dir, 0777) == 0)
		(void)!chmod(run_dir, 01777);
	return open_at(AT_FDCWD, run_dir, O_DIRECTORY | O_RDONLY, 0);
}

/* ---- identity from the environment ---- */

/* append_json adds "key":"value" with what JSON must have escaped. */
static size_t append_json(char *dst, size_t at, size_t size, const char *key, const char *value) {
	if (!value || !*value)
		return at;
	size_t i = at + (size_t)snprintf(dst + at, size - at, "\"%s\":\"", key);
	for (; *value; value++) {
		unsigned char c = (unsigned char)*value;
		if (i + 16 > size)
			return at;
		if (c == '"' || c == '\\')
			dst[i++] = '\\';
		if (c < 0x20)
			i += (size_t)snprintf(dst + i, 7, "\\u%04x", c);
		else
			dst[i++] = (char)c;
	}
	return i + (size_t)snprintf(dst + i, size - i, "\",");
}

static long env_number(const char *name, long absent) {
	const char *s = getenv(name);
	long v = 0;
	if (!s || !*s)
		return absent;
	for (; *s; s++) {
		if (*s < '0' || *s > '9' || v > 100000000)
			return absent;
		v = v * 10 + (*s - '0');
	}
	return v;
}

static void default_identity(void) {
	char json[4096];
	const char *job = getenv("MINDX_TASK_ID");
	int ranked = getenv("LOCAL_RANK") != NULL; /* RANK alone says little */
	size_t n = 1;
	if (!job || !*job)
		job = getenv("LAGGARD_JOB");
	json[0] = '{';
	n = append_json(json, n, 3072, "job", job);
	n = append_json(json, n, 3072, "node", getenv("NODE_NAME"));
	n = append_json(json, n, 3072, "pod", getenv("POD_NAME"));
	n += (size_t)snprintf(json + n, sizeof json - n, "\"rank\":%ld,\"local_rank\":%ld,\"world_size\":%ld,\"writer\":\"c/1\"}",
			      ranked ? env_number("RANK", 0) : 0, ranked ? env_number("LOCAL_RANK", 0) : 0,
			      ranked ? env_number("WORLD_SIZE", 1) : 1);
	identity = intern_locked(json, n);
}

/* ---- the switch at start ---- */

static int same_word(const char *a, size_t n, const char *b) {
	for (size_t i = 0; i < n; i++)
		if (!b[i] || ((unsigned char)a[i] | 32) != ((unsigned char)b[i] | 32))
			return 0;
	return b[n] == 0;
}

/* trace_word reads LAGGARD_TRACE as collector/trace documents it. A typo must not
 * turn the recording off. */
static uint32_t trace_word(void) {
	static const char *const light[] = {"Step", "FP", "SaveCheckpoint", "DataLoader"};
	const char *s = getenv("LAGGARD_TRACE");
	uint32_t w = 0;
	if (!s || !*s)
		return ALL_ON;
	int alone = strchr(s, ',') == NULL;
	for (;;) {
		while (*s == ' ')
			s++;
		size_t n = strcspn(s, ","), k = n;
		int known = 0;
		while (k && s[k - 1] == ' ')
			k--;
		if (same_word(s, k, "on") || same_word(s, k, "CommunicationOperator") || same_word(s, k, "Communication")) {
			w = ALL_ON;
			known = 1;
		}
		for (int i = 0; i < 4; i++)
			if (same_word(s, k, light[i])) {
				w |= LIGHT_ON;
				known = 1;
			}
		if (!known && !(alone && same_word(s, k, "off"))) {
			dprintf(STDERR_FILENO, "laggard: LAGGARD_TRACE: \"%.*s\" is none of on, off, CommunicationOperator, Step, SaveCheckpoint, FP, DataLoader: all is on\n", (int)k, s);
			return ALL_ON;
		}
		if (!s[n])
			return w;
		s += n + 1;
	}
}

/* ---- the process folder ---- */

static void remove_fresh(int run, const char *fresh) {
	int dir = open_at(run, fresh, O_DIRECTORY | O_RDONLY, 0);
	if (dir < 0)
		return;
	unlinkat(dir, "process", 0);
	close(dir);
	unlinkat(run, fresh, AT_REMOVEDIR);
}

static void put32(unsigned char *m, int at, uint32_t v) { memcpy(m + at, &v, 4); }
static void put64(unsigned char *m, int at, uint64_t v) { memcpy(m + at, &v, 8); }

/* pid_namespace reads the inode out of "pid:[4026531836]". */
static uint64_t pid_namespace(void) {
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
	put64(m, P_NAMESPACE, pid_namespace());
	memcpy(m + P_BOOT_ID, boot, strlen(boot) < BOOT_ID_SIZE ? strlen(boot) : BOOT_ID_SIZE);
	put32(m, P_CHECKSUM, CRC32C_KIND);
	put32(m, P_STATE, LIVE);
	put32(m, P_IDENTITY, identity);
	put32(m, P_WANTED, start_word);
	put32(m, P_FOLLOWED, start_word);
	put64(m, P_FOLLOWED_AT, (uint64_t)started);
	memcpy(m + PROCESS_HEADER, image, image_used);
	put64(m, P_LOST_STRINGS, strings_refused);
	put32(m, P_STRINGS_USED, image_used);
}

static COLD int create_locked(void) {
	char boot[64], number[32], name[32], fresh[40];
	if (!run_dir[0]) {
		const char *d = getenv("LAGGARD_RUN");
		snprintf(run_dir, sizeof run_dir, "%s", d && *d ? d : "/dev/shm/laggard");
	}
	start_word = trace_word();
	if (!identity)
		default_identity();
	boot[read_file("/proc/sys/kernel/random/boot_id", boot, sizeof boot)] = 0;
	boot[strcspn(boot, "\n")] = 0;
	uint64_t ticks = start_ticks(), h;
	if (!ticks)
		return fail_locked("can't read /proc/self/stat", 0), -1;
	h = hash_part(FNV_START, boot);
	snprintf(number, sizeof number, "%d", (int)getpid());
	h = hash_part(h, number);
	snprintf(number, sizeof number, "%llu", (unsigned long long)ticks);
	h = hash_part(h, number);
	snprintf(name, sizeof name, "%016llx", (unsigned long long)h);
	snprintf(fresh, sizeof fresh, ".%s.new", name);

	const char *what = run_dir;
	unsigned char *m = NULL;
	int dir = -1, held = -1, err, run = make_run_dir();
	if (run < 0)
		return fail_locked(what, errno), -1;
	remove_fresh(run, fresh);
	what = "can't make a ring folder";
	if (mkdirat(run, fresh, 0770) != 0 || (dir = open_at(run, fresh, O_DIRECTORY | O_RDONLY, 0)) < 0 || fchmod(dir, 0770) != 0)
		goto failed;
	what = "can't allocate shared memory";
	if (!(m = allocate(dir, "process", PROCESS_SIZE)))
		goto failed;
	/* A mapping keeps the open file it was made from, and that file's lock, alive in
	 * every child that inherits it: the lock is on an open file of its own. */
	what = "can't lock the ring folder";
	if ((held = open_at(dir, "process", O_RDWR, 0)) < 0 || flock(held, LOCK_EX | LOCK_NB) != 0)
		goto failed;
	fill_process(m, ticks, h, boot);
	what = "can't publish the ring folder";
	if (publish_name(run, fresh, name) != 0)
		goto failed;
	close(run);
	folder = dir;
	process_lock = held;
	used = PROCESS_SIZE;
	catch_bus();
	atomic_store(&process, m);
	atomic_store(&phase, READY);
	for (int k = 0; k < KINDS; k++)
		atomic_fetch_add(p64(m, P_LOST + 8 * k), atomic_exchange(&unreported[k], 0));
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
	fail_locked(what, err);
	return -1;
}

/* follow makes the folder at the first range, and says that from now on this
 * process acts on the word that the agent wants. */
uint32_t laggard_follow(thread *t) {
	if (t->busy)
		return start_word; /* a signal handler during the very first range */
	t->busy = 1;
	pthread_mutex_lock(&lock);
	if (atomic_load(&phase) == UNSTARTED)
		create_locked();
	uint32_t w = atomic_load(atomic_load(&laggard_poll));
	unsigned char *m = atomic_load(&process);
	if (atomic_load(&phase) == READY && m && atomic_load(p32(m, P_FOLLOWED)) != w) {
		atomic_store(p64(m, P_FOLLOWED_AT), (uint64_t)(monotonic() + laggard_offset));
		atomic_store(p32(m, P_FOLLOWED), w);
	}
	t->followed = w;
	atomic_store(&laggard_quiet, w & (ALL_ON | FAILED_WORD) ? UNKNOWN_WORD : w);
	pthread_mutex_unlock(&lock);
	t->busy = 0;
	return w;
}

/* ---- rings ---- */

static size_t file_size(uint32_t light, uint32_t bulk) { return RING_HEADER + (size_t)SLOT_SIZE * (light + (size_t)bulk); }

/* fit gives the n-th ring (from 1) its slots out of what is left of the budget. */
static int fit(unsigned n, int64_t left, uint32_t *light, uint32_t *bulk) {
	int64_t room = n > FULL_RINGS ? left / 2 : left;
	*light = LIGHT_SLOTS;
	*bulk = BULK_SLOTS;
	while ((int64_t)file_size(*light, *bulk) > room && *bulk > MIN_SLOTS) {
		*bulk /= 2;
		*light = *bulk / (BULK_SLOTS / LIGHT_SLOTS);
		if (*light < MIN_SLOTS)
			*light = MIN_SLOTS;
	}
	return (int64_t)file_size(*light, *bulk) <= left;
}

static lane make_lane(unsigned char *m, size_t slots, uint32_t n, int head, int tail) {
	lane l = {0, 0, n - 1, (uint64_t *)(void *)(m + slots), p64(m, head), p64(m, tail)};
	return l;
}

static ring *make_ring_locked(void) {
	unsigned i = atomic_load(&ring_count), n = i + 1;
	uint32_t light, bulk;
	char name[32], fresh[40];
	if (i >= MAX_RINGS || !fit(n, BUDGET - used, &light, &bulk))
		return NULL;
	size_t size = file_size(light, bulk);
	snprintf(name, sizeof name, "ring-%u", n);
	snprintf(fresh, sizeof fresh, ".%s.new", name);
	unsigned char *m = allocate(folder, fresh, size);
	if (!m)
		return NULL;
	memcpy(m, "LAGRING1", 8);
	put32(m, R_VERSION, 1);
	put32(m, R_HEADER_SIZE, RING_HEADER);
	put32(m, R_CHECKSUM, CRC32C_KIND);
	put32(m, R_NUMBER, n);
	put32(m, R_LIGHT_SLOTS, light);
	put32(m, R_BULK_SLOTS, bulk);
	put32(m, R_STATE, LIVE);
	if (publish_name(folder, fresh, name) != 0) {
		munmap(m, size);
		unlinkat(folder, fresh, 0);
		return NULL;
	}
	ring *g = &rings[i];
	g->size = size;
	g->mem = m;
	g->lanes[0] = make_lane(m, RING_HEADER, light, R_LIGHT_HEAD, R_LIGHT_TAIL);
	g->lanes[1] = make_lane(m, RING_HEADER + (size_t)SLOT_SIZE * light, bulk, R_BULK_HEAD, R_BULK_TAIL);
	used += (int64_t)size;
	atomic_store(&ring_count, n);
	atomic_store(p32(atomic_load(&process), P_RINGS), n);
	return g;
}

/* room returns the free slots of the fuller lane, and whether both are drained. */
static uint64_t room(ring *g, int *drained) {
	uint64_t least = UINT64_MAX;
	*drained = 1;
	for (int i = 0; i < 2; i++) {
		lane *l = &g->lanes[i];
		uint64_t tail = atomic_load_explicit(l->tailp, memory_order_acquire);
		if (tail > l->tail)
			l->tail = tail;
		uint64_t full = l->head - l->tail, slots = l->mask + 1;
		uint64_t left = full < slots ? slots - full : 0;
		*drained = *drained && full == 0;
		least = left < least ? left : least;
	}
	return least;
}

/* left_ring finds a ring whose thread has ended and that is drained, else the one
 * with the most room. */
static ring *left_ring(int *drained) {
	ring *best = NULL;
	uint64_t most = 0;
	*drained = 0;
	for (unsigned i = 0, n = atomic_load(&ring_count); i < n; i++) {
		ring *g = &rings[i];
		int empty;
		if (atomic_load_explicit(&g->live, memory_order_acquire))
			continue;
		uint64_t r = room(g, &empty);
		if (empty) {
			*drained = 1;
			return g;
		}
		if (r > most) {
			most = r;
			best = g;
		}
	}
	return best;
}

/* get_ring gives the thread one that another left, or a new one. A ring that is
 * handed on before it was drained says thread 0: the agent could not tell whose
 * slots it holds. */
ring *laggard_get_ring(thread *t, int64_t now) {
	uint64_t tid = (uint64_t)syscall(SYS_gettid);
	int drained;
	ring *g = NULL;
	if (now < t->retry_at)
		return NULL;
	pthread_mutex_lock(&lock);
	if (atomic_load(&phase) == READY) {
		ring *left = left_ring(&drained);
		if (drained) {
			g = left;
		} else if (!left || atomic_load(&ring_count) < FULL_RINGS) {
			g = make_ring_locked();
		}
		if (!g && left) {
			g = left;
			tid = 0;
		}
	}
	if (g) {
		g->depth = 0;
		atomic_store(p64(g->mem, R_THREAD), tid);
		atomic_store(p32(g->mem, R_STATE), LIVE);
		atomic_store(&g->live, 1);
		t->ring = g;
		if (have_exit_key)
			pthread_setspecific(exit_key, g);
	} else {
		t->retry_at = now + RETRY_NS;
	}
	pthread_mutex_unlock(&lock);
	return g;
}

/* on_exit gives a thread's ring back. */
static void on_exit_thread(void *p) {
	ring *g = p;
	thread *t = &laggard_self;
	if (t->ring != g)
		return; /* another process's: we were forked meanwhile */
	t->busy = 1;
	t->ring = NULL;
	atomic_store(p32(g->mem, R_STATE), CLOSED);
	atomic_store_explicit(&g->live, 0, memory_order_release);
	t->busy = 0;
}

/* ---- life and death ---- */

/* after_fork makes the child forget its parent's files: it makes its own at its
 * own first range. Ids stay valid, the strings are private. */
static void after_fork(void) {
	pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
	unsigned char *m = atomic_load(&process);
	laggard_epoch++;
	atomic_store(&laggard_poll, &unstarted_word);
	memcpy(&lock, &fresh, sizeof lock);
	for (unsigned i = 0, n = atomic_load(&ring_count); i < n; i++) {
		munmap(rings[i].mem, rings[i].size);
		memset(&rings[i], 0, sizeof rings[i]);
	}
	atomic_store(&ring_count, 0);
	if (m)
		munmap(m, PROCESS_SIZE);
	atomic_store(&process, NULL);
	if (process_lock >= 0)
		close(process_lock);
	if (folder >= 0)
		close(folder);
	process_lock = folder = -1;
	used = 0;
	atomic_store(&phase, UNSTARTED);
	atomic_store(&failure, NULL);
	for (int k = 0; k < KINDS; k++) {
		atomic_store(&lost[k], 0);
		atomic_store(&unreported[k], 0);
	}
	memset(&laggard_self, 0, sizeof laggard_self);
	laggard_self.followed = UNKNOWN_WORD;
	if (have_exit_key)
		pthread_setspecific(exit_key, NULL);
}

__attribute__((constructor)) static void load(void) {
	laggard_crc_init();
	laggard_clock_init();
	if (pthread_key_create && pthread_setspecific)
		have_exit_key = pthread_key_create(&exit_key, on_exit_thread) == 0;
	pthread_atfork(NULL, NULL, after_fork);
}

void laggard_close(void) {
	pthread_mutex_lock(&lock);
	unsigned char *m = atomic_load(&process);
	if (atomic_load(&phase) != OFF) {
		atomic_store(&phase, OFF);
		atomic_store(&laggard_poll, &off_word);
		if (m) {
			atomic_store(p32(m, P_STATE), CLOSED);
			close(process_lock); /* and with it the lock */
			close(folder);
			process_lock = folder = -1;
		}
	}
	pthread_mutex_unlock(&lock);
}

/* exit may have been called by a signal handler in the middle of our own work. */
__attribute__((destructor)) static void unload(void) {
	if (!laggard_self.busy)
		laggard_close();
}
