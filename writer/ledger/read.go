package ledger

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/writer/segment"
)

// maxLine bounds a line that is read; ours have some 300 bytes.
const maxLine = 1 << 20

// Read calls take for each complete entry of the ledger of a profiling directory, in
// order. Lines that are none are counted, and those of an Append of which not all
// are there. That there is no ledger is no error.
func Read(dir string, take func(row.Ledger) error) (bad int, err error) {
	f, err := os.OpenFile(Path(dir), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}

	if err != nil {
		return 0, fmt.Errorf("open ledger: %w", err)
	}

	defer f.Close()
	return each(f, take)
}

// each is Read of an open file.
func each(from io.Reader, take func(row.Ledger) error) (bad int, err error) {
	r := bufio.NewReaderSize(from, 64<<10)
	var group []row.Ledger // what was appended together, until all of it is there; of so many
	of := 0
	for {
		line, err := readLine(r)
		if errors.Is(err, io.EOF) {
			return bad + len(group), nil // what follows the last '\n' is torn
		}

		if err != nil {
			return bad, fmt.Errorf("read ledger: %w", err)
		}

		var e entry
		damaged := json.Unmarshal(line, &e) != nil
		if e.Of <= 1 { // appended alone
			e.Part, e.Of = 1, 1
		}

		// Groups do not mix: who appends holds the lock for all of one.
		if damaged || e.Part != len(group)+1 || len(group) > 0 && e.Of != of {
			bad += len(group)
			group = group[:0]
		}

		if damaged || e.Part != len(group)+1 {
			bad++
			continue
		}

		group, of = append(group, e.Ledger), e.Of
		if len(group) < of {
			continue
		}

		for _, l := range group {
			if err := take(l); err != nil {
				return bad, err
			}
		}

		group = group[:0]
	}
}

// readLine returns the next complete line; of one that is too long, its beginning.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) <= maxLine {
			line = append(line, part...)
		}

		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// Aged returns a test for segments whose loss is in the ledger of a profiling
// directory: by rank and file name, compressed or not. Such a segment is
// being deleted; nothing of it may be shipped any more.
func Aged(dir string) (func(rank record.RankID, name string) bool, error) {
	type key struct {
		rank record.RankID
		name string
	}
	aged := make(map[key]bool)
	_, err := Read(dir, func(r row.Ledger) error {
		if r.State == "aged" && r.Name != "" {
			aged[key{record.RankID{Job: r.Job, Rank: int(r.Rank)}, segment.Plain(r.Name)}] = true
		}

		return nil
	})
	return func(rank record.RankID, name string) bool {
		return aged[key{rank, segment.Plain(name)}]
	}, err
}
