/* process.h: what process.c, failure.c, strings.c, rings.c, files.c and environment.c share: the state of
 * this process's folder, and the tools to make it. */
#ifndef LAGGARD_PROCESS_H
#define LAGGARD_PROCESS_H

#include <pthread.h>
#include <string.h>
#include <sys/types.h>

#include "internal.h"

/* Bind to what a C library of 2012 has as well. */
#if defined(__GLIBC__) && defined(__x86_64__)
__asm__(".symver pthread_setspecific, pthread_setspecific@GLIBC_2.2.5");
#elif defined(__GLIBC__) && defined(__aarch64__)
__asm__(".symver pthread_setspecific, pthread_setspecific@GLIBC_2.17");
#endif
/* A program without threads may not have them. */
#pragma weak pthread_setspecific

enum { UNSTARTED, READY, OFF };

/* process.c */
extern HIDDEN pthread_mutex_t laggard_lock; /* held to change what follows */
extern HIDDEN _Atomic int laggard_phase;
extern HIDDEN _Atomic(unsigned char *) laggard_mapping; /* of the file `process` */
extern HIDDEN int laggard_folder;
extern HIDDEN int64_t laggard_used; /* bytes of all files */
extern HIDDEN ring laggard_rings[MAX_RINGS];
extern HIDDEN atomic_uint laggard_ring_count; /* of rings with memory; the array only grows */
extern HIDDEN pthread_key_t laggard_exit_key;
extern HIDDEN int laggard_have_exit_key;

/* failure.c */
HIDDEN void laggard_fail_locked(const char *what, int err); /* nothing is recorded any more */
HIDDEN void laggard_report_lost(unsigned char *mapping);    /* what was lost before there was one */
HIDDEN void laggard_forget_failure(void);		    /* of the parent */
HIDDEN void laggard_catch_bus(void);

/* strings.c */
HIDDEN uint16_t laggard_intern_locked(const char *s, size_t n); /* 0: no room, counted */
HIDDEN void laggard_copy_strings(unsigned char *mapping);	/* all so far, into a new file */

HIDDEN uint64_t laggard_pid_namespace(void);
extern HIDDEN char laggard_name[17]; /* of the folder */

/* rings.c */
HIDDEN void laggard_leave_ring(void *ring);

/* files.c */
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

/* room.c */
HIDDEN int laggard_room(int run, const char *own, int64_t more, int folder);

/* environment.c */
HIDDEN size_t laggard_default_identity(char *json, size_t size);
HIDDEN uint32_t laggard_trace_word(void);

static inline _Atomic uint32_t *p32(unsigned char *m, int at) { return (_Atomic uint32_t *)(void *)(m + at); }
static inline _Atomic uint64_t *p64(unsigned char *m, int at) { return (_Atomic uint64_t *)(void *)(m + at); }
static inline void put32(unsigned char *m, int at, uint32_t v) { memcpy(m + at, &v, 4); }
static inline void put64(unsigned char *m, int at, uint64_t v) { memcpy(m + at, &v, 8); }

#endif
