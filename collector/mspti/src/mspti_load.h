/* mspti_load.h: libmspti, where there is one. */
#ifndef LAGGARD_MSPTI_LOAD_H
#define LAGGARD_MSPTI_LOAD_H

#include "internal.h"
#include "mspti_abi.h"

HIDDEN void mspti_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
HIDDEN long mspti_env(const char *name, long least, long most, long absent);
HIDDEN void *mspti_open_library(void);
HIDDEN void mspti_resolve(void *library, mspti_api *api); /* says what is missing */

#endif
