/* room.c: what this user's processes take of the run directory, and what of it dead
 * ones hold for nothing (schemas/FORMAT.md, section 2.4). The caller holds laggard_lock. */
#include "room.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "files.h"
#include "process.h"

enum {
	PAGE = 4096,
	SMALL = 65536, /* a file that is not looked into */
	LAST = 64,     /* slots before the head from which an agent tells how a process ended */
	PUNCH = 3      /* FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE */
};

struct entry { /* what getdents64 gives */
	uint64_t ino;
	int64_t off;
	unsigned short len;
	unsigned char type;
	char name[];
};

/* each_in calls f with every name in a directory. No opendir: that allocates. What one call
 * of the kernel lists is of one moment: a file that is renamed is in it once. */
static void each_in(char *buf, size_t size, int dir, void (*f)(int dir, const char *name, void *arg), void *arg) {
	long n;
	while ((n = syscall(SYS_getdents64, dir, buf, size)) > 0)
		for (long at = 0; at < n;) {
			struct entry *e = (struct entry *)(void *)(buf + at);
			at += e->len;
			f(dir, e->name, arg);
		}
}

/* each does so in a process's folder, whose rings fit one call. */
static void each(int dir, void (*f)(int dir, const char *name, void *arg), void *arg) {
	char buf[4096] __attribute__((aligned(8)));
	each_in(buf, sizeof buf, dir, f, arg);
}

static int open_plain(int dir, const char *name, struct stat *st) {
	int fd = laggard_open_at(dir, name, O_RDWR | O_NONBLOCK, 0);
	if (fd >= 0 && (syscall(SYS_fstat, fd, st) != 0 || !S_ISREG(st->st_mode) || st->st_nlink != 1 || st->st_uid != geteuid())) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static uint32_t get32(const unsigned char *p, int at) {
	uint32_t v;
	memcpy(&v, p + at, 4);
	return v;
}
static uint64_t get64(const unsigned char *p, int at) {
	uint64_t v;
	memcpy(&v, p + at, 8);
	return v;
}

/* punch gives the whole pages from one byte to another back. */
static void punch(int fd, uint64_t from, uint64_t to) {
	from = (from + PAGE - 1) / PAGE * PAGE;
	to = to / PAGE * PAGE;
	if (from < to && fallocate(fd, PUNCH, (off_t)from, (off_t)(to - from)) != 0)
		return; /* it stays as large as it is */
}

/* free_lane keeps the slots that no agent has taken, and the last ones. */
static void free_lane(int fd, uint64_t base, uint64_t slots, uint64_t head, uint64_t tail) {
	uint64_t low = head > LAST ? head - LAST : 0;
	if (tail < low)
		low = tail;
	if (tail > head || head - low >= slots)
		return;
	uint64_t a = head & (slots - 1), b = low & (slots - 1);
	if (low == head || b < a) {
		punch(fd, base, base + b * SLOT_SIZE);
		punch(fd, base + a * SLOT_SIZE, base + slots * SLOT_SIZE);
	} else {
		punch(fd, base + a * SLOT_SIZE, base + b * SLOT_SIZE);
	}
}

static int power(uint64_t n) { return n > 0 && (n & (n - 1)) == 0 && n <= BUDGET / SLOT_SIZE; }

static void free_ring(int dir, const char *name, void *unused) {
	unsigned char h[R_EMITTED];
	struct stat st;
	(void)unused;
	int fd = strncmp(name, "ring-", 5) == 0 ? open_plain(dir, name, &st) : -1;
	if (fd < 0)
		return;
	if (st.st_blocks * 512 > SMALL && pread(fd, h, sizeof h, 0) == (ssize_t)sizeof h && memcmp(h, "LAGRING1", 8) == 0 && get32(h, R_VERSION) == 1) {
		uint64_t light = get32(h, R_LIGHT_SLOTS), bulk = get32(h, R_BULK_SLOTS), at = RING_HEADER;
		if (power(light) && power(bulk) && (uint64_t)st.st_size >= at + SLOT_SIZE * (light + bulk)) {
			free_lane(fd, at, light, get64(h, R_LIGHT_HEAD), get64(h, R_LIGHT_TAIL));
			free_lane(fd, at + SLOT_SIZE * light, bulk, get64(h, R_BULK_HEAD), get64(h, R_BULK_TAIL));
		}
	}
	close(fd);
}

/* dead reports whether nobody will write into the folder any more, as the agent sees it:
 * its lock is free, and where its pid is one of ours, that is over or another's. */
static int dead(int process, const unsigned char *h) {
	char path[40], stat[1024], *p;
	pid_t pid = (pid_t)get32(h, P_PID);
	if (flock(process, LOCK_EX | LOCK_NB) != 0)
		return 0;
	if (get32(h, P_STATE) == CLOSED || get64(h, P_NAMESPACE) != laggard_pid_namespace() || pid <= 0 || (kill(pid, 0) != 0 && errno == ESRCH))
		return 1;
	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	laggard_read_file(path, stat, sizeof stat);
	p = strrchr(stat, ')');
	return p && (p[1] && (p[2] == 'Z' || p[2] == 'X') ? 1 : laggard_ticks_in(stat) != get64(h, P_TICKS));
}

/* free_dead gives back what a dead process's folder holds for nothing. Whoever holds
 * agent.lock may: an agent that drains the folder is not disturbed. */
static void free_dead(int dir) {
	unsigned char h[P_LOST];
	struct stat st;
	int lock = -1, fd = open_plain(dir, "process", &st);
	if (fd >= 0 && pread(fd, h, sizeof h, 0) == (ssize_t)sizeof h && memcmp(h, "LAGPROC1", 8) == 0 && get32(h, P_VERSION) == 1 && dead(fd, h))
		lock = laggard_open_at(dir, "agent.lock", O_CREAT | O_RDWR | O_NONBLOCK, 0660);
	if (lock >= 0)
		(void)fchmod(lock, 0660); /* whatever the umask: the agent may be another user of the group */
	if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0) {
		uint64_t used = get32(h, P_STRINGS_USED);
		if (used <= STRINGS_SIZE && st.st_size == PROCESS_SIZE)
			punch(fd, PROCESS_HEADER + used, PROCESS_SIZE);
		if (syscall(SYS_lseek, dir, 0, SEEK_SET) == 0)
			each(dir, free_ring, NULL);
	}
	if (fd >= 0)
		close(fd);
	if (lock >= 0)
		close(lock);
}

