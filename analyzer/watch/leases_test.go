package watch

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/laggard-dev/laggard/analyzer/health"
)

// leaseServer has Leases as an API server has them: each write gets a version, and one of
// another version than the newest is refused. (The real one is in deploy/kubernetes/apiserver.)
type leaseServer struct {
	mu      sync.Mutex
	version int
	leases  map[string]health.Lease
}

func (s *leaseServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodGet {
		var list struct {
			Items []health.Lease `json:"items"`
		}
		for _, l := range s.leases {
			list.Items = append(list.Items, l)
		}

		_ = json.NewEncoder(w).Encode(list) // the client's trouble
		return
	}

	var l health.Lease
	var deletion struct {
		Preconditions struct{ ResourceVersion string }
	}
	into := any(&l)
	if r.Method == http.MethodDelete {
		into = &deletion
	}

	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}

	name := l.Metadata.Name
	if r.Method == http.MethodDelete {
		name, l.Metadata.ResourceVersion = r.URL.Path[len(r.URL.Path)-len("laggard-watch-0123456789abcdef"):], deletion.Preconditions.ResourceVersion
	}

	if s.leases[name].Metadata.ResourceVersion != l.Metadata.ResourceVersion {
		http.Error(w, "the object has been modified", http.StatusConflict)
		return
	}

	if r.Method == http.MethodDelete {
		delete(s.leases, name)
		return
	}

	s.version++
	l.Metadata.ResourceVersion = strconv.Itoa(s.version)
	s.leases[name] = l
	_ = json.NewEncoder(w).Encode(l)
}

// way is a client's way to the server: it may be cut, or lose an answer.
type way struct{ cut, mute atomic.Bool }

func (w *way) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.cut.Load() {
		return nil, errors.New("the way is cut")
	}

	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	if err == nil && w.mute.Swap(false) {
		return nil, errors.Join(errors.New("the answer is lost"), answer.Body.Close())
	}

	return answer, err
}

// watcherOf is one of the model's watchers: what it holds it took at its last Mine.
type watcherOf struct {
	*Leases
	way  *way
	mine []string
}

// TestLeases_OneHolder: watchers come, leave, are killed, cut off and lose answers, take their
// jobs side by side, and no job ever has two. In the end each has one.
func TestLeases_OneHolder(t *testing.T) {
	seed := rand.Uint64()
	if s := os.Getenv("LAGGARD_TEST_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}

	t.Logf("LAGGARD_TEST_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	api := httptest.NewServer(&leaseServer{leases: map[string]health.Lease{}})
	defer api.Close()
	var clock atomic.Int64
	now := func() time.Time { return time.Unix(clock.Load(), 0) }
	var jobs []string
	for i := range 40 {
		jobs = append(jobs, fmt.Sprint("job-", i))
	}

	const lease = 60
	watchers := map[string]*watcherOf{}
	start := func(name string) {
		w := &watcherOf{way: &way{}}
		w.Leases = NewLeases(health.API{Server: api.URL, Client: &http.Client{Transport: w.way}}, "n", name, "store", lease*time.Second, slog.New(slog.DiscardHandler))
		w.Now = now
		watchers[name] = w
	}
	look := func(all bool) {
		var g errgroup.Group
		for _, w := range watchers {
			if !all && r.IntN(3) == 0 {
				continue // it looks another time
			}

			w.mine = nil // while it asks it judges nothing
			g.Go(func() error {
				if mine, err := w.Mine(t.Context(), jobs); err == nil { // an error is what Held is for
					w.mine = mine
				}

				return nil
			})
		}

		_ = g.Wait()
	}
	holders := func() map[string][]string {
		held := map[string][]string{}
		for name, w := range watchers {
			for _, job := range w.mine {
				if w.Held() {
					held[job] = append(held[job], name)
				}
			}
		}

		return held
	}
	names := []string{"a", "b", "c", "d"}
	for step := range 600 {
		switch name := names[r.IntN(len(names))]; r.IntN(12) {
		case 0:
			if watchers[name] == nil {
				start(name)
			}

		case 1: // killed, and maybe there again at once under its name
			delete(watchers, name)
			if r.IntN(2) == 0 {
				start(name)
			}

		case 2:
			if w := watchers[name]; w != nil {
				_ = w.Leave(t.Context()) // its Lease ends anyway
				delete(watchers, name)
			}

		case 3:
			if w := watchers[name]; w != nil {
				w.way.cut.Store(!w.way.cut.Load())
			}

		case 4:
			if w := watchers[name]; w != nil {
				w.way.mute.Store(true)
			}

		case 5, 6:
			clock.Add(r.Int64N(lease))
		case 7:
			if w := watchers[name]; w != nil {
				_ = w.renew(t.Context())
			}

		default:
			look(false)
		}

		for job, held := range holders() {
			if len(held) > 1 {
				t.Fatalf("step %d: %s is held by %q", step, job, held)
			}
		}
	}

	for _, name := range names {
		if watchers[name] == nil {
			start(name)
		}

		watchers[name].way.cut.Store(false)
		watchers[name].way.mute.Store(false)
	}

	for range 30 {
		clock.Add(lease / 6)
		look(true)
	}

	parts := map[string]int{}
	for job, held := range holders() {
		if len(held) != 1 || !slices.Contains(names, held[0]) {
			t.Errorf("%s is held by %q", job, held)
		}

		parts[held[0]]++
	}

	if n := len(holders()); n != len(jobs) {
		t.Errorf("%d of %d jobs are held: %v", n, len(jobs), parts)
	}

	t.Logf("jobs of each in the end: %v", parts)
}
