package ship

import (
	"context"
	"sync"
)

// storeAll stores batches, wave by wave: one batch, or one of each table where the sink
// takes several at once.
func (s *Shipper) storeAll(ctx context.Context, batches []cutBatch) error {
	for len(batches) > 0 {
		var wave, rest []cutBatch
		if wave, rest = batches[:1], batches[1:]; s.atOnce {
			wave, rest = firstOfTables(batches)
		}
		var due []*Batch
		for _, c := range wave {
			b, err := s.sift(ctx, c)
			if err != nil {
				return err
			}
			if b.Len() > 0 {
				due = append(due, b)
			}
		}
		if err := s.insertAtOnce(ctx, due); err != nil {
			return err
		}
		batches = rest
	}
	return nil
}

// firstOfTables takes the first batch of each table: those of one table stay one after
// the other, so that each is looked up when those before it are stored.
func firstOfTables(batches []cutBatch) (first, rest []cutBatch) {
	seen := map[string]bool{}
	for _, c := range batches {
		if seen[c.Table] {
			rest = append(rest, c)
			continue
		}
		seen[c.Table] = true
		first = append(first, c)
	}
	return first, rest
}

// insertAtOnce stores batches of different tables. What fails is tried again one by one,
// when what did not is accounted for.
func (s *Shipper) insertAtOnce(ctx context.Context, batches []*Batch) error {
	if len(batches) == 1 {
		return s.insert(ctx, batches[0], false)
	}
	failed := make([]error, len(batches))
	var all sync.WaitGroup
	for i, b := range batches {
		all.Go(func() { failed[i] = s.sink.Insert(ctx, b) })
	}
	all.Wait()
	for i, b := range batches {
		if failed[i] == nil {
			s.acknowledged(b)
		}
	}
	for i, b := range batches {
		if failed[i] == nil {
			continue
		}
		over, doubt, err := s.outcome(ctx, b, failed[i])
		if err == nil && !over {
			err = s.insert(ctx, b, doubt)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
