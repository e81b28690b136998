/* laggard_mspti.h: records of a training process on an Ascend NPU, out of libmspti.
 *
 *   LD_PRELOAD=libmspti.so:liblaggard_mspti.so python train.py
 *
 * The library takes libmspti's markers (what PyTorch's and MindSpore's adapters, and
 * mstx ranges in a script, leave there), joins them to finished ranges and writes
 * those into the rings of laggard.h, whose functions it exports as well: one process
 * has one recorder. One thread of its own does all of it; libmspti's callbacks only
 * exchange a buffer, and never wait.
 *
 * Environment, beside that of laggard.h:
 *   LAGGARD_MSPTI          auto (default): in a process that is a rank (RANK and
 *                          LOCAL_RANK, or MS_WORKER), as soon as an Ascend runtime or
 *                          mstx is loaded; on: at once; off: only by laggard_mspti_start
 *   LAGGARD_MSPTI_LIBRARY  path of libmspti, when it is not where the loader looks
 *   LAGGARD_MSPTI_BUFFERS  buffers of 2 MiB, 2 to 100 (default 16)
 *   LAGGARD_MSPTI_RETRY_MS after another subscriber was there (default 30000)
 *
 * A process that is forked from a recording one records nothing of libmspti until it
 * calls laggard_mspti_start. No handler is installed for any signal here. */
#ifndef LAGGARD_MSPTI_H
#define LAGGARD_MSPTI_H

#include "laggard.h"

#ifdef __cplusplus
extern "C" {
#endif

/* start begins to follow the switch. Returns 0, also when that was done before, and
 * -1 where no thread can be had. What fails later is said in one line on stderr. */
LAGGARD_API int laggard_mspti_start(void);
/* stop takes what libmspti still has, waits for that 2 s at most, and is over. */
LAGGARD_API void laggard_mspti_stop(void);

/* want writes the switch word, bit 0 the four light kinds, bit 1 Communication, as an
 * agent would. Returns -1 while there is no ring folder. */
LAGGARD_API int laggard_mspti_want(uint32_t bits);
/* wanted returns the switch word, with its generation from bit 8 on: it changes with
 * every change of the bits, whoever made it. 0xFFFFFFFF: no ring folder. */
LAGGARD_API uint32_t laggard_mspti_wanted(void);

/* What happened since the process began. */
typedef struct laggard_mspti_counts {
	uint64_t markers;         /* read */
	uint64_t activities;      /* of other kinds, skipped */
	uint64_t records;         /* emitted */
	uint64_t unmatched;       /* ranges given up: a start without an end, or the other way round */
	uint64_t unknown;         /* buffers left at a kind of unknown size */
	uint64_t dropped_markers; /* that came while all buffers were full */
	uint64_t dropped_buffers;
	uint64_t buffers;         /* taken */
	uint64_t refused;         /* another subscriber was there */
	uint32_t on;              /* what libmspti is told: the bits of want */
	uint32_t waiting;         /* ranges that wait for a marker */
} laggard_mspti_counts;
LAGGARD_API void laggard_mspti_count(laggard_mspti_counts *out);

#ifdef __cplusplus
}
#endif
#endif
