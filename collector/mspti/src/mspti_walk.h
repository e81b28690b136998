/* mspti_walk.h: the records of a buffer. */
#ifndef LAGGARD_MSPTI_WALK_H
#define LAGGARD_MSPTI_WALK_H

#include "internal.h"

HIDDEN void mspti_walk(uint8_t *buffer, size_t valid, int (*next_record)(uint8_t *, size_t, void **));

#endif
