/* failure.h: what could not be recorded, and why. */
#ifndef LAGGARD_FAILURE_H
#define LAGGARD_FAILURE_H

#include "internal.h"

HIDDEN void laggard_lose(int kind);
HIDDEN void laggard_fail_locked(const char *what, int err); /* nothing is recorded any more */
HIDDEN void laggard_report_lost(unsigned char *mapping);    /* what was lost before there was one */
HIDDEN void laggard_forget_failure(void);		    /* of the parent */
HIDDEN void laggard_catch_bus(void);

#endif
