/* clock.c: when the time stamp counter can be trusted, and what a tick of it is. */
#include "clock.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

int laggard_use_tsc;
int64_t laggard_offset;

#if defined(__x86_64__)
enum {
	CALIBRATE_NS = 10000000, /* a reading is good to some 50 ns, so this gives 5 ppm */
	PERIOD_NS = 100000000,   /* between looks at the kernel's clock */
	LONG_NS = 2000000000     /* from here on the scale follows the kernel's own corrections */
};

/* invariant reports whether the counter runs at one rate in every power state and
 * the kernel itself keeps its time by it. */
static int invariant(void) {
	unsigned a, b, c, d;
	char name[16] = "";
	int fd;
	if (!__get_cpuid(0x80000007u, &a, &b, &c, &d) || !(d & 1u << 8))
		return 0;
	fd = open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ssize_t n = read(fd, name, sizeof name - 1);
	close(fd);
	return n == 4 && memcmp(name, "tsc\n", 4) == 0;
}

/* pair reads both clocks as close together as three tries allow. */
static void pair(uint64_t *tsc, int64_t *ns) {
	uint64_t best = UINT64_MAX;
	for (int i = 0; i < 3; i++) {
		uint64_t a = ticks();
		int64_t m = monotonic();
		uint64_t b = ticks();
		if (b - a < best) {
			best = b - a;
			*tsc = a + (b - a) / 2;
			*ns = m + laggard_offset;
		}
	}
}

static _Atomic uint64_t shared_mult; /* what some thread found: new ones begin with it */

/* scale lets the thread go by the counter from a pair of readings on. span is set
 * last: a signal handler that comes in between goes the slow way, too. */
static void scale(thread *t, uint64_t tsc, int64_t ns, uint64_t mult) {
	t->span = 0;
	atomic_signal_fence(memory_order_seq_cst);
	t->tsc0 = tsc;
	t->ns0 = ns;
	t->mult = mult;
	atomic_signal_fence(memory_order_seq_cst);
	t->span = (uint64_t)(((unsigned __int128)PERIOD_NS << 32) / mult);
}

/* clock_slow looks at the kernel's clock and sets the thread's scale by it. Time
 * never goes back for a thread: where the scale was too fast it stands still. */
int64_t laggard_clock_slow(thread *t) {
	uint64_t tsc = 0;
	int64_t ns = 0, floor = 0;
	pair(&tsc, &ns);
	if (t->span)
		floor = t->ns0 + (int64_t)((unsigned __int128)(t->span - 1) * t->mult >> 32);
	if (t->first_ns == 0 || tsc <= t->first_tsc || ns <= t->first_ns) {
		uint64_t mult = atomic_load_explicit(&shared_mult, memory_order_relaxed);
		t->span = 0;
		t->first_tsc = tsc;
		t->first_ns = ns;
		if (mult)
			scale(t, tsc, ns, mult);
		return ns;
	}
	int64_t base = ns - t->first_ns;
	if (base < CALIBRATE_NS)
		return ns;
	uint64_t mult = (uint64_t)(((unsigned __int128)(uint64_t)base << 32) / (tsc - t->first_tsc));
	if (!mult)
		return ns;
	if (floor > ns && floor - ns < PERIOD_NS)
		ns = floor;
	scale(t, tsc, ns, mult);
	atomic_store_explicit(&shared_mult, mult, memory_order_relaxed);
	if (base > LONG_NS) {
		t->first_tsc = tsc;
		t->first_ns = ns;
	}
	return ns;
}
#else
int64_t laggard_clock_slow(thread *t) {
	(void)t;
	return monotonic() + laggard_offset;
}
#endif

void laggard_clock_init(void) {
	/* The offset is fixed here: steps of the wall clock move nothing later. */
	int64_t best = INT64_MAX;
	for (int i = 0; i < 5; i++) {
		struct timespec real;
		int64_t a = monotonic();
		clock_gettime(CLOCK_REALTIME, &real);
		int64_t b = monotonic();
		if (b - a < best) {
			best = b - a;
			laggard_offset = (int64_t)real.tv_sec * 1000000000 + real.tv_nsec - (a + (b - a) / 2);
		}
	}
#if defined(__x86_64__)
	const char *want = getenv("LAGGARD_CLOCK");
	laggard_use_tsc = want && strcmp(want, "tsc") == 0 ? 1 : want && *want ? 0 : invariant();
#endif
}
