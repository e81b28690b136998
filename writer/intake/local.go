package intake

import (
	"errors"
	"io/fs"
	"os"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/writer/ledger"
)

// agedOf returns the test for segments of a rank that the ledger of the profiling
// directory holds as lost, so that they may not be shipped; nil where nothing is. The
// ledger is read again when it has changed: each rank directory that is taken asks, and the file
// grows with every segment that ageing took. That there is none is no error.
func (e *engine) agedOf(rank record.RankID) (func(name string) bool, error) {
	info, err := os.Stat(ledger.Path(e.tree.Root()))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case e.aged == nil || info.Size() != e.ledger.Size() || !info.ModTime().Equal(e.ledger.ModTime()):
		aged, err := ledger.Aged(e.tree.Root())
		if err != nil {
			return nil, err
		}

		e.aged, e.ledger = aged, info
	}

	aged := e.aged
	if aged == nil {
		return nil, nil
	}

	return func(name string) bool { return aged(rank, name) }, nil
}
