package ring

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/schemas/record"
)

func openRunOf(t *testing.T, run string) int {
	t.Helper()
	fd, err := openRun(run)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// TestFreedFoldersKeepWhatIsNotTaken: whatever an agent has taken of a ring, what is
// freed of it when its process is gone is none of the rest, nor of the last slots.
func TestFreedFoldersKeepWhatIsNotTaken(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range 60 {
		run := shared(t)
		p, f := create(t, run)
		w, err := p.NewWriter(1)
		if err != nil {
			t.Fatal(err)
		}

		reader, err := f.OpenReader(1)
		if err != nil {
			t.Fatal(err)
		}

		head, tail := uint64(r.IntN(3*LightSlots)), uint64(0)
		s := fields{Kind: record.FP, Peer: -1, Step: 7}
		for n := range head {
			if n-tail == LightSlots || r.IntN(200) == 0 {
				if tail = n - uint64(r.IntN(int(n-tail)+1)); n-tail == LightSlots {
					tail++
				}

				if err := reader.SetTail(Light, tail); err != nil {
					t.Fatal(err)
				}
			}

			s.Start = int64(n)
			w.Publish(s.slot())
		}

		p.Close()
		fd := openRunOf(t, run)
		before, _, _ := survey(fd, "", false)
		if err := room(fd, "", 0, true); err != nil {
			t.Fatal(err)
		}

		after, folders, err := survey(fd, "", false)
		if err != nil || folders != 1 || before < 2<<20 || after > 128<<10 {
			t.Errorf("%d folders took %d bytes and now %d: %v", folders, before, after, err)
		}

		low := min(tail, head-min(head, lastSlots))
		for n := low; n < head; n++ {
			var b [slotSize]byte
			var got Slot
			if err := reader.Copy(Light, n, b[:]); err != nil || !reader.Decode(&got, b[:], n) || got.Start() != int64(n) {
				t.Fatalf("seed %d, %d: slot %d of [%d, %d) is gone: %v", seed, i, n, tail, head, err)
			}
		}

		reader.Close()
	}
}

// TestRoomLeavesAlone: folders of the living, of an agent, and of others are not freed.
func TestRoomLeavesAlone(t *testing.T) {
	for _, c := range []struct {
		name  string
		setup func(t *testing.T, p *Process, f *Folder, folder string)
		freed bool
	}{
		{"living", func(*testing.T, *Process, *Folder, string) {}, false},
		{"closed", func(_ *testing.T, p *Process, _ *Folder, _ string) { p.Close() }, true},
		{"an agent's", func(t *testing.T, p *Process, f *Folder, _ string) {
			p.Close()
			if ok, err := f.Lock(); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}, false},
		{"a link in place of the ring", func(t *testing.T, p *Process, _ *Folder, folder string) {
			p.Close()
			ring := filepath.Join(folder, "ring-1")
			if err := errors.Join(os.Rename(ring, filepath.Join(folder, "other")), os.Symlink("other", ring)); err != nil {
				t.Fatal(err)
			}
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := shared(t)
			p, f := create(t, run)
			if _, err := p.NewWriter(1); err != nil {
				t.Fatal(err)
			}

			c.setup(t, p, f, filepath.Join(run, p.Identity.Incarnation.String()))
			fd := openRunOf(t, run)
			if err := room(fd, "", 0, true); err != nil {
				t.Fatal(err)
			}

			if after, _, _ := survey(fd, "", false); (after < 2<<20) != c.freed {
				t.Errorf("%d bytes are taken, freed is to be %v", after, c.freed)
			}

			p.Close()
		})
	}
}

// TestShareOfFolders: the 1,025th folder of a user is refused, and leaves nothing.
func TestShareOfFolders(t *testing.T) {
	run := shared(t)
	for i := range userFolders {
		if err := os.MkdirAll(filepath.Join(run, fmt.Sprintf("%016x", i)), 0o700); err != nil {
			t.Fatal(err)
		}
	}

	id, err := Self()
	if err != nil {
		t.Fatal(err)
	}

	p, err := Create(run, id, NewStrings(), 0)
	if !errors.Is(err, errNoRoom) {
		t.Fatalf("Create = %v, %v; want no room", p, err)
	}

	if names, _ := Names(run); len(names) != userFolders {
		t.Errorf("%d folders are left", len(names))
	}
}
