/* rings.h: a thread's ring, from its first range to its end. */
#ifndef LAGGARD_RINGS_H
#define LAGGARD_RINGS_H

#include "internal.h"

HIDDEN ring *laggard_get_ring(thread *t, int64_t now);
HIDDEN void laggard_leave_ring(void *ring);

#endif
