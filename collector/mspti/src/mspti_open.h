/* mspti_open.h: ranges that stay open are named in the ring's table. */
#ifndef LAGGARD_MSPTI_OPEN_H
#define LAGGARD_MSPTI_OPEN_H

#include "internal.h"

HIDDEN void mspti_open_list(laggard_range *r, const laggard_span *s);

#endif
