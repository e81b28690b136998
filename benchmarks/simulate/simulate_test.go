package simulate

import (
	"fmt"
	"testing"
	"time"
)

func TestProbe(t *testing.T) {
	for _, n := range Names() {
		for seed := range uint64(10) {
			c, err := Scenario(n, seed)
			if err != nil {
				t.Fatal(err)
			}
			if c.Shape.World() > 100 {
				continue
			}
			t0 := time.Now()
			rows, truth, err := Rows(c)
			if err != nil {
				t.Fatal(err)
			}
			imp, _ := Impact(c)
			if seed < 3 {
				fmt.Println(n, c.Shape, truth.Seconds, c.Model.Seconds, imp, time.Since(t0)/time.Duration(c.Steps*c.Shape.World()), len(rows.Steps), truth.SlowNodes, truth.SlowRanks, truth.Links, truth.Events, truth.Findings)
			}
		}
	}
	for _, a := range []string{"AR-1", "ST"} {
		tr, err := LoadTrace("../../../shared/data/" + a + "-full.tar.gz")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(a, tr.Shape, tr.Seconds, len(tr.Steps), tr.Steps[0].Forward[0])
		c, err := Replayed("compute-1.2", 1, tr)
		if err != nil {
			t.Fatal(err)
		}
		t0 := time.Now()
		rows, truth, err := Rows(c)
		fmt.Println(c.Shape, truth.Seconds, c.Model.Seconds, time.Since(t0)/time.Duration(c.Steps*c.Shape.World()), len(rows.Steps), truth.SlowNodes, truth.SlowRanks, truth.Links, truth.Events, truth.Findings)
	}
}
