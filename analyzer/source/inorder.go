package source

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// inOrder calls produce for 0…n-1 on several goroutines and hands the results to
// consume in order, on the calling goroutine. At most one result a worker and one more
// are held at a time. It returns the first error after every goroutine has ended.
func inOrder[T any](ctx context.Context, n, workers int, produce func(context.Context, int) (T, error), consume func(int, T) error) error {
	type ticket struct {
		i   int
		out chan T
	}
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	workers = max(1, min(workers, n))
	work := make(chan ticket)
	order := make(chan ticket, workers)

	g.Go(func() error {
		defer close(work)
		defer close(order)
		for i := range n {
			t := ticket{i, make(chan T, 1)}
			select {
			case order <- t:
			case <-ctx.Done():
				return ctx.Err()
			}

			select {
			case work <- t:
			case <-ctx.Done():
				return ctx.Err()
			}
		}

		return nil
	})
	for range workers {
		g.Go(func() error {
			for t := range work {
				v, err := produce(ctx, t.i)
				if err != nil {
					return err
				}

				t.out <- v
			}

			return nil
		})
	}

	var failed error
consuming:
	for t := range order {
		select {
		case v := <-t.out:
			if failed = consume(t.i, v); failed != nil {
				cancel()
				break consuming
			}
		case <-ctx.Done():
			break consuming
		}
	}

	err := g.Wait()
	if failed != nil {
		return failed
	}

	if err == nil {
		err = outer.Err() // cancelled when the workers were done and the consumer was not
	}

	return err
}
