package dataparallel

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"time"
)

// ring is the workers' ring of TCP connections: each sends to the next rank and
// receives from the previous one.
type ring struct {
	rank, world int
	next, prev  net.Conn
	out, in     []byte
}

// joinRing connects to the next rank's listener and accepts the previous one. All ranks
// connect first: the connection waits in the other's backlog until it accepts.
func joinRing(rank, world int, listener net.Listener, addresses []string, timeout time.Duration) (*ring, error) {
	r := &ring{rank: rank, world: world}
	if world == 1 {
		return r, nil
	}

	address := addresses[(rank+1)%world]
	next, err := net.DialTimeout("tcp", address, timeout)
	if err != nil {
		return nil, fmt.Errorf("join ring: connect to the next rank at %s: %w", address, err)
	}

	if l, ok := listener.(*net.TCPListener); ok {
		l.SetDeadline(time.Now().Add(timeout))
	}

	prev, err := listener.Accept()
	if err != nil {
		next.Close()
		return nil, fmt.Errorf("join ring: wait for the previous rank: %w", err)
	}

	r.next, r.prev = next, prev
	return r, nil
}

// close closes the connections to both neighbours.
func (r *ring) close() {
	if r.next != nil {
		r.next.Close()
		r.prev.Close()
	}
}

// allReduce sums x over all ranks in place: a reduce-scatter and an all-gather of
// world-1 rounds each, as NCCL's and HCCL's rings do it.
func (r *ring) allReduce(x []float32) error {
	// The sums of the first world-1 rounds end up in one chunk a rank; in the others these
	// go around. 2*world keeps a chunk's index above 0.
	for round := 0; round < 2*(r.world-1); round++ {
		gathering := round >= r.world-1
		send := r.chunk(x, r.rank-round+2*r.world)
		receive := r.chunk(x, r.rank-round-1+2*r.world)
		if err := r.trade(r.next, send, r.prev, receive, !gathering); err != nil {
			return fmt.Errorf("all-reduce round %d: %w", round, err)
		}
	}

	return nil
}

// chunk returns the i-th (modulo world) part of x.
func (r *ring) chunk(x []float32, i int) []float32 {
	i %= r.world
	n := len(x)
	return x[i*n/r.world : (i+1)*n/r.world]
}

// swap trades x for the same amount of the pair's other rank: the next one of an
// odd rank, the previous one of an even rank.
func (r *ring) swap(x []float32) error {
	peer := r.next
	if r.rank%2 == 0 {
		peer = r.prev
	}

	if err := r.trade(peer, x, peer, x, false); err != nil {
		return fmt.Errorf("swap with the pair's other rank: %w", err)
	}

	return nil
}

// trade sends to one neighbour while it receives from another one, as float32 in little-endian order. What
// comes is added to receive, or replaces it. It sends in a goroutine of its own: with all ranks sending
// first, full socket buffers would stop the ring for good.
func (r *ring) trade(to net.Conn, send []float32, from net.Conn, receive []float32, add bool) error {
	r.out = r.out[:0]
	for _, v := range send {
		r.out = binary.LittleEndian.AppendUint32(r.out, math.Float32bits(v))
	}

	sent := make(chan error, 1)
	go func() {
		_, err := to.Write(r.out)
		sent <- err
	}()
	r.in = slices.Grow(r.in[:0], 4*len(receive))[:4*len(receive)]
	_, err := io.ReadFull(from, r.in)
	if err = cmp.Or(err, <-sent); err != nil {
		return err
	}

	for i := range receive {
		v := math.Float32frombits(binary.LittleEndian.Uint32(r.in[4*i:]))
		if add {
			v += receive[i]
		}

		receive[i] = v
	}

	return nil
}
