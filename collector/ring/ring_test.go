package ring

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/laggard-dev/laggard/schemas/record"
)

// shared returns a run directory on tmpfs that goes with the test.
func shared(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "laggard-test-")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "run")
}

func create(t testing.TB, run string) (*Process, *Folder) {
	t.Helper()
	id, err := Self()
	if err != nil {
		t.Fatal(err)
	}

	p, err := Create(run, id, NewStrings(), AllOn)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(p.Close)
	f, err := OpenFolder(run, id.Incarnation.String())
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(f.Close)
	return p, f
}

// TestBytes checks the files against the numbers of FORMAT.md, written out here
// once more on purpose.
func TestBytes(t *testing.T) {
	run := shared(t)
	p, _ := create(t, run)
	dir := filepath.Join(run, p.Identity.Incarnation.String())
	text := p.strings.Intern("HcclAllreduce")
	p.SetIdentity(text)
	p.Lose(record.FP, 3)
	p.Follow(AllOn|5<<8, 77)
	w, err := p.NewWriter(4711)
	if err != nil {
		t.Fatal(err)
	}

	s := fields{Kind: record.Communication, Flags: FlagExposed, Dtype: 12, Peer: -1, Start: 1753000000000000001, Dur: 5400000, HostStart: 9, HostDur: 1<<48 - 1, Text: text, Step: 120, Group: 2, Stream: 7, Value: 4194304}
	level := w.Begin(s.slot())
	open, err := os.ReadFile(filepath.Join(dir, "ring-1"))
	if err != nil {
		t.Fatal(err)
	}

	w.End(level, s.slot())
	light := fields{Kind: record.Step, Peer: -1, Step: 120}
	w.Publish(light.slot())
	b, err := os.ReadFile(filepath.Join(dir, ProcessName))
	if err != nil {
		t.Fatal(err)
	}

	le := binary.LittleEndian
	equal := func(what string, got, want any) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	equal("process size", len(b), 4096+262144)
	equal("magic", string(b[:8]), "LAGPROC1")
	equal("version", le.Uint32(b[8:]), uint32(1))
	equal("strings at", le.Uint32(b[12:]), uint32(4096))
	equal("strings capacity", le.Uint32(b[16:]), uint32(262144))
	equal("pid", le.Uint32(b[20:]), uint32(os.Getpid()))
	equal("ticks", le.Uint64(b[24:]), p.Identity.Ticks)
	equal("started", le.Uint64(b[32:]), uint64(p.Identity.StartedNs))
	equal("incarnation", le.Uint64(b[40:]), uint64(record.IncarnationOf(p.Identity.BootID, os.Getpid(), p.Identity.Ticks)))
	equal("boot id", string(b[56:92]), p.Identity.BootID)
	equal("checksum kind", le.Uint32(b[92:]), uint32(1))
	equal("state", le.Uint32(b[96:]), uint32(1))
	equal("identity", le.Uint32(b[100:]), uint32(1))
	equal("wanted", le.Uint32(b[128:]), uint32(3))
	equal("followed", le.Uint32(b[132:]), uint32(3|5<<8))
	equal("followed at", le.Uint64(b[136:]), uint64(77))
	equal("strings used", le.Uint32(b[192:]), uint32(24))
	equal("rings", le.Uint32(b[196:]), uint32(1))
	equal("lost FP", le.Uint64(b[256+16:]), uint64(3))
	equal("string length", le.Uint32(b[4096:]), uint32(13))
	equal("string", string(b[4104:4120]), "HcclAllreduce\x00\x00\x00")

	if b, err = os.ReadFile(filepath.Join(dir, "ring-1")); err != nil {
		t.Fatal(err)
	}

	equal("ring size", len(b), 8192+64*(1024+32768))
	equal("magic", string(b[:8]), "LAGRING1")
	equal("header", le.Uint32(b[12:]), uint32(8192))
	equal("n", le.Uint32(b[20:]), uint32(1))
	equal("light slots", le.Uint32(b[24:]), uint32(1024))
	equal("bulk slots", le.Uint32(b[28:]), uint32(32768))
	equal("thread", le.Uint64(b[32:]), uint64(4711))
	equal("light head", le.Uint64(b[64:]), uint64(1))
	equal("bulk head", le.Uint64(b[192:]), uint64(1))
	equal("emitted", le.Uint64(b[448+8*3:]), uint64(1))
	equal("open state", open[1024+7], byte(1))
	equal("open state", b[1024+7], byte(0))
	slot := b[8192+64*1024:][:64]
	equal("slot", strings.ToLower(strings.Join(strings.Fields(hexDump(slot[4:])), "")),
		"03080c00"+"00000000"+"ffffffff"+"0180425336e85318"+"c065520000000000"+"0900000000000000"+
			"ffffffffffff"+"0100"+"78000000"+"0200"+"0700"+"0000400000000000")
	equal("checksum", le.Uint32(slot), sum(CRC32C, slot[4:]))
	p.Close()
	b, _ = os.ReadFile(filepath.Join(dir, ProcessName))
	equal("closed", le.Uint32(b[96:]), uint32(2))
	for name, mode := range map[string]os.FileMode{"": 0o770, ProcessName: 0o660, "ring-1": 0o660} {
		st, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}

		equal("mode of "+name, st.Mode().Perm(), mode)
	}

	st, _ := os.Stat(run)
	equal("mode of run", st.Mode()&(os.ModePerm|os.ModeSticky), os.ModeSticky|0o777)
}

