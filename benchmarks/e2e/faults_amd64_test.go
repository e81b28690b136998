package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// diskFault is a way in which a file system fails.
type diskFault struct {
	name  string
	errno syscall.Errno
	calls int // that fail, one after the other, before the file system is well again
	fails func(*sysCall) bool
}

// diskFaults are those that R7 and R25 name.
var diskFaults = []diskFault{
	{"eio", syscall.EIO, 1, (*sysCall).changes},
	{"full", syscall.ENOSPC, 4, func(c *sysCall) bool {
		return c.name == "write" || c.name == "pwrite" || c.name == "mkdir" || c.name == "open" && c.changes()
	}},
	{"quota", syscall.EDQUOT, 2, func(c *sysCall) bool {
		return c.name == "write" || c.name == "pwrite" || c.name == "mkdir" || c.name == "open" && c.changes()
	}},
	{"read-only", syscall.EROFS, 4, (*sysCall).changes},
	{"descriptors", syscall.EMFILE, 8, func(c *sysCall) bool { return c.name == "open" }},
}

// failure is a fault of the disk that begins at the n-th call with a label.
type failure struct {
	*diskFault
	label string
	n     int
}

func (b failure) String() string { return fmt.Sprintf("%s at %s %d", b.name, b.label, b.n) }

// failureAt is the reverse of String.
func failureAt(t *testing.T, text string) failure {
	name, place, _ := strings.Cut(text, " at ")
	i := slices.IndexFunc(diskFaults, func(d diskFault) bool { return d.name == name })
	at := strings.LastIndexByte(place, ' ')
	n, err := strconv.Atoi(place[at+1:])
	if i < 0 || at < 0 || err != nil {
		t.Fatalf("LAGGARD_FAULT=%s: want a fault, \"at\", a label and a number", text)
	}

	return failure{&diskFaults[i], place[:at], n}
}

// everyCall runs an agent undisturbed and returns how often each label comes by, of
// calls that only open a file too.
func (c *leftovers) everyCall(t *testing.T, away bool) map[string]int {
	s, seen := c.stage(t, away), map[string]int{}
	s.traced(func(call *sysCall) int {
		if !call.done {
			seen[s.label(call)]++
		}

		return goOn
	})
	return seen
}

// failures draws n places: one of each fault at each label, then another of each,
// of the first nine tenths of the calls, because how often a label comes by is a matter
// of time.
func failures(random *rand.Rand, seen map[string]int, n int) []failure {
	var all [][]failure
	for _, label := range slices.Sorted(maps.Keys(seen)) {
		name := label[strings.LastIndexByte(label, ' ')+1:]
		for i := range diskFaults {
			d := &diskFaults[i]
			if !d.fails(&sysCall{name: name, flags: syscall.O_CREAT}) {
				continue
			}

			order := random.Perm(max(1, seen[label]*9/10))
			for k, at := range order[:min(n, len(order))] {
				if k == len(all) {
					all = append(all, nil)
				}

				all[k] = append(all[k], failure{d, label, at + 1})
			}
		}
	}

	var drawn []failure
	for _, round := range all {
		random.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
		drawn = append(drawn, round...)
	}

	return drawn[:min(n, len(drawn))]
}

// mount returns the root that a path is below: what is a file system of its own.
func (s *stage) mount(path string) string {
	for _, root := range []string{s.rings, s.dir} {
		if strings.HasPrefix(path, root) {
			return root
		}
	}

	return filepath.Dir(s.storeDir())
}

// runWith runs an agent whose file system fails, and returns how often a call
// failed. The agent goes on by itself, or it ends with an error that names what failed:
// one of the paths, because a failure before it may be one that is no reason to end.
func (s *stage) runWith(b failure) (failed int) {
	s.t.Helper()
	seen := 0
	var paths []string
	ws, words := s.traced(func(call *sysCall) int {
		if call.done {
			return goOn
		}

		if failed == 0 {
			if s.label(call) != b.label || !b.fails(call) {
				return goOn
			}

			if seen++; seen < b.n {
				return goOn
			}
		} else if failed >= b.calls || !b.fails(call) || s.mount(call.path) != s.mount(paths[0]) {
			return goOn
		}

		failed++
		paths = append(paths, call.path)
		return int(b.errno)
	})
	switch {
	case failed == 0:
	case ws.Signaled():
		s.t.Errorf("the agent was ended by %v:\n%s", ws.Signal(), words)
	case ws.ExitStatus() == 0:
	case s.block != "" && strings.Contains(words, "laggard: ship the rest"): // the store is away, which is another matter
	case !slices.ContainsFunc(paths, func(path string) bool {
		return strings.Contains(words, path) || strings.Contains(words, filepath.Dir(path))
	}):
		s.t.Errorf("the agent ended with %d and names none of %q:\n%s", ws.ExitStatus(), paths, words)
	}

	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Logf("%d calls failed, at %q; exit %d:\n%s", failed, paths, ws.ExitStatus(), words)
		}
	})
	return failed
}

// TestFailingSystemCalls is R7, and R25's limit of descriptors, of the whole agent:
// its system calls fail, at each place where it makes one, once or until the file
// system is well again. The agent goes on, or ends with an error that names the
// object; what was emitted is stored, aged or dropped to the record after the next
// start, and nothing stands twice. LAGGARD_FAULTS sets how many places, for an agent
// with and for one without its store; the suite takes three. LAGGARD_FAULT="eio at
// ledger fsync 3" is that place alone.
func TestFailingSystemCalls(t *testing.T) {
	t.Parallel()
	n := chaosSetting(t, "LAGGARD_FAULTS", 3)
	seed := chaosSetting(t, "LAGGARD_SEED", int(time.Now().UnixNano()&0xffffff))
	random := rand.New(rand.NewPCG(uint64(seed), 7))
	c := newLeftovers(t, 30, "--cap", "400KB", "--segment-size", "64KiB")
	hit := map[string]int{}
	for _, away := range []bool{false, true} {
		seen := c.everyCall(t, away)
		chosen := failures(random, seen, n)
		if one := os.Getenv("LAGGARD_FAULT"); one != "" {
			chosen = []failure{failureAt(t, one)}
		}

		t.Logf("LAGGARD_SEED=%d, store away=%v: %d places, calls %v", seed, away, len(chosen), seen)
		for _, b := range chosen {
			t.Run(fmt.Sprintf("away=%v/%v", away, b), func(t *testing.T) {
				s := c.stage(t, away)
				if s.runWith(b) > 0 {
					hit[b.name]++
				}

				s.recover()
				s.exact(c.emitted)
			})
		}
	}

	t.Logf("broken down: %v", hit)
	if len(hit) == 0 {
		t.Error("no call failed")
	}
}
