package ship

import (
	"context"
	"fmt"

	"github.com/laggard-dev/laggard/schemas/row"
)

// Verdicts stores decisions, those that the store has not yet. It is one attempt:
// the caller keeps what failed and tries again, and a row is never stored twice.
func Verdicts(ctx context.Context, sink Sink, verdicts []row.Verdict) error {
	groups := map[order]*Batch{}
	var batches []*Batch
	for _, v := range verdicts {
		at := order{v.Job, partition(v.AtNs)}
		b := groups[at]
		if b == nil {
			b = &Batch{Table: row.VerdictsTable, Job: at.job, Day: at.day}
			groups[at] = b
			batches = append(batches, b)
		}

		b.Verdicts = append(b.Verdicts, v)
	}

	for _, b := range batches {
		b.seal()
		stored, err := sink.Stored(ctx, b)
		if err != nil {
			return fmt.Errorf("store verdicts: %w", err)
		}

		if b = b.missing(stored); b.Len() == 0 {
			continue
		}

		if err := sink.Insert(ctx, b); err != nil {
			return fmt.Errorf("store verdicts: %w", err)
		}
	}

	return nil
}
