package simulate

import (
	"fmt"
	"testing"
	"time"
)

type nobody struct{ keeper }

func TestProbe(t *testing.T) {
	for _, s := range []Shape{{TP: 1, PP: 1, CP: 1, DP: 8}, {TP: 2, CP: 1, DP: 4, PP: 4, MicroBatches: 8}, {TP: 8, CP: 1, DP: 128, PP: 8, MicroBatches: 16}} {
		c := Config{Seed: 1, Steps: 20, Shape: s, Noise: Noise{StepSD: 0.01, OpSD: 0.01}, Work: Work{SequenceSD: 0.1}}
		t0 := time.Now()
		rows, truth, err := Rows(c)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(s, truth.Seconds, time.Since(t0)/time.Duration(20*s.World()), len(rows.Steps))
		for i := range min(8, s.World()) {
			fmt.Printf("%+v\n", rows.Steps[10*s.World()+i])
		}
	}
}
