package ring

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laggard-dev/laggard/schemas/record"
)

// image returns the bytes of a process file and of a ring file with a few
// records, and the folder's name.
func image(t testing.TB) (process, file []byte, name string) {
	run := shared(t)
	p, _ := create(t, run)
	p.strings.Intern("op")
	w, err := p.NewWriter(1)
	if err != nil {
		t.Fatal(err)
	}

	for i := range 10 {
		s := fields{Kind: record.Kind(i % 6), Peer: -1, Start: int64(i)}
		w.Publish(s.slot())
		w.Begin(s.slot())
	}

	name = p.Identity.Incarnation.String()
	process, err = os.ReadFile(filepath.Join(run, name, ProcessName))
	if err != nil {
		t.Fatal(err)
	}

	file, err = os.ReadFile(filepath.Join(run, name, "ring-1"))
	if err != nil {
		t.Fatal(err)
	}

	return process, file, name
}

// plant writes a folder of that content.
func plant(t testing.TB, run, name string, process, file []byte) {
	dir := filepath.Join(run, name)
	if err := os.MkdirAll(dir, 0o770); err != nil {
		t.Fatal(err)
	}

	for n, b := range map[string][]byte{ProcessName: process, "ring-1": file} {
		if err := os.WriteFile(filepath.Join(dir, n), b, 0o660); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	process, file, name := image(t)
	patched := func(b []byte, at int, v uint32) []byte {
		b = append([]byte{}, b...)
		binary.LittleEndian.PutUint32(b[at:], v)
		return b
	}
	for what, b := range map[string][]byte{
		"empty":             {},
		"header cut":        process[:4000],
		"strings cut":       process[:5000],
		"magic":             patched(process, 0, 1),
		"version":           patched(process, pVersion, 2),
		"checksum kind":     patched(process, pChecksum, 9),
		"strings elsewhere": patched(process, pStringsOff, 1<<31),
		"huge strings":      patched(process, pStringsCap, 1<<31),
		"other incarnation": patched(process, pIncarnation, 1),
	} {
		t.Run("process/"+what, func(t *testing.T) {
			run := shared(t)
			plant(t, run, name, b, file)
			if f, err := OpenFolder(run, name); !errors.Is(err, ErrNotRing) {
				t.Errorf("OpenFolder = %v, %v", f, err)
			}
		})
	}

	for what, b := range map[string][]byte{
		"empty":               {},
		"header cut":          file[:400],
		"slots cut":           file[:len(file)-1],
		"magic":               patched(file, 0, 1),
		"version":             patched(file, rVersion, 2),
		"checksum kind":       patched(file, rChecksum, 0),
		"header size":         patched(file, rHeaderSize, 4096),
		"other number":        patched(file, rNumber, 2),
		"no light slots":      patched(file, rLightSlots, 0),
		"odd light slots":     patched(file, rLightSlots, 1000),
		"huge bulk slots":     patched(file, rBulkSlots, 1<<31),
		"larger than a file":  patched(file, rBulkSlots, 65536),
		"slots that overflow": patched(patched(file, rBulkSlots, 1<<26), rLightSlots, 1<<26),
	} {
		t.Run("ring/"+what, func(t *testing.T) {
			run := shared(t)
			plant(t, run, name, process, b)
			f, err := OpenFolder(run, name)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if r, err := f.OpenReader(1); !errors.Is(err, ErrNotRing) {
				t.Errorf("OpenReader = %v, %v", r, err)
			}
		})
	}
}

// TestOpenFollowsNothing plants what is no plain file where one is expected.
func TestOpenFollowsNothing(t *testing.T) {
	process, file, name := image(t)
	for what, spoil := range map[string]func(dir string) error{
		"link":      func(n string) error { return os.Symlink("/etc/passwd", n) },
		"fifo":      func(n string) error { return unix.Mkfifo(n, 0o660) },
		"directory": func(n string) error { return os.Mkdir(n, 0o770) },
		"hard link": func(n string) error {
			return errors.Join(os.WriteFile(n+".other", process, 0o660), os.Link(n+".other", n))
		},
	} {
		for _, at := range []string{ProcessName, "ring-1"} {
			t.Run(what+"/"+at, func(t *testing.T) {
				run := shared(t)
				plant(t, run, name, process, file)
				path := filepath.Join(run, name, at)
				if err := errors.Join(os.Remove(path), spoil(path)); err != nil {
					t.Fatal(err)
				}

				f, err := OpenFolder(run, name)
				if err == nil {
					defer f.Close()
					_, err = f.OpenReader(1)
				}

				if !errors.Is(err, ErrNotRing) {
					t.Errorf("got %v", err)
				}
			})
		}
	}

	t.Run("folder is a link", func(t *testing.T) {
		run, elsewhere := shared(t), t.TempDir()
		plant(t, elsewhere, name, process, file)
		if err := errors.Join(os.MkdirAll(run, 0o777), os.Symlink(filepath.Join(elsewhere, name), filepath.Join(run, name))); err != nil {
			t.Fatal(err)
		}

		if _, err := OpenFolder(run, name); !errors.Is(err, ErrNotRing) {
			t.Errorf("got %v", err)
		}
	})
}

func TestNamesTakesFoldersOnly(t *testing.T) {
	run := shared(t)
	for _, n := range []string{"00000000000000aa", ".00000000000000aa.new", "00000000000000AA", "lost+found", "00000000000000ab0"} {
		if err := os.MkdirAll(filepath.Join(run, n), 0o770); err != nil {
			t.Fatal(err)
		}
	}

	names, err := Names(run)
	if err != nil || len(names) != 1 || names[0] != "00000000000000aa" {
		t.Errorf("Names = %v, %v", names, err)
	}

	if names, err := Names(filepath.Join(run, "nowhere")); names != nil || err != nil {
		t.Errorf("Names of a missing directory = %v, %v", names, err)
	}
}

// FuzzFolder reads whatever stands in the two files.
func FuzzFolder(f *testing.F) {
	process, file, name := image(f)
	f.Add(process[:processHeader], file[:ringHeader], uint16(0), uint16(0))
	f.Fuzz(func(t *testing.T, head, ringHead []byte, at, ringAt uint16) {
		p := append([]byte{}, process...)
		copy(p[int(at)%len(p):], head)
		r := append([]byte{}, file[:ringHeader+slotSize*(LightSlots+minSlots)]...)
		binary.LittleEndian.PutUint32(r[rBulkSlots:], minSlots)
		copy(r[int(ringAt)%len(r):], ringHead)
		run := shared(t)
		plant(t, run, name, p, r)
		readAll(run, name)
	})
}

// readAll does everything that a reader does, to a folder that could hold anything.
func readAll(run, name string) {
	f, err := OpenFolder(run, name)
	if err != nil {
		return
	}
	defer f.Close()
	s, err := f.Status()
	if err != nil || f.ReadTexts(s) != nil {
		return
	}

	f.Gone(s.State)
	f.Text(uint16(s.Identity))
	for n := range s.Rings {
		r, err := f.OpenReader(n + 1)
		if err != nil {
			continue
		}

		c, err := r.Counters()
		if err == nil {
			r.OpenRanges()
			for i := range c.Head {
				var s Slot
				b := make([]byte, slotSize*min(c.Head[i], uint64(r.Slots[i])))
				if r.Copy(Lane(i), c.Head[i]-uint64(len(b)/slotSize), b) == nil && len(b) > 0 {
					r.Decode(&s, b, c.Head[i]-1)
				}
			}
		}

		r.Close()
	}
}

// TestScribbler, R23: a writer that scribbles over header and data, cuts and grows the
// files while a reader does all it does. The reader neither faults, nor waits, nor
// returns more than there is room for.
func TestScribbler(t *testing.T) {
	run := shared(t)
	process, file, name := image(t)
	plant(t, run, name, process, file)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	f, err := OpenFolder(run, name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	kept, err := f.OpenReader(1) // as it was before the scribbler came
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() { stopped <- scribble(filepath.Join(run, name), random, stop) }()
	b := make([]byte, slotSize*64)
	for i := range 3000 {
		readAll(run, name)
		if open, err := kept.OpenRanges(); err == nil && len(open) > OpenLevels {
			t.Fatalf("%d open ranges", len(open))
		}

		c, err := kept.Counters()
		if err == nil {
			for l := range c.Head {
				if kept.Copy(Lane(l), c.Head[l], b) == nil {
					var s Slot
					kept.Decode(&s, b, c.Head[l])
				}
			}
		}

		if err := kept.SetTail(Lane(i%2), uint64(i)); err != nil && !errors.Is(err, errFault) {
			t.Fatalf("SetTail = %v", err)
		}

		if s, err := f.Status(); err == nil {
			if err := f.ReadTexts(s); err == nil && len(f.texts) > stringsSize/8 {
				t.Fatalf("%d strings", len(f.texts))
			}
		}
	}

	close(stop)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
}

// scribble writes whatever comes anywhere into a folder's files until stop.
func scribble(dir string, random *rand.Rand, stop <-chan struct{}) error {
	var files [2]*os.File
	var sizes [2]int64
	for i, n := range []string{ProcessName, "ring-1"} {
		f, err := os.OpenFile(filepath.Join(dir, n), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		st, err := f.Stat()
		if err != nil {
			return err
		}

		files[i], sizes[i] = f, st.Size()
	}

	for {
		select {
		case <-stop:
			return nil
		default:
		}

		i := random.IntN(2)
		b := binary.LittleEndian.AppendUint64(nil, random.Uint64()>>random.IntN(64))
		at := random.Int64N(600)
		if random.IntN(4) == 0 {
			at = random.Int64N(sizes[i] - 8)
		}

		_, err := files[i].WriteAt(b[:1+random.IntN(8)], at)
		if random.IntN(50) == 0 {
			err = errors.Join(err, files[i].Truncate(random.Int64N(sizes[i])), files[i].Truncate(sizes[i]))
		}

		if err != nil {
			return err
		}
	}
}
