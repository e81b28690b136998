/* mspti_pairs.h: beginnings and ends of ranges. Of our thread alone. */
#ifndef LAGGARD_MSPTI_PAIRS_H
#define LAGGARD_MSPTI_PAIRS_H

#include "internal.h"

HIDDEN int mspti_pairs_make(void);
HIDDEN void mspti_pairs_add(const uint8_t *marker);
HIDDEN void mspti_pairs_expire(int64_t now, int on);
HIDDEN void mspti_pairs_finish(void);
HIDDEN void mspti_pairs_forget(void);
HIDDEN void mspti_pairs_switched(void); /* looks whether the switch has moved */

#endif