struct survey {
	int64_t bytes;
	unsigned folders;
	int freeing;
	const char *own;
	int64_t one; /* bytes of the folder that is looked at */
};

/* stat_listed looks at what was listed. One that was being made (.NAME.new) may have been
 * published since: then at NAME, which it writes into name. */
static int stat_listed(int dir, char *name, struct stat *st) {
	size_t n = strlen(name);
	if (syscall(SYS_newfstatat, dir, name, st, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	if (errno != ENOENT || n < 5 || name[0] != '.' || strcmp(name + n - 4, ".new") != 0)
		return -1;
	memmove(name, name + 1, n - 5);
	name[n - 5] = 0;
	return (int)syscall(SYS_newfstatat, dir, name, st, AT_SYMLINK_NOFOLLOW);
}

static void measure(int dir, const char *listed, void *arg) {
	struct survey *s = arg;
	struct stat st;
	char name[32];
	if (snprintf(name, sizeof name, "%s", listed) < (int)sizeof name && stat_listed(dir, name, &st) == 0 && S_ISREG(st.st_mode))
		s->one += (int64_t)st.st_blocks * 512;
}

static void look(int run, const char *listed, void *arg) {
	struct survey *s = arg;
	struct stat st;
	char name[32];
	size_t hidden = listed[0] == '.'; /* one that is being made */
	if (strspn(listed + hidden, "0123456789abcdef") != 16 || strcmp(listed + hidden + 16, hidden ? ".new" : "") != 0)
		return;
	strcpy(name, listed);
	if (stat_listed(run, name, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid())
		return;
	int dir = laggard_open_at(run, name, O_DIRECTORY | O_RDONLY, 0);
	if (dir < 0)
		return;
	s->folders++;
	s->one = 0;
	each(dir, measure, s);
	if (s->freeing && name[0] != '.' && s->one > 2 * SMALL && strcmp(name, s->own) != 0) {
		free_dead(dir);
		s->one = 0;
		if (syscall(SYS_lseek, dir, 0, SEEK_SET) == 0)
			each(dir, measure, s);
	}
	s->bytes += s->one;
	close(dir);
}

/* laggard_room reports whether this user may have so many bytes more in the run directory,
 * for a folder called own; what dead processes hold for nothing is freed first. */
int laggard_room(int run, const char *own, int64_t more, int folder) {
	static char names[1 << 16] __attribute__((aligned(8))); /* of USER_FOLDERS folders and more; not on a stack, which may be small */
	for (int freeing = folder; freeing < 2; freeing++) {
		struct survey s = {0, 0, freeing, own, 0};
		if (syscall(SYS_lseek, run, 0, SEEK_SET) != 0)
			return 1;
		each_in(names, sizeof names, run, look, &s);
		if (s.bytes + more <= USER_BYTES && (!folder || s.folders <= USER_FOLDERS))
			return 1;
	}
	return 0;
}
