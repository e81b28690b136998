// Package ship brings finished rows into a store, each row once.
//
// Rows of one stream (one rank directory) come in an order that depends on the
// files' content alone, and are inserted in that order. So what a store holds of
// a stream is a prefix of it, whoever put it there, and a shipper that knows
// nothing finds its place by looking: the first batches of each stream and table
// are looked up row by row and what is there is left out, until one has nothing
// there. After any doubt (an insert that was not acknowledged may well have been
// carried out) it looks again. There is no second queue: what is not
// acknowledged is still in the segments, and Put blocks when the memory is used up.
//
// Nothing is written down about an insert that is under way. Who comes after a crash, in
// whatever batches, waits until no insert of these rows is to be seen any more, lets a
// replica fetch what others have, and looks (benchmarks/cluster: OtherReplica).
//
// Invariant: a mark is acknowledged (Stream.Acked) only when every row put up to
// it is in the store, or in the dead-letter file with its reason; where the store keeps
// copies in a second one, too, unless none is made within a minute (storedRound).
//
// Caveat: two shippers must not ship one stream at the same time; the leases of
// writer/intake see to that. A row whose partition (day) lies before one that
// its stream already had breaks the order, so it is always looked up.
package ship

import (
	"context"
	"errors"
	"fmt"

	"github.com/laggard-dev/laggard/schemas/row"
)

// Sink is a store. A sink is used by one goroutine at a time.
type Sink interface {
	// Name is the store without secrets: for logs, and for the cursor's name.
	Name() string
	// Ping tells cheaply whether the store can be reached; the breaker asks it before it
	// lets an insert through.
	Ping(ctx context.Context) error
	// Create makes what is missing (tables, columns, folders). It is called
	// before the first insert, and again after a schema error.
	Create(ctx context.Context) error
	// Probe tells whether the store takes rows, without storing any. It is called after
	// Create.
	Probe(ctx context.Context) error
	// Insert stores a batch: all of it or nothing. A returned *Error says what to
	// do; any other error is taken as transient and in doubt. The batch and its
	// rows stay the caller's; an insert of the same batch may follow.
	Insert(ctx context.Context, b *Batch) error
	// Stored tells which rows of b the store has already, by row identity. It
	// waits first until no earlier insert of these rows can still be under way.
	Stored(ctx context.Context, b *Batch) ([]bool, error)
	// Sums returns, for each row of a batch of communications, the sums of what is
	// stored of its window (Calls, Steps, TotalNs, Bytes) and the number of rows that
	// these are in, so that a window which was stored before its end can be completed.
	// It is called right after Stored.
	Sums(ctx context.Context, b *Batch) ([]Sum, error)
	// Tally counts what the store holds of a job, and reads its part of the table ledger.
	Tally(ctx context.Context, job string) (map[Place]Held, []row.Ledger, error)
	// Close frees what the sink holds; it does not wait for inserts.
	Close() error
}

// Remote is a sink whose store is servers: it holds connections to them, they keep each row in
// several places and acknowledge what is in one, and the sink writes one shard of several.
// What shard it chose is kept with the cursor, so that the same rows come to the same place
// after shards were added.
type Remote interface {
	Sink
	// Rest closes connections until the next call: a server has only so many. What is
	// known of the store stays.
	Rest()
	// Mark names all that was inserted until now; nil where there is nothing to wait for.
	Mark(ctx context.Context) (any, error)
	// Copied reports whether it is in a second place.
	Copied(ctx context.Context, mark any) (bool, error)
	// Shard is what was chosen, "" before the first call or where there is nothing to choose.
	Shard() string
	// KeepShard tells the choice of an earlier process, or of ShardOf: before the first call,
	// or when nothing is under way.
	KeepShard(name string)
	// ShardOf is the shard that the agent of a node chooses for a job, "" where there is
	// nothing to choose.
	ShardOf(ctx context.Context, job, node string) (string, error)
}

// Sum is what is stored of a window.
type Sum struct {
	row.Communication
	Rows uint64
}

// Class says what to do about an error of a sink.
type Class uint8

const (
	// Transient errors go away: retried for ever.
	Transient Class = iota
	// Refused: the store will not take this kind of data from us (a missing
	// table, a changed type, a wrong password). Nothing is dropped: the shipper
	// pauses, raises the alarm, and goes on by itself once it has been put right.
	Refused
	// Poison: the store refuses a value in the batch. The shipper finds the row.
	Poison
)

// String returns "transient", "refused" or "poison".
func (c Class) String() string {
	switch c {
	case Refused:
		return "refused"
	case Poison:
		return "poison"
	}

	return "transient"
}

// Error is an error of a sink that knows its class.
type Error struct {
	Class Class
	// Doubt is true when the rows may have been stored all the same.
	Doubt bool
	// Busy is true when the store has too much to do: fewer inserts help it.
	Busy bool
	// Hint is what a person can do about it, "" for nothing.
	Hint string
	Err  error
}

// Error returns the cause, and the hint where there is one.
func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Err.Error()
	}

	return fmt.Sprintf("%v; %s", e.Err, e.Hint)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// classify returns the *Error in err, or the careful reading of a plain error.
func classify(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}

	return &Error{Class: Transient, Doubt: true, Err: err}
}
