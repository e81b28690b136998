package tail

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/laggard-dev/laggard/schemas/row"
)

// TestTrust: no file of a foreign user is read unless told, and it is counted once;
// those of the job directory's owner are.
func TestTrust(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make files of other users")
	}

	const foreign, owner = 54321, 54322
	for _, c := range []struct {
		name string
		o    Options
		want []string
	}{
		{"untold", Options{}, []string{"100 0 mine", "102 0 owner's"}},
		{"told", Options{TrustUIDs: []uint32{7, foreign}}, []string{"100 0 mine", "101 0 foreign", "102 0 owner's"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDisk(t, c.o)
			d.write("100", "mine\n")
			d.write("101", "foreign\n")
			d.write("102", "owner's\n")
			d.must(os.Chown(d.path("101"), foreign, foreign))
			d.must(os.Chown(d.path("102"), owner, owner))
			d.must(os.Chown(filepath.Dir(filepath.Dir(d.path("100"))), owner, owner))
			d.look()
			d.look()
			d.want(c.want...)
			if len(c.want) == 3 {
				d.wantLost()
			} else {
				d.wantLost(row.Ledger{Name: "101", Reason: foreignOwner, Bytes: 8})
			}
		})
	}
}
