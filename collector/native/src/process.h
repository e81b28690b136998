/* process.h: the state of this process's folder. What changes it holds the lock. */
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

extern HIDDEN pthread_mutex_t laggard_lock; /* held to change what follows */
extern HIDDEN _Atomic int laggard_phase;
extern HIDDEN _Atomic(unsigned char *) laggard_mapping; /* of the file `process` */
extern HIDDEN int laggard_folder;
extern HIDDEN int64_t laggard_used; /* bytes of all files */
extern HIDDEN ring laggard_rings[MAX_RINGS];
extern HIDDEN atomic_uint laggard_ring_count; /* of rings with memory; the array only grows */
extern HIDDEN pthread_key_t laggard_exit_key;
extern HIDDEN int laggard_have_exit_key;

extern HIDDEN char laggard_name[17]; /* of the folder */
HIDDEN uint64_t laggard_pid_namespace(void);

static inline _Atomic uint32_t *p32(unsigned char *m, int at) { return (_Atomic uint32_t *)(void *)(m + at); }
static inline _Atomic uint64_t *p64(unsigned char *m, int at) { return (_Atomic uint64_t *)(void *)(m + at); }
static inline void put32(unsigned char *m, int at, uint32_t v) { memcpy(m + at, &v, 4); }
static inline void put64(unsigned char *m, int at, uint64_t v) { memcpy(m + at, &v, 8); }

#endif
