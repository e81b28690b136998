/* intern.h: the words that slots name by a number. */
#ifndef LAGGARD_INTERN_H
#define LAGGARD_INTERN_H

#include "internal.h"

HIDDEN uint16_t laggard_intern_locked(const char *s, size_t n); /* 0: no room, counted */
HIDDEN void laggard_copy_strings(unsigned char *mapping);	/* all so far, into a new file */

#endif
