package ship

import (
	"context"
	"fmt"

	"github.com/laggard-dev/laggard/schemas/row"
)

// Verdicts stores decisions, those that the store has not yet. It is one attempt:
// the caller keeps what failed and tries again, and a row is never stored twice.
func Verdicts(ctx context.Context, sink Sink, verdicts []row.Verdict) error {
	for _, b := range Cut(&row.Rows{Verdicts: verdicts}) {
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
