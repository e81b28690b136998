/* mspti_buffers.c: libmspti's buffers. A pool of a fixed number goes round: free,
 * at libmspti, full, free. The two callbacks are a pop and a push and never wait:
 * when no buffer is free libmspti gets a place that nobody reads, and what it writes
 * there is counted as dropped. */
#include "mspti_buffers.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "mspti_abi.h"
#include "mspti_counters.h"

enum { MOST = 128, IDLE = 0, OUT = 1, FULL = 2, WARM = 4 };

static uint8_t *pool;      /* count_of buffers, then the one that is not read */
static unsigned count_of;
static _Atomic int taking; /* cleared in a forked child and when we are over */
static _Atomic uint64_t top;              /* of the free: number + 1, and a tag from bit 32 on against ABA */
static _Atomic uint32_t below[MOST];      /* the next free one, number + 1 */
static _Atomic unsigned char place[MOST]; /* IDLE, OUT or FULL */
static size_t valid_of[MOST];

/* What is full, in the order it came: a slot a buffer at least, so a push has room. */
static _Atomic uint32_t full[MOST];
static _Atomic uint32_t full_tail;
static uint32_t full_head;

static _Atomic uint32_t bell;
static _Atomic int asleep;

mspti_counters mspti_counted;

static void push_free(unsigned n) {
	uint64_t old = atomic_load_explicit(&top, memory_order_relaxed), new;
	do {
		atomic_store_explicit(&below[n], (uint32_t)old, memory_order_relaxed);
		new = ((old >> 32) + 1) << 32 | (n + 1);
	} while (!atomic_compare_exchange_weak_explicit(&top, &old, new, memory_order_release, memory_order_relaxed));
}

static int pop_free(void) {
	uint64_t old = atomic_load_explicit(&top, memory_order_acquire), new;
	do {
		uint32_t n = (uint32_t)old;
		if (!n)
			return -1;
		new = ((old >> 32) + 1) << 32 | atomic_load_explicit(&below[n - 1], memory_order_relaxed);
	} while (!atomic_compare_exchange_weak_explicit(&top, &old, new, memory_order_acquire, memory_order_acquire));
	return (int)(uint32_t)old - 1;
}

int mspti_buffers_make(unsigned n) {
	if (pool)
		return 0;
	uint8_t *m = mmap(NULL, (n + 1) * MSPTI_BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (m == MAP_FAILED)
		return -1;
	for (unsigned i = 0; i < n; i++)
		push_free(n - 1 - i);
	for (size_t i = 0; i < (n < WARM ? n : WARM) * MSPTI_BUFFER; i += 4096)
		*(volatile uint8_t *)(m + i) = 0; /* here, not in the trainer */
	count_of = n;
	pool = m;
	return 0;
}

void mspti_on_request(uint8_t **buffer, size_t *size, size_t *records) {
	int n = atomic_load_explicit(&taking, memory_order_acquire) ? pop_free() : -1;
	*buffer = NULL;
	*size = 0;
	*records = 0;
	if (!pool)
		return; /* a forked child's copy of libmspti */
	*size = MSPTI_BUFFER;
	if (n >= 0) {
		atomic_store_explicit(&place[n], OUT, memory_order_relaxed);
		*buffer = pool + (size_t)n * MSPTI_BUFFER;
		return;
	}
	/* Written by whoever has it, all at once if need be, and read by nobody. */
	*buffer = pool + count_of * MSPTI_BUFFER;
	count(&mspti_counted.dropped_buffers, 1);
}

void mspti_on_complete(uint8_t *buffer, size_t size, size_t valid) {
	uintptr_t at = (uintptr_t)buffer - (uintptr_t)pool; /* below the pool: huge */
	if (valid > size || valid > MSPTI_BUFFER)
		valid = MSPTI_BUFFER;
	if (at >= count_of * MSPTI_BUFFER || at % MSPTI_BUFFER) {
		count(&mspti_counted.dropped_markers, valid / MARKER_SIZE);
		return;
	}
	unsigned n = (unsigned)(at / MSPTI_BUFFER);
	unsigned char was = OUT;
	if (!atomic_compare_exchange_strong(&place[n], &was, FULL))
		return; /* it was not out: a second completion */
	if (!valid) {
		atomic_store(&place[n], IDLE);
		push_free(n);
		return;
	}
	valid_of[n] = valid;
	uint32_t ticket = atomic_fetch_add(&full_tail, 1);
	atomic_store_explicit(&full[ticket % MOST], n + 1, memory_order_release);
	/* Our thread comes by itself: to wake it here would be to let it run first. */
}

int mspti_buffers_take(uint8_t **buffer, size_t *valid) {
	uint32_t n = atomic_load_explicit(&full[full_head % MOST], memory_order_acquire);
	if (!n)
		return -1;
	atomic_store_explicit(&full[full_head % MOST], 0, memory_order_relaxed);
	full_head++;
	*buffer = pool + (n - 1) * MSPTI_BUFFER;
	*valid = valid_of[n - 1];
	count(&mspti_counted.buffers, 1);
	return (int)n - 1;
}

void mspti_buffers_return(int number) {
	atomic_store(&place[number], IDLE);
	push_free((unsigned)number);
}

int mspti_buffers_plenty(void) { return atomic_load(&full_tail) - full_head < count_of / 4; }

void mspti_buffers_open(int open) { atomic_store(&taking, open); }

/* forget is for a forked child: the buffers stay where they are, since its copy of
 * libmspti may hold some, and are used no more until they are made anew. */
void mspti_buffers_forget(void) {
	atomic_store(&taking, 0);
	atomic_store(&asleep, 0);
	pool = NULL;
	count_of = 0;
	atomic_store(&top, 0);
	for (unsigned i = 0; i < MOST; i++) {
		atomic_store(&full[i], 0);
		atomic_store(&place[i], IDLE);
	}
	atomic_store(&full_tail, 0);
	full_head = 0;
}

/* ring wakes our thread; the callbacks don't. */
void mspti_bell_ring(void) {
	atomic_fetch_add(&bell, 1);
	if (atomic_load(&asleep))
		syscall(SYS_futex, &bell, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void mspti_bell_wait(int64_t ns) {
	struct timespec ts = {ns / 1000000000, ns % 1000000000};
	uint32_t seen = atomic_load(&bell);
	atomic_store(&asleep, 1);
	if (ns > 0)
		syscall(SYS_futex, &bell, FUTEX_WAIT_PRIVATE, seen, &ts, NULL, 0);
	atomic_store(&asleep, 0);
}
