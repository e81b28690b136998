package source

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// inOrder calls produce for 0…n-1 on several goroutines, and consume with the results in order, one
// after the other. At most one result a worker and one more are held at a time. It returns the first
// error after every goroutine has ended.
func inOrder[T any](ctx context.Context, n, workers int, produce func(context.Context, int) (T, error), consume func(int, T) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(1, workers) + 1) // one consumes, or waits to, while the others produce
	turn := make(chan struct{})     // closed when all results so far are consumed
	close(turn)
	for i := range n {
		mine, next := turn, make(chan struct{})
		turn = next
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}

			v, err := produce(ctx, i)
			if err != nil {
				return err
			}

			select {
			case <-mine:
			case <-ctx.Done():
				return ctx.Err()
			}

			if err := consume(i, v); err != nil {
				return err
			}

			close(next)
			return nil
		})
	}

	return g.Wait()
}
