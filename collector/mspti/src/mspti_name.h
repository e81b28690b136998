/* mspti_name.h: what the name of a marker says. Pure. */
#ifndef LAGGARD_MSPTI_NAME_H
#define LAGGARD_MSPTI_NAME_H

#include "internal.h"

enum { NAME_LIMIT = 1024 }; /* libmspti refuses names of 255 bytes and more */

/* What a name in a domain says of its range. op and group are of the caller's. */
typedef struct mspti_what {
	int kind;
	uint8_t dtype;
	int32_t peer;
	uint16_t stream; /* that the producer names, 0 none */
	int64_t count, step;
	char text[NAME_LIMIT];  /* op, or the word of an own kind */
	char group[NAME_LIMIT];
} mspti_what;

HIDDEN void mspti_classify(const char *name, const char *domain, int instant, mspti_what *out);

#endif
