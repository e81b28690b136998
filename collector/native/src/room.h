/* room.h: what one user's processes may take of the run directory. */
#ifndef LAGGARD_ROOM_H
#define LAGGARD_ROOM_H

#include "internal.h"

HIDDEN int laggard_room(int run, const char *own, int64_t more, int folder);

#endif
