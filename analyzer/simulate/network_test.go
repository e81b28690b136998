package simulate

import (
	"math"
	"slices"
	"testing"
)

// The network of a host can be told where no other host is in all that it slows.
func TestOwnNetwork(t *testing.T) {
	for name, c := range map[string]struct {
		shape Shape
		want  []int // hosts
	}{
		"one group of two hosts":         {Shape{DP: 16, RanksPerNode: 8}, nil},
		"all hosts in all groups":        {Shape{DP: 4, PP: 4, RanksPerNode: 4, Order: "tp-cp-pp-dp"}, nil},
		"sends alone, ends of pipelines": {Shape{DP: 4, PP: 4, RanksPerNode: 4}, []int{1, 2}},
		"groups and sends":               {Shape{DP: 8, PP: 2, RanksPerNode: 4}, []int{0, 1, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			c.shape.defaults()
			l := newLayout(c.shape, nil)
			got := slices.DeleteFunc(slices.Clone(l.hosts), func(h int) bool { return !l.ownNetwork(h) })
			if !slices.Equal(got, c.want) {
				t.Errorf("hosts %v, want %v", got, c.want)
			}
		})
	}
}

// A slow network of a host makes the sends to it and from it longer, and no others.
func TestNIC_SendsOfItsHostAlone(t *testing.T) {
	sends := func(faults []Fault) (shortest [4]int64) { // by stage, which is a host
		c := Config{Steps: 20, Shape: Shape{DP: 4, PP: 4, RanksPerNode: 4}, Faults: faults}
		rows, _ := mustRows(t, c)
		for i := range rows.Communications {
			if x := &rows.Communications[i]; x.Op == "send" {
				stage := x.Rank / 4
				if shortest[stage] == 0 || x.MinNs < shortest[stage] {
					shortest[stage] = x.MinNs
				}
			}
		}

		return shortest
	}
	quiet, slow := sends(nil), sends([]Fault{{Kind: NIC, Node: 1, Factor: 3}})
	for stage, want := range [4]float64{3, 3, 1, 1} { // the third stage sends to the last one as well
		if got := float64(slow[stage]) / float64(quiet[stage]); math.Abs(got-want) > 0.05 {
			t.Errorf("stage %d: the shortest send takes %.2f times as long, want %.0f", stage, got, want)
		}
	}
}
