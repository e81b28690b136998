package cost

import (
	"fmt"

	"github.com/laggard-dev/laggard/analyzer/detect/state"
)

// State is what a later step asks of earlier ones.
func (b *Book) State() state.Fields {
	return state.Fields{
		"faults": state.Grows(&b.faults), "accounts": &b.accounts, "clock": &b.clock, "spells": &b.spells,
		"habits": &b.habits, "played": &b.played,
	}
}

// Check reports numbers of a restored book that none has and that a panic would follow
// from.
func (b *Book) Check() error {
	for _, f := range b.faults {
		if f.Row < 0 || f.Row >= len(b.layout.Role) || b.layout.Role[f.Row] < 0 {
			return fmt.Errorf("a fault of row %d", f.Row)
		}
	}

	for i := range b.played {
		p := &b.played[i]
		if p.At != 0 && (len(p.Ends) != b.graph.Lanes() || len(p.Plain) != b.graph.Lanes() || len(p.Usual) != len(b.graph.Usual())) {
			return fmt.Errorf("a step of %d lanes, want %d", len(p.Ends), b.graph.Lanes())
		}
	}

	return nil
}
