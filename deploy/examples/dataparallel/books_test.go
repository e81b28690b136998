package dataparallel

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/laggard-dev/laggard/analyzer/source"
	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
)

// pause is how long a worker of the dynamic cluster is away: LAGGARD_PAUSE, else
// short.
func pause() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("LAGGARD_PAUSE")); err == nil {
		return d
	}

	return 2 * time.Second
}

// stored is what the store holds of one process.
type stored struct {
	rank  row.Rank
	steps []string            // step/repeat, sorted
	seqs  map[uint32][]uint64 // by ring
	count uint64              // records of ranges that ended
	open  int                 // and of such that never did
	calls uint64              // of the table communications
	comms uint64              // records of the kind
}

// shelf collects a job by process. Its add takes rows.
type shelf map[uint64]*stored

func (s shelf) of(incarnation uint64) *stored {
	if s[incarnation] == nil {
		s[incarnation] = &stored{seqs: map[uint32][]uint64{}}
	}

	return s[incarnation]
}

func (s shelf) add(rows *row.Rows) {
	for _, r := range rows.Ranks {
		s.of(r.Incarnation).rank = r
	}

	for _, r := range rows.Steps {
		p := s.of(r.Incarnation)
		if r.Flags&row.FlagOpen == 0 {
			p.steps = append(p.steps, fmt.Sprintf("%d/%d", r.Step, r.Repeat))
		}
	}

	for _, r := range rows.Communications {
		s.of(r.Incarnation).calls += uint64(r.Calls)
	}
}

func (s shelf) addRecord(r *row.Record) {
	p := s.of(r.Incarnation)
	if r.Kind == record.Communication.String() {
		p.comms++
	}

	if r.Open != 0 {
		p.open++
		return
	}

	p.count++
	p.seqs[r.Ring] = append(p.seqs[r.Ring], r.Seq)
}

// books holds the store to what the processes say they did: whose record is where,
// each once, by count and by sequence number.
func (c *cluster) books() {
	c.t.Helper()
	ctx := context.Background()
	src, err := source.Open(ctx, c.store(), source.Options{})
	if err != nil {
		c.t.Fatal(err)
	}
	defer src.Close()
	s := shelf{}
	if _, err := src.Load(ctx, jobName, s.add, source.Options{}); err != nil {
		c.t.Fatal(err)
	}

	err = src.Records(ctx, jobName, source.Options{}, func(_ []row.Rank, records []row.Record) error {
		for i := range records {
			s.addRecord(&records[i])
		}

		return nil
	})
	if err != nil {
		c.t.Fatal(err)
	}

	if len(s) != len(c.all) {
		c.t.Errorf("%d processes stored, %d ran", len(s), len(c.all))
	}

	var emitted, kept uint64
	for _, m := range c.all {
		i := slices.IndexFunc(c.all, func(o *member) bool { return o == m })
		p := s.process(m)
		if p == nil {
			c.t.Errorf("process %d (rank %d on %s) is not stored", i, m.rank, m.node)
			continue
		}

		c.check(m, p)
		emitted += m.ranges
		kept += p.count
	}

	c.t.Logf("%d processes, %d records reported by them, %d stored", len(c.all), emitted, kept)
}

func (s shelf) process(m *member) *stored {
	for _, p := range s {
		if int(p.rank.PID) == m.command.Process.Pid && int(p.rank.Rank) == m.rank {
			return p
		}
	}

	return nil
}

// check holds one process's rows to its reports. What a killed one did after its
// last report is not known to the report: at most a step.
func (c *cluster) check(m *member, p *stored) {
	c.t.Helper()
	who := fmt.Sprintf("rank %d on %s", m.rank, m.node)
	if p.rank.Node != m.node || p.rank.Pod != "pod-of-"+m.node {
		c.t.Errorf("%s: stored as on %s in %s", who, p.rank.Node, p.rank.Pod)
	}

	const perStep = 8
	if p.count < m.ranges || p.count > m.ranges && (!m.killed || p.count > m.ranges+perStep) {
		c.t.Errorf("%s: %d records stored, %d reported, killed: %v", who, p.count, m.ranges, m.killed)
	}

	if p.open > 0 && !m.killed || p.open > 2 {
		c.t.Errorf("%s: %d ranges that never ended, killed: %v", who, p.open, m.killed)
	}

	for ring, seqs := range p.seqs {
		slices.Sort(seqs)
		for i, seq := range seqs {
			if seq != uint64(i) {
				c.t.Errorf("%s: ring %d: record %d has sequence number %d", who, ring, i, seq)
				break
			}
		}
	}

	if p.calls != p.comms {
		c.t.Errorf("%s: %d communications stored, %d counted in windows", who, p.comms, p.calls)
	}

	times := map[int]int{}
	var want []string
	for _, step := range m.steps {
		want = append(want, fmt.Sprintf("%d/%d", step, times[step]))
		times[step]++
	}

	slices.Sort(want)
	slices.Sort(p.steps)
	if m.killed { // the step after the last report
		p.steps = slices.DeleteFunc(p.steps, func(s string) bool { return !slices.Contains(want, s) })
	}

	if !slices.Equal(want, p.steps) {
		c.t.Errorf("%s: steps stored %v, reported %v", who, p.steps, want)
	}
}
