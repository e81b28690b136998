package parquet

import (
	"context"
	"fmt"
	"slices"

	layout "github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/ship"
)

// Tally implements ship.Counter.
func (s *Sink) Tally(ctx context.Context, job string) (*ship.Tally, error) {
	t := ship.NewTally()
	offsets := map[ship.SegmentKind][]uint64{}
	err := count(ctx, s.dir, row.RecordsTable, job, func(r *recordPlace) {
		if r.Job == job {
			k := ship.SegmentKind{Rank: r.Rank, Segment: r.Segment, Kind: r.Kind}
			offsets[k] = append(offsets[k], r.Offset)
		}
	})
	if err != nil {
		return nil, err
	}

	for k, all := range offsets {
		slices.Sort(all)
		t.Records[k] = ship.Held{Rows: uint64(len(all)), Distinct: uint64(len(slices.Compact(all)))}
	}

	steps := map[ship.StepKey]bool{}
	err = count(ctx, s.dir, row.StepsTable, job, func(k *ship.StepKey) {
		if k.Job == job {
			hold(t.Steps, ship.Process{Rank: k.Rank, Incarnation: k.Incarnation}, !steps[*k])
			steps[*k] = true
		}
	})
	if err != nil {
		return nil, err
	}

	windows := map[ship.CommunicationKey]bool{}
	err = count(ctx, s.dir, row.CommunicationsTable, job, func(r *storedWindow) {
		if r.Job == job {
			k := r.CommunicationKey
			p := ship.Process{Rank: r.Rank, Incarnation: r.Incarnation}
			t.Calls[p] += uint64(r.Calls)
			hold(t.Communications, p, !windows[k])
			if row.IsComplement(r.Repeat) && !windows[k] {
				h := t.Communications[p]
				h.Complements++
				t.Communications[p] = h
			}

			windows[k] = true
		}
	})
	if err != nil {
		return nil, err
	}

	err = count(ctx, s.dir, row.LedgerTable, job, func(r *row.Ledger) {
		if r.Job == job {
			t.Ledger = append(t.Ledger, *r)
		}
	})
	return t, err
}

func hold(m map[ship.Process]ship.Held, p ship.Process, distinct bool) {
	h := m[p]
	h.Rows++
	if distinct {
		h.Distinct++
	}

	m[p] = h
}

// recordPlace is what a tally reads of a raw row.
type recordPlace struct {
	ship.RecordKey
	Job  string `parquet:"job"`
	Rank uint32 `parquet:"rank"`
	Kind string `parquet:"kind"`
}

// count calls do with each row of a job's files of a table.
func count[T any](ctx context.Context, dir, table, job string, do func(*T)) error {
	files, err := layout.Files(dir, table, &job)
	if err != nil {
		return fmt.Errorf("count %s: %w", table, err)
	}

	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return err
		}

		err := layout.Read(f, func(rows []T) error {
			for i := range rows {
				do(&rows[i])
			}

			return nil
		})
		if err != nil {
			return fmt.Errorf("count %s: %w", table, err)
		}
	}

	return nil
}
