// laggard.hpp: ranges that end with their scope.
//
//   laggard::step s(n);
//   laggard::range f(LAGGARD_FP);
//   laggard::range c(laggard::communication(op, group, count, LAGGARD_BF16));
//
// Nothing here throws.
#ifndef LAGGARD_HPP
#define LAGGARD_HPP

#include "laggard.h"

namespace laggard {

// communication describes a collective, or with a peer a send or receive. op and
// group are ids from laggard_intern.
struct communication {
	laggard_attr attr;
	communication(uint16_t op, uint16_t group, int64_t count, uint8_t dtype, int32_t peer = -1) noexcept {
		laggard_attr a = LAGGARD_ATTR_INIT;
		a.text = op;
		a.group = group;
		a.value = count;
		a.dtype = dtype;
		a.peer = peer;
		attr = a;
	}
};

// range is open from its construction to end() or its destruction.
class range {
public:
	explicit range(int kind) noexcept { laggard_begin(&r_, kind, nullptr); }
	range(int kind, const laggard_attr &a) noexcept { laggard_begin(&r_, kind, &a); }
	explicit range(const communication &c) noexcept { laggard_begin(&r_, LAGGARD_COMMUNICATION, &c.attr); }
	range(const range &) = delete;
	range &operator=(const range &) = delete;
	// A moved range ends where it went.
	range(range &&o) noexcept : r_(o.r_) { o.r_.state = 0; }
	~range() { laggard_end(&r_); }

	void end() noexcept { laggard_end(&r_); }
	void end_device(int64_t start, int64_t dur) noexcept { laggard_end_device(&r_, start, dur); }
	void end_exposed(int64_t ns) noexcept { laggard_end_exposed(&r_, ns); }
	void value(int64_t v) noexcept { laggard_set_value(&r_, v); }
	void cancel() noexcept { laggard_cancel(&r_); }

protected:
	struct none {};
	explicit range(none) noexcept : r_() {}
	laggard_range r_;
};

// step is the range of one training step.
class step : public range {
public:
	explicit step(int64_t n, int64_t tokens = 0) noexcept : range(none()) { laggard_step_begin(&r_, n, tokens); }
};

} // namespace laggard
#endif
