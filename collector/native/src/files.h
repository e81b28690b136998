/* files.h: the files of a folder: names, modes, memory. */
#ifndef LAGGARD_FILES_H
#define LAGGARD_FILES_H

#include <sys/types.h>

#include "internal.h"

#define FNV_START 0xcbf29ce484222325u
HIDDEN uint64_t laggard_fnv(uint64_t h, const void *p, size_t n);
HIDDEN uint64_t laggard_hash_part(uint64_t h, const char *s);
HIDDEN int laggard_open_at(int dir, const char *name, int flags, mode_t mode);
HIDDEN unsigned char *laggard_allocate(int dir, const char *name, size_t size);
HIDDEN int laggard_publish_name(int dir, const char *from, const char *to);
HIDDEN size_t laggard_read_file(const char *path, char *buf, size_t size);
HIDDEN uint64_t laggard_start_ticks(void);
HIDDEN uint64_t laggard_ticks_in(const char *stat); /* what /proc says of any process */
HIDDEN int laggard_set_dir_mode(int dir, mode_t mode);
HIDDEN int laggard_make_run_dir(char *run_dir);

#endif