func hexDump(b []byte) string {
	const digits = "0123456789abcdef"
	var s strings.Builder
	for _, c := range b {
		s.WriteByte(digits[c>>4])
		s.WriteByte(digits[c&15])
	}

	return s.String()
}

// fields are a slot's, by the names of FORMAT.md.
type fields struct {
	Kind          record.Kind
	Flags, Dtype  uint8
	Seq           uint32
	Peer          int32
	Start, Dur    int64
	HostStart     int64
	HostDur       int64 // 48 bits
	Text          uint16
	Step          uint32
	Group, Stream uint16
	Value         int64
}

// slot returns them as a Writer takes them.
func (f *fields) slot() *Slot {
	return &Slot{
		uint64(f.Kind)<<32 | uint64(f.Flags)<<40 | uint64(f.Dtype)<<48,
		uint64(uint32(f.Peer)) << 32,
		uint64(f.Start),
		uint64(f.Dur),
		uint64(f.HostStart),
		uint64(min(max(f.HostDur, 0), 1<<48-1)) | uint64(f.Text)<<48,
		uint64(f.Step) | uint64(f.Group)<<32 | uint64(f.Stream)<<48,
		uint64(f.Value),
	}
}

// fieldsOf reads them.
func fieldsOf(s *Slot) fields {
	return fields{
		s.Kind(), s.Flags(), s.Dtype(), s.Seq(), s.Peer(), s.Start(), s.Dur(), s.HostStart(), s.HostDur(), s.Text(), s.Step(), s.Group(), s.Stream(), s.Value(),
	}
}

func TestSlotRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := fields{
			Kind: record.Kind(rapid.Byte().Draw(t, "kind")), Flags: rapid.Byte().Draw(t, "flags"), Dtype: rapid.Byte().Draw(t, "dtype"),
			Seq: rapid.Uint32().Draw(t, "seq"), Peer: rapid.Int32().Draw(t, "peer"), Start: rapid.Int64().Draw(t, "start"),
			Dur: rapid.Int64().Draw(t, "dur"), HostStart: rapid.Int64().Draw(t, "host"), HostDur: rapid.Int64Range(0, 1<<48-1).Draw(t, "hostdur"),
			Text: rapid.Uint16().Draw(t, "text"), Step: rapid.Uint32().Draw(t, "step"), Group: rapid.Uint16().Draw(t, "group"),
			Stream: rapid.Uint16().Draw(t, "stream"), Value: rapid.Int64().Draw(t, "value"),
		}
		kind := rapid.SampledFrom([]uint32{CRC32C, CRC32, Adler32}).Draw(t, "checksum")
		var b [slotSize]byte
		want.slot().store(b[:], want.Seq, stateFree, kind)
		var got Slot
		reader := &Reader{checksum: kind}
		if !reader.Decode(&got, b[:], uint64(want.Seq)|7<<32) || fieldsOf(&got) != want {
			t.Fatalf("got %+v, want %+v", fieldsOf(&got), want)
		}

		b[rapid.IntRange(0, slotSize-1).Draw(t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if reader.Decode(&got, b[:], uint64(want.Seq)) {
			t.Fatal("a flipped bit was not seen")
		}
	})
}

