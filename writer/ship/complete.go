package ship

import (
	"context"
	"fmt"
	"slices"

	"github.com/laggard-dev/laggard/schemas/row"
)

// complete makes complements of the windows of c that are stored, but not whole: their
// rows are then no longer stored.
func (s *Shipper) complete(ctx context.Context, c *Batch, stored []bool) error {
	if c.Table != row.CommunicationsTable || !slices.Contains(stored, true) {
		return nil
	}

	var sums []Sum
	err := s.until(ctx, "sum up "+c.Table, func() (err error) {
		sums, err = s.sink.Sums(ctx, c)
		if err == nil && len(sums) != c.Len() {
			return fmt.Errorf("BUG: the store summed up %d of %d windows", len(sums), c.Len())
		}

		return err
	})
	if err != nil {
		return err
	}

	s.recovered()
	changed := false
	for i := range stored {
		if !stored[i] {
			continue
		}

		if rest, ok := c.Communications[i].Complete(&sums[i].Communication, sums[i].Rows); ok {
			c.Communications[i], stored[i], changed = rest, false, true
		}
	}

	if changed {
		c.seal()
	}

	return nil
}
