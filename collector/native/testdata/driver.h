/* driver.h: what the two halves of the driver share. */
#ifndef DRIVER_H
#define DRIVER_H

#include <stdint.h>

#include "laggard.h"

void die(const char *what);
void nap_ns(long ns);
void one(int kind, uint16_t text, int64_t v); /* records a range of a kind whose value is v */

/* life.c: forks, threads and signals */
int cmd_fork(char **v);
int cmd_workers(char **v);
int cmd_churn(char **v);
int cmd_handover(void);
int cmd_signal(char **v);
int cmd_bus(char **v);
int cmd_orphans(char **v);

#endif
