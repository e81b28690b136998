/* environment.h: what the environment says: who this rank is, and what to record. */
#ifndef LAGGARD_ENVIRONMENT_H
#define LAGGARD_ENVIRONMENT_H

#include "internal.h"

HIDDEN size_t laggard_default_identity(char *json, size_t size);
HIDDEN uint32_t laggard_trace_word(void);

#endif
