package simulate

import "testing"

// What passes begins after the warm-up and is over long before the end; what moves is on one host and then on another.
func TestPassedAndMoving(t *testing.T) {
	for seed := range uint64(40) {
		c, err := Scenario("passed", seed)
		if err != nil {
			t.Fatal(err)
		}

		for _, f := range c.Faults {
			if f.From <= 20 || f.To > c.Steps-40 || f.To-f.From < 45 || f.To-f.From > c.Steps/2 {
				t.Errorf("passed, seed %d: steps %d to %d of %d", seed, f.From, f.To, c.Steps)
			}
		}

		if c, err = Scenario("moving", seed); err != nil {
			t.Fatal(err)
		}

		if f := c.Faults; len(f) > 0 && (len(f) != 2 || f[0].Node == f[1].Node || f[0].To != f[1].From || f[1].To != 0) {
			t.Errorf("moving, seed %d: %+v", seed, f)
		}
	}
}

// A standing link of any stage costs what it is drawn to cost: 3 % of a step and more.
func TestStandingLink_Costs(t *testing.T) {
	for seed := range uint64(10) {
		c, err := Scenario("standing-link", seed)
		if err != nil {
			t.Fatal(err)
		}

		if len(c.Faults) == 0 {
			continue
		}

		c.Faults[0].From, c.Steps = 0, 40
		_, truth := mustRows(t, c)
		if err := truth.Weigh(c); err != nil {
			t.Fatal(err)
		}

		if truth.Impact < 0.015 || truth.Impact > 0.3 {
			t.Errorf("seed %d: %s costs %.3f of a step, added %.3f", seed, c.Faults[0].Group, truth.Impact, c.Faults[0].Share)
		}
	}
}
