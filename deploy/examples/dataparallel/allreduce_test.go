package dataparallel

import (
	"fmt"
	"net"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

func TestAllReduceSums(t *testing.T) {
	for _, world := range []int{1, 2, 3, 6} {
		t.Run(fmt.Sprint(world), func(t *testing.T) { allReduceSums(t, world, 1000) })
	}
}

func allReduceSums(t *testing.T, world, n int) {
	listeners := make([]net.Listener, world)
	addresses := make([]string, world)
	for i := range listeners {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		listeners[i], addresses[i] = l, l.Addr().String()
	}

	results := make([][]float32, world)
	var g errgroup.Group
	for rank := range world {
		g.Go(func() error {
			r, err := joinRing(rank, world, listeners[rank], addresses, 10*time.Second)
			if err != nil {
				return err
			}
			defer r.close()
			x := make([]float32, n)
			for i := range x {
				x[i] = float32(rank + i)
			}

			results[rank] = x
			return r.allReduce(x)
		})
	}

	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}

	for rank, x := range results {
		for i, got := range x {
			want := float32(world*i + world*(world-1)/2)
			if got != want {
				t.Fatalf("world %d rank %d: x[%d]=%v, want %v", world, rank, i, got, want)
			}
		}
	}
}
