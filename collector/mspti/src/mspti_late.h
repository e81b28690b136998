/* mspti_late.h: a range whose step is over. */
#ifndef LAGGARD_MSPTI_LATE_H
#define LAGGARD_MSPTI_LATE_H

#include "internal.h"

HIDDEN void mspti_emit_late(const laggard_span *s);

#endif
