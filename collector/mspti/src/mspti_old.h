/* mspti_old.h: how this library runs with an old C library. */
#ifndef LAGGARD_MSPTI_OLD_H
#define LAGGARD_MSPTI_OLD_H

#include <dlfcn.h>
#include <pthread.h>

/* Bind to what a C library of 2012 has as well. Programs that are started beside the
 * trainer may have neither libpthread nor libdl: there nothing happens. */
#if defined(__x86_64__)
#define OLD_GLIBC "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define OLD_GLIBC "GLIBC_2.17"
#endif
#if defined(OLD_GLIBC) && defined(__GLIBC__)
__asm__(".symver pthread_create, pthread_create@" OLD_GLIBC);
__asm__(".symver dlopen, dlopen@" OLD_GLIBC);
__asm__(".symver dlsym, dlsym@" OLD_GLIBC);
__asm__(".symver dlclose, dlclose@" OLD_GLIBC);
#endif
#pragma weak pthread_create
#pragma weak dlopen
#pragma weak dlsym
#pragma weak dlclose

#endif
