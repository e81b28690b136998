package intake

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/laggard-dev/laggard/writer/ledger"
)

// local is the ledger of the profiling directory, as far as it concerns what may
// be shipped. It is read again when it has changed.
type local struct {
	root string
	size int64
	at   time.Time
	aged func(job string, rank int, name string) bool
}

// refresh reads the ledger when it has changed. That there is none is no error.
func (l *local) refresh() error {
	info, err := os.Stat(ledger.Path(l.root))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err != nil {
		return err
	}

	if l.aged != nil && info.Size() == l.size && info.ModTime().Equal(l.at) {
		return nil
	}

	aged, err := ledger.Aged(l.root)
	if err != nil {
		return err
	}

	l.aged, l.size, l.at = aged, info.Size(), info.ModTime()
	return nil
}

// of returns the test for one rank's segments; nil when nothing is aged.
func (l *local) of(job string, rank int) func(name string) bool {
	aged := l.aged
	if aged == nil {
		return nil
	}

	return func(name string) bool { return aged(job, rank, name) }
}
