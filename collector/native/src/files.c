/* files.c: files and folders on tmpfs, and what /proc says of this process. Nothing
 * here keeps state; errors are errno's. */
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

uint64_t laggard_fnv(uint64_t h, const void *p, size_t n) {
	const unsigned char *b = p;
	while (n--)
		h = (h ^ *b++) * 0x100000001b3u;
	return h;
}
int laggard_open_at(int dir, const char *name, int flags, mode_t mode) {
	int fd;
	do
		fd = openat(dir, name, flags | O_NOFOLLOW | O_CLOEXEC, mode);
	while (fd < 0 && errno == EINTR);
	return fd;
}

/* laggard_allocate makes a file of zeros with every page in place, and maps it: a tmpfs
 * that fills up later can't raise SIGBUS. NULL and errno on failure. */
unsigned char *laggard_allocate(int dir, const char *name, size_t size) {
	struct rlimit limit;
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < size) {
		errno = EFBIG; /* asking the kernel would raise SIGXFSZ */
		return NULL;
	}
	int fd = laggard_open_at(dir, name, O_CREAT | O_EXCL | O_RDWR, 0660);
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

/* laggard_publish_name renames to a name that must not exist. */
int laggard_publish_name(int dir, const char *from, const char *to) {
#ifdef SYS_renameat2
	if (syscall(SYS_renameat2, dir, from, dir, to, 1u /* RENAME_NOREPLACE */) == 0)
		return 0;
	if (errno != ENOSYS && errno != EINVAL)
		return -1;
#endif
	return renameat(dir, from, dir, to);
}

size_t laggard_read_file(const char *path, char *buf, size_t size) {
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, buf, size - 1);
	if (fd >= 0)
		close(fd);
	if (n < 0)
		n = 0;
	buf[n] = 0;
	return (size_t)n;
}

/* laggard_start_ticks reads field 22 of /proc/self/stat. */
uint64_t laggard_start_ticks(void) {
	char buf[1024];
	laggard_read_file("/proc/self/stat", buf, sizeof buf);
	return laggard_ticks_in(buf);
}

uint64_t laggard_ticks_in(const char *stat) {
	uint64_t v = 0;
	const char *p = strrchr(stat, ')'); /* the command before it may hold anything */
	for (int field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	if (!p)
		return 0;
	for (p++; *p >= '0' && *p <= '9'; p++)
		v = v * 10 + (uint64_t)(*p - '0');
	return v;
}

uint64_t laggard_hash_part(uint64_t h, const char *s) {
	uint64_t n = strlen(s);
	return laggard_fnv(laggard_fnv(h, &n, 8), s, n);
}

/* laggard_set_dir_mode gives a new folder its mode whatever the umask is, and leaves
 * it the setgid bit of its parent: that is how a pod's fsGroup shares it. */
int laggard_set_dir_mode(int dir, mode_t mode) {
	struct stat st;
	if (syscall(SYS_fstat, dir, &st) != 0) /* the function has a name of its own in each glibc */
		return -1;
	mode |= st.st_mode & S_ISGID;
	return (st.st_mode & 07777) == mode ? 0 : fchmod(dir, mode);
}

/* laggard_make_run_dir opens the run directory and makes it when it is missing. */
int laggard_make_run_dir(char *run_dir) {
	for (size_t n = strlen(run_dir); n > 1 && run_dir[n - 1] == '/'; n--)
		run_dir[n - 1] = 0; /* behind it a link would be followed */
	for (char *p = run_dir + 1; (p = strchr(p, '/')); p++) {
		*p = 0;
		mkdir(run_dir, 0755);
		*p = '/';
	}
	int made = mkdir(run_dir, 0777) == 0;
	int fd = laggard_open_at(AT_FDCWD, run_dir, O_DIRECTORY | O_RDONLY, 0);
	if (made && fd >= 0)
		(void)laggard_set_dir_mode(fd, 01777);
	return fd;
}
