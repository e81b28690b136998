package e2e

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/schemas/marker"
)

// faultDiag is FaultDiag-online's way through a rank's files, by the rules that its page
// states: lines are joined by Id and side, the name is the host start's, a cache holds
// the last 100 open Ids, and a step or operation without device lines is none.
type faultDiag struct {
	open   map[[2]uint64]uint64 // Id and side: when it started
	names  map[uint64]string
	order  []uint64
	host   map[uint64][2]uint64 // by Id: from when to when
	events []event
}

// event is a pair of device lines, or of host lines without a stream.
type event struct {
	name     string
	from, to uint64
	host     [2]uint64
}

func (f *faultDiag) add(m *marker.Marker) {
	key := [2]uint64{m.ID, uint64(m.Source)}
	if m.Source == marker.HostSide && len(m.Name) > 0 {
		f.names[m.ID] = string(m.Name)
		if f.order = append(f.order, m.ID); len(f.order) > 100 {
			delete(f.names, f.order[0])
			f.order = f.order[1:]
		}
	}

	switch m.Flag {
	case marker.Start, marker.StartDevice:
		f.open[key] = m.Timestamp
		return
	case marker.End, marker.EndDevice:
	default:
		return
	}

	from, ok := f.open[key]
	if !ok {
		return
	}

	delete(f.open, key)
	if m.Source == marker.HostSide {
		f.host[m.ID] = [2]uint64{from, m.Timestamp}
	}

	if m.Source == marker.DeviceSide || m.Flag == marker.End {
		f.events = append(f.events, event{f.names[m.ID], from, m.Timestamp, f.host[m.ID]})
	}
}

// rows returns steptime.csv (a step's number and device time) and comm.csv without a
// group of tensor parallelism: device and host time of its forward passes, and host time
// of its loader.
func (f *faultDiag) rows() (steptime map[int]uint64, comm map[int][3]uint64) {
	steptime, comm = map[int]uint64{}, map[int][3]uint64{}
	for _, s := range f.events {
		number, err := strconv.Atoi(strings.TrimPrefix(s.name, "step "))
		if err != nil {
			continue
		}

		steptime[number] = s.to - s.from
		var row [3]uint64
		var passes, loads uint64
		for _, e := range f.events {
			switch {
			case e.name == "forward" && e.from >= s.from && e.from <= s.to:
				row[0] += e.to - e.from
				row[1] += e.host[1] - e.host[0]
				passes++
			case e.name == "dataloader" && e.from >= s.host[0] && e.from <= s.host[1]:
				row[2] += e.to - e.from
				loads++
			}
		}

		if passes > 0 && loads > 0 {
			comm[number] = [3]uint64{row[0] / passes, row[1] / passes, row[2] / loads}
		}
	}

	return steptime, comm
}

// TestTaskdFormatFeedsFaultDiag: a recorder that sees the host alone, written in TaskD's
// format, gives FaultDiag-online a row for each step, with the host's times as the
// device's. Our own readers know that they are the host's.
func TestTaskdFormatFeedsFaultDiag(t *testing.T) {
	t.Parallel()
	const steps = 60
	s := newSite(t, "")
	agent := s.agent("--format", "taskd", "--until-idle", "1s")
	s.emitter(0, 1, steps).wait()
	agent.wait()
	files, err := filepath.Glob(filepath.Join(s.dir, "j1", "0", "1*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}

	f := faultDiag{open: map[[2]uint64]uint64{}, names: map[uint64]string{}, host: map[uint64][2]uint64{}}
	calls := 0
	for _, path := range files {
		r, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		var p marker.Parser
		for lines := bufio.NewScanner(r); lines.Scan(); {
			if err := p.Parse(lines.Bytes()); err != nil {
				t.Fatalf("%s: %v", path, err)
			}

			f.add(&p.Marker)
		}
	}

	for _, e := range f.events {
		if strings.Contains(e.name, `"opName"`) {
			calls++
		}
	}

	steptime, comm := f.rows()
	if len(steptime) != steps || len(comm) != steps || calls != steps*emitterCalls {
		t.Fatalf("steptime.csv has %d rows, comm.csv %d, %d operations with device times; want %d, %d, %d", len(steptime), len(comm), calls, steps, steps, steps*emitterCalls)
	}

	stored := answerOf(t, s.dir, "")
	for _, step := range stored.Steps {
		n := int(step.Step)
		if uint64(step.StepNs) != steptime[n] || uint64(step.FPNs) != comm[n][0] || comm[n][0] != comm[n][1] || uint64(step.DataLoaderNs) != comm[n][2] {
			t.Errorf("step %d: FaultDiag-online reads %d and %v, we %+v", n, steptime[n], comm[n], step)
		}

		if step.Flags&1 == 0 {
			t.Errorf("step %d: flags %b, want host only", n, step.Flags)
		}
	}

	for _, k := range stored.Ranks {
		if k.Device != "" {
			t.Errorf("rank %d has device %s", k.Rank, k.Device)
		}
	}
}