// TestEveryProcessorStoresTheSame runs the stores of this processor beside those of
// every other one: the files are the same after each call, a full ring included.
func TestEveryProcessorStoresTheSame(t *testing.T) {
	if !fastStores {
		t.Skip("NOT TESTED: this processor has no stores of its own")
	}

	rapid.Check(t, func(t *rapid.T) {
		const slots = 64
		head := rapid.SampledFrom([]uint64{0, 1<<31 - 5, 1<<32 - 5})
		heads := [2]uint64{head.Draw(t, "light"), head.Draw(t, "bulk")}
		var mem [2][]byte
		var w [2]*Writer
		for i := range w {
			words := make([]uint64, fileSize(slots, slots)/8) // aligned, as a mapping is
			mem[i] = unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 8*len(words))
			w[i] = newWriter(mem[i], 1, slots, slots, CRC32C)
			for l, head := range heads {
				w[i].lanes[l].head, *w[i].lanes[l].headp, *w[i].lanes[l].tailp, w[i].lanes[l].tail = head, head, head, head
			}
		}

		w[1].fast = false
		level := OpenLevels
		for range rapid.IntRange(1, 200).Draw(t, "calls") {
			var s Slot
			for i := range s {
				s[i] = rapid.Uint64().Draw(t, "word")
			}

			s[0] &= 0x00FFFF07_00000000 // Writer fills in the state and the checksum
			s[1] &^= 0xFFFFFFFF         // and seq
			call := rapid.IntRange(0, 2).Draw(t, "call")
			was := level
			for _, w := range w {
				switch call {
				case 0:
					w.Publish(&s)
				case 1:
					level = w.Begin(&s)
				case 2:
					w.End(was, &s)
					level = OpenLevels
				}
			}

			if !bytes.Equal(mem[0], mem[1]) {
				t.Fatalf("call %d: the files differ", call)
			}
		}
	})
}

func TestRingFull(t *testing.T) {
	p, f := create(t, shared(t))
	w, err := p.NewWriter(1)
	if err != nil {
		t.Fatal(err)
	}

	for i := range LightSlots + 5 {
		s := fields{Kind: record.FP, Start: int64(1000 + i), Peer: -1}
		if got := w.Publish(s.slot()); got != (i < LightSlots) {
			t.Fatalf("Publish %d = %v", i, got)
		}
	}

	for range 10 {
		s := fields{Kind: record.Communication, Peer: -1}
		if !w.Publish(s.slot()) {
			t.Fatal("a full light ring stopped the bulk ring")
		}
	}

	r, err := f.OpenReader(1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c, err := r.Counters()
	if err != nil {
		t.Fatal(err)
	}

	if c.Head != [2]uint64{LightSlots, 10} || c.Dropped[record.FP] != 5 || c.Emitted[record.FP] != LightSlots+5 || c.First != 1000+LightSlots || c.Last != 1004+LightSlots {
		t.Errorf("counters %+v", c)
	}

	// Room for three.
	if err := r.SetTail(Light, 3); err != nil {
		t.Fatal(err)
	}

	for i := range 4 {
		s := fields{Kind: record.FP, Peer: -1}
		if got := w.Publish(s.slot()); got != (i < 3) {
			t.Fatalf("Publish %d after the tail moved = %v", i, got)
		}
	}

	// A tail beyond the head is a lie.
	if err := r.SetTail(Light, 1<<60); err != nil {
		t.Fatal(err)
	}

	s := fields{Kind: record.FP, Peer: -1}
	if w.Publish(s.slot()) {
		t.Error("a tail beyond the head was believed")
	}
}

func (f *Folder) path() string {
	p, _ := os.Readlink("/proc/self/fd/" + strconv.Itoa(f.dir))
	return strings.TrimSuffix(p, " (deleted)")
}

func empty(t *testing.T, dir string) {
	t.Helper()
	if names, err := os.ReadDir(dir); err != nil || len(names) != 0 {
		t.Errorf("left in %s: %v %v", dir, names, err)
	}
}

// tmpfs mounts one. It needs root, as the tests of a whole machine do.
func tmpfs(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		if errors.Is(err, unix.EPERM) {
			t.Skip("NOT TESTED: a full tmpfs, because mounting one needs root")
		}

		t.Fatal(err)
	}

	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}
