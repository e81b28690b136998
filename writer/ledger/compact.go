package ledger

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/laggard-dev/laggard/schemas/keep"
	"github.com/laggard-dev/laggard/schemas/row"
)

// Compact replaces the ledger by one in which the entries that keep refuses are
// summed: one entry per job, rank, incarnation, table, state, reason and kind,
// without segment and batch. Sums by state and reason stay what they were. A crash
// leaves the old file or the new one.
func (l *Ledger) Compact(keep func(row.Ledger) bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.locked(l.clean); err != nil {
		return fmt.Errorf("compact ledger %s: %w", l.path, err)
	}

	err := l.locked(func() error {
		size, err := l.repair()
		if err != nil {
			return err
		}

		lines, err := compacted(io.NewSectionReader(l.f, 0, size), keep)
		if err != nil {
			return err
		}

		return l.swap(func(w io.Writer) error {
			_, err := w.Write(lines)
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("compact ledger %s: %w", l.path, err)
	}

	return nil
}

// compacted returns the lines of the new file: sums first.
func compacted(r io.Reader, keep func(row.Ledger) bool) ([]byte, error) {
	sums := make(map[row.Ledger]row.Ledger)
	var kept []byte
	_, err := each(r, func(e row.Ledger) error {
		if keep != nil && keep(e) {
			kept = appendLine(kept, &e, portion{})
			return nil
		}

		key := row.Ledger{
			Job: e.Job, Rank: e.Rank, Incarnation: e.Incarnation, Table: e.Table,
			State: e.State, Reason: e.Reason, Kind: e.Kind,
		}
		s, ok := sums[key]
		if !ok {
			s = key
		}

		s.Records += e.Records
		s.Bytes += e.Bytes
		s.AtNs = max(s.AtNs, e.AtNs)
		sums[key] = s
		return nil
	})
	if err != nil {
		return nil, err
	}

	all := make([]row.Ledger, 0, len(sums))
	for _, s := range sums {
		all = append(all, s)
	}

	slices.SortFunc(all, func(a, b row.Ledger) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Incarnation, b.Incarnation),
			cmp.Compare(a.Table, b.Table), cmp.Compare(a.State, b.State), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Kind, b.Kind))
	})
	var lines []byte
	for i := range all {
		lines = appendLine(lines, &all[i], portion{})
	}

	return append(lines, kept...), nil
}

// swap puts a new file in the ledger's place. The lock is held, and goes with the old file: whoever waits for
// it finds that the name is another's now, and opens that.
func (l *Ledger) swap(fill func(io.Writer) error) error {
	if err := keep.Sweep(filepath.Dir(l.path)); err != nil {
		return err
	}

	if err := keep.Replace(l.path, 0o644, fill); err != nil {
		return err
	}

	err := l.f.Close()
	l.f = nil
	return err
}
