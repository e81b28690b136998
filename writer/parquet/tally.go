package parquet

import (
	"context"
	"fmt"
	"slices"

	layout "github.com/laggard-dev/laggard/schemas/parquet"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/ship"
)

// Tally implements ship.Sink.
func (s *Sink) Tally(ctx context.Context, job string) (held map[ship.Place]ship.Held, ledger []row.Ledger, err error) {
	type raw struct { // what is read of raw rows
		ship.RecordKey
		Job  string `parquet:"job"`
		Rank uint32 `parquet:"rank"`
		Kind string `parquet:"kind"`
	}
	held = map[ship.Place]ship.Held{}
	offsets := map[ship.Place][]uint64{}
	err = count(ctx, s.dir, row.RecordsTable, job, func(r *raw) {
		if r.Job == job {
			p := ship.Place{Table: row.RecordsTable, Rank: r.Rank, Of: r.Segment, Kind: r.Kind}
			offsets[p] = append(offsets[p], r.Offset)
		}
	})
	if err != nil {
		return nil, nil, err
	}

	// Raw rows are many: sorted offsets tell how many differ in less memory than a set.
	for p, all := range offsets {
		slices.Sort(all)
		held[p] = ship.Held{Rows: uint64(len(all)), Distinct: uint64(len(slices.Compact(all)))}
	}

	steps := map[ship.StepKey]bool{}
	err = count(ctx, s.dir, row.StepsTable, job, func(k *ship.StepKey) {
		if k.Job == job {
			hold(held, ship.Place{Table: row.StepsTable, Rank: k.Rank, Of: k.Incarnation}, ship.Held{Distinct: one(!steps[*k])})
			steps[*k] = true
		}
	})
	if err != nil {
		return nil, nil, err
	}

	windows := map[ship.CommunicationKey]bool{}
	err = count(ctx, s.dir, row.CommunicationsTable, job, func(r *row.Communication) {
		if r.Job == job {
			k := ship.KeyOfCommunication(r)
			hold(held, ship.Place{Table: row.CommunicationsTable, Rank: r.Rank, Of: r.Incarnation}, ship.Held{
				Distinct: one(!windows[k]), Complements: one(!windows[k] && row.IsComplement(r.Repeat)), Calls: uint64(r.Calls),
			})
			windows[k] = true
		}
	})
	if err != nil {
		return nil, nil, err
	}

	err = count(ctx, s.dir, row.LedgerTable, job, func(r *row.Ledger) {
		if r.Job == job {
			ledger = append(ledger, *r)
		}
	})
	return held, ledger, err
}

// hold counts one more row of a place.
func hold(held map[ship.Place]ship.Held, p ship.Place, more ship.Held) {
	h := held[p]
	held[p] = ship.Held{
		Rows: h.Rows + 1, Distinct: h.Distinct + more.Distinct, Complements: h.Complements + more.Complements, Calls: h.Calls + more.Calls,
	}
}

// one is 1 where it is so.
func one(so bool) uint64 {
	if so {
		return 1
	}

	return 0
}

// count calls do with each row of a job's files of a table.
func count[T any](ctx context.Context, dir, table, job string, do func(*T)) error {
	files, err := layout.Files(layout.Folder(dir, table, job))
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
