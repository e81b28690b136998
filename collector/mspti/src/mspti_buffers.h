/* mspti_buffers.h: the way of a buffer. request and complete run in the trainer. */
#ifndef LAGGARD_MSPTI_BUFFERS_H
#define LAGGARD_MSPTI_BUFFERS_H

#include "internal.h"

HIDDEN int mspti_buffers_make(unsigned n);
HIDDEN void mspti_on_request(uint8_t **buffer, size_t *size, size_t *records);
HIDDEN void mspti_on_complete(uint8_t *buffer, size_t size, size_t valid);
HIDDEN int mspti_buffers_take(uint8_t **buffer, size_t *valid); /* the number of one that is full, or -1 */
HIDDEN void mspti_buffers_return(int number);
HIDDEN int mspti_buffers_plenty(void); /* libmspti has many to fill */
HIDDEN void mspti_buffers_open(int open);
HIDDEN void mspti_buffers_forget(void);
HIDDEN void mspti_bell_wait(int64_t ns);
HIDDEN void mspti_bell_ring(void);

#endif
