package source

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// inOrder calls produce for 0…n-1 on several goroutines and hands the results to
// consume in order, on the calling goroutine. At most one result a worker and one more
// are held at a time. It returns the first error after every goroutine has ended.
func inOrder[T any](ctx context.Context, n, workers int, produce func(context.Context, int) (T, error), consume func(int, T) error) error {
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	workers = max(1, min(workers, n))
	g.SetLimit(workers + 1) // one more starts them
	// A channel of channels keeps the order: each result comes through its own, and they queue as their
	// work began. The queue's length bounds how far ahead of the consumer the workers are.
	order := make(chan chan T, workers)
	g.Go(func() error {
		defer close(order)
		for i := range n {
			out := make(chan T, 1)
			select {
			case order <- out:
			case <-ctx.Done():
				return ctx.Err()
			}

			g.Go(func() error {
				v, err := produce(ctx, i)
				if err == nil {
					out <- v
				}

				return err
			})
		}

		return nil
	})
	failed := consumeAll(ctx, order, consume)
	if failed != nil {
		cancel()
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

// consumeAll hands the results to consume until that fails or ctx ends.
func consumeAll[T any](ctx context.Context, order <-chan chan T, consume func(int, T) error) error {
	i := 0
	for out := range order {
		select {
		case v := <-out:
			if err := consume(i, v); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}

		i++
	}

	return nil
}
