package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"

	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/rollup"
	"github.com/laggard-dev/laggard/writer/segment"
)

// rankReader follows one rank's directory.
type rankReader struct {
	dir     segment.RankDir
	stream  *rollup.Stream
	segment string // being read, "" before the first
	offset  int64
	told    bool // the stream was, of segment
	newest  int64
	length  int64 // of the last step
	atEnd   bool  // everything that is there was read
	over    bool  // the stream was ended
	rows    row.Rows
	damaged map[string]string // why, by the name of the segment
}

const (
	// takeBytes of lines lie between two looks at what is finished.
	takeBytes = 64 << 10
	// roundBytes of lines are a round's at most: a rank that finishes no step (its job hangs, or
	// the kind Step is off) holds up the others no longer than it takes to read them.
	roundBytes = 8 << 20
)

// read goes on until a finished step starts at `until` or later, the round's
// bytes are used up, or there is no more.
func (k *rankReader) read(ctx context.Context, until int64, drain bool) (*row.Rows, error) {
	budget := int64(roundBytes)
	for !k.atEnd && (k.newest == math.MinInt64 || k.newest < until) && budget > 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}

		done, n, err := k.some(min(budget, takeBytes))
		if err != nil {
			return nil, fmt.Errorf("read rank %d: %w", k.dir.Rank, err)
		}

		budget -= n
		k.atEnd = done
		k.collect()
	}

	if k.atEnd && drain && !k.over {
		k.stream.End()
		k.over = true
		k.collect()
	}

	return &k.rows, nil
}

// collect takes what is finished. Raw records and the account are of no use to the feed, and large.
func (k *rankReader) collect() {
	from := len(k.rows.Steps)
	k.stream.Take(&k.rows)
	k.rows.Raws, k.rows.Ledger = row.Raws{}, nil
	for _, s := range k.rows.Steps[from:] {
		k.newest = max(k.newest, s.StartNs)
		if s.StepNs > 0 {
			k.length = s.StepNs
		}
	}
}

// some reads about n bytes of lines. done says that there are no more now.
func (k *rankReader) some(n int64) (done bool, read int64, err error) {
	list, err := segment.List(k.dir.Path)
	if err != nil {
		return false, 0, err
	}

	// The list is made anew each time: the agent rotates, compresses and ages segments meanwhile, so
	// that a name has .zst behind it from some look on.
	at := slices.IndexFunc(list, func(s segment.Info) bool { return segment.Plain(s.Name) == k.segment })
	if at < 0 {
		// Not begun, or the segment was aged away: the next one that is there.
		was, _ := segment.Number(k.segment)
		at = slices.IndexFunc(list, func(s segment.Info) bool { return k.segment == "" || s.Number > was })
		if at < 0 {
			return true, 0, nil
		}

		k.segment, k.offset, k.told = segment.Plain(list[at].Name), 0, false
	}

	path := filepath.Join(k.dir.Path, list[at].Name)
	f, err := segment.OpenReader(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, 1, nil // aged away, or compressed, just now: look again
	}

	if err != nil {
		return false, 0, err
	}

	defer func() { err = errors.Join(err, f.Close()) }()
	if k.told {
		err = f.SeekTo(k.offset)
	}

	for err == nil && read < n {
		var line []byte
		var offset int64
		if line, offset, err = f.Next(); err != nil {
			break
		}

		if !k.told { // of a process before us the first line is none of those to read
			k.stream.Segment(segment.Identity(k.dir.Job, k.dir.Rank, list[at].Name, line), list[at].Name)
			k.told = true
			if k.offset > 0 {
				err = f.SeekTo(k.offset)
				continue
			}
		}

		k.stream.Line(offset, line)
		k.offset = f.Offset()
		read += int64(len(line)) + 1
	}

	switch {
	case errors.Is(err, io.EOF) && (k.told || k.offset == 0 || f.Damage() != nil):
		return k.end(f, list, at), read + 1, nil
	case err != nil:
		return false, read, fmt.Errorf("read %s: %w", path, err)
	}

	return false, read, nil
}

// end goes on behind the segment that was read to its end, where another follows;
// last says that none does.
func (k *rankReader) end(f *segment.Reader, list []segment.Info, at int) (last bool) {
	if damage := f.Damage(); damage != nil {
		if k.damaged == nil {
			k.damaged = map[string]string{}
		}

		k.damaged[list[at].Name] = damage.Error()
	}

	if at == len(list)-1 {
		return true
	}

	// Nobody writes to a segment that another one follows, so a line without its end never gets one.
	k.stream.Torn(f.Torn())
	k.segment, k.offset, k.told = segment.Plain(list[at+1].Name), 0, false
	return false
}
