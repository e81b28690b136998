package health

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// api is as much of an API server as the planner's tests need to fail and to count on
// a clock of theirs; what a real one does with the calls is tested on a real one, in
// deploy/kubernetes/apiserver. It keeps what was written and answers as told.
type api struct {
	*httptest.Server
	mu     sync.Mutex
	calls  []string // method path
	bodies []string
	tokens map[string]int
	answer func(n int, r *http.Request) (code int, after string)
	get    string           // what a GET is answered
	lost   func(n int) bool // carried out, and answered with a time-out of the gateway

	cordoned map[string]bool
	most     int // cordoned at once
	status   map[string][]string
}

func newAPI(t *testing.T) *api {
	a := &api{tokens: map[string]int{}, cordoned: map[string]bool{}, status: map[string][]string{}}
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // the test looks at what came
	a.mu.Lock()
	defer a.mu.Unlock()
	if name, ok := strings.CutPrefix(r.URL.Path, "/api/v1/nodes"); ok && r.Method == http.MethodGet {
		a.read(w, strings.TrimPrefix(name, "/"))
		return
	}

	a.calls = append(a.calls, r.Method+" "+r.URL.Path)
	a.bodies = append(a.bodies, string(body))
	a.tokens[r.Header.Get("Authorization")]++
	if a.answer != nil {
		if code, after := a.answer(len(a.calls), r); code != 0 {
			if after != "" {
				w.Header().Set("Retry-After", after)
			}

			w.WriteHeader(code)
			return
		}
	}

	if r.Method == http.MethodGet {
		io.WriteString(w, a.get)
		return
	}

	var b struct {
		Spec struct {
			Unschedulable json.RawMessage `json:"unschedulable"`
		} `json:"spec"`
		Status struct {
			Conditions []struct{ Type, Status, Reason string } `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(body, &b); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}

	name := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/api/v1/nodes/"), "/status")
	if b.Spec.Unschedulable != nil {
		if string(b.Spec.Unschedulable) == "true" {
			a.cordoned[name] = true
		} else {
			delete(a.cordoned, name)
		}

		a.most = max(a.most, len(a.cordoned))
	}

	for _, c := range b.Status.Conditions {
		a.status[name] = append(a.status[name], c.Status+" "+c.Reason)
	}

	if a.lost != nil && a.lost(len(a.calls)) {
		w.WriteHeader(http.StatusGatewayTimeout)
	}
}

// read answers a GET of a node, or of all.
func (a *api) read(w io.Writer, name string) {
	object := func(name string) map[string]any {
		o := map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{}, "status": map[string]any{}}
		if a.cordoned[name] {
			o["metadata"] = map[string]any{"name": name, "annotations": map[string]any{cordonAnnotation: "x"}}
			o["spec"] = map[string]any{"unschedulable": true}
		}

		if said := a.status[name]; len(said) > 0 {
			status, reason, _ := strings.Cut(said[len(said)-1], " ")
			o["status"] = map[string]any{"conditions": []any{map[string]any{"type": conditionType, "status": status, "reason": reason, "lastTransitionTime": "2027-01-15T08:00:00Z"}}}
		}

		return o
	}
	if name != "" {
		json.NewEncoder(w).Encode(object(name))
		return
	}

	items := []any{}
	for name := range a.status {
		items = append(items, object(name))
	}

	json.NewEncoder(w).Encode(map[string]any{"items": items})
}

// count returns how many writes there were that begin so.
func (a *api) count(prefix string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, c := range a.calls {
		if strings.HasPrefix(c, prefix) {
			n++
		}
	}

	return n
}

// clock is a clock that a test moves.
type clock struct{ now time.Time }

func newClock() *clock                { return &clock{time.Unix(1_800_000_000, 0)} }
func (c *clock) Now() time.Time       { return c.now }
func (c *clock) pass(d time.Duration) { c.now = c.now.Add(d) }
func slow(job string, nodes ...string) *verdict.Verdict {
	v := verdict.New(job)
	for _, n := range nodes {
		v.Nodes = append(v.Nodes, verdict.Node{Node: n, State: verdict.Degraded, Cause: verdict.Compute, Slowdown: 1.5, JobImpact: 0.3})
	}

	return v
}

func start(t *testing.T, a *api, c *clock, change func(*Options)) *Cluster {
	t.Helper()
	o := Options{API: API{Server: a.URL, Client: a.Client()}, Now: c.Now}
	if change != nil {
		change(&o)
	}

	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}

	return h
}

// sync lets time pass until nothing but the idle wait is asked for.
func (c *clock) sync(t *testing.T, h *Cluster, times int) {
	t.Helper()
	for range times {
		c.pass(h.sync(t.Context()))
	}
}

func TestLastingProblemIsOneCondition(t *testing.T) {
	a, c := newAPI(t), newClock()
	h := start(t, a, c, nil)
	for range 20 {
		h.Observe(slow("j", "n1"))
		c.sync(t, h, 1)
	}

	if got := a.status["n1"]; len(got) != 1+1 && len(got) != 1 || got[0] != "True SlowCompute" {
		t.Fatalf("written %v, want one condition and at most a heartbeat", got)
	}

	if a.count("POST") != 0 || a.count("PATCH /api/v1/nodes/n1/status") != a.count("") {
		t.Fatalf("calls %v", a.calls)
	}

	h.Observe(slow("j"))
	c.sync(t, h, 10)
	if got := a.status["n1"]; got[len(got)-1] != "True SlowCompute" {
		t.Fatalf("taken back within the hold: %v", got)
	}

	c.sync(t, h, 50)
	if got := a.status["n1"]; got[len(got)-1] != "False NoProblem" {
		t.Fatalf("not taken back: %v", got)
	}
}

// TestNoiseDoesNotFlap is a day in which a node's verdict changes at random every
// ten seconds.
func TestNoiseDoesNotFlap(t *testing.T) {
	a, c := newAPI(t), newClock()
	h := start(t, a, c, nil)
	rng := rand.New(rand.NewPCG(1, 2))
	for end := c.now.Add(24 * time.Hour); c.now.Before(end); c.pass(10 * time.Second) {
		v := slow("j")
		if rng.IntN(3) == 0 {
			v = slow("j", "n1")
			if rng.IntN(2) == 0 {
				v.Nodes[0].Cause = verdict.HostDelay
			}
		}

		h.Observe(v)
		h.sync(t.Context())
	}

	changes := 0
	for i, s := range a.status["n1"] {
		if i == 0 || s != a.status["n1"][i-1] {
			changes++
		}
	}

	if changes == 0 || changes > 6 {
		t.Fatalf("%d changes in a day of noise: %v", changes, a.status["n1"])
	}

	if n := a.count(""); n > 24*12+changes+2 {
		t.Fatalf("%d calls in a day", n)
	}
}

func TestPassingProblemIsAnEvent(t *testing.T) {
	a, c := newAPI(t), newClock()
	h := start(t, a, c, nil)
	v := verdict.New("j")
	v.Events = append(v.Events, verdict.Event{Node: "n1", Kind: "transient", FirstStep: 1, LastStep: 9, Cause: verdict.Compute})
	h.Observe(v) // of before we came
	c.sync(t, h, 2)
	if n := a.count(""); n != 0 {
		t.Fatalf("%d calls for old news", n)
	}

	a.answer = func(n int, _ *http.Request) (int, string) {
		if n == 1 {
			return http.StatusConflict, "" // it is there already
		}

		return 0, ""
	}
	v.Events = append(v.Events, verdict.Event{Node: "n1", Kind: "transient", FirstStep: 50, LastStep: 60, Cause: verdict.Compute})
	for range 5 {
		h.Observe(v)
		c.sync(t, h, 1)
	}

	if n := a.count("POST /api/v1/namespaces/default/events"); n != 1 || a.count("") != 1 {
		t.Fatalf("%d events: %v", n, a.calls)
	}
}

// TestNeverMoreThanTheCap degrades many nodes, over failures and restarts.
func TestNeverMoreThanTheCap(t *testing.T) {
	for _, limit := range []int{1, 3} {
		a, c := newAPI(t), newClock()
		rng := rand.New(rand.NewPCG(uint64(limit), 5))
		dir, err := os.MkdirTemp("/dev/shm", "laggard-health-") // a sync there costs nothing
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { os.RemoveAll(dir) })
		options := func(o *Options) {
			o.Act, o.MaxNodes, o.StateFile = actCordon, limit, filepath.Join(dir, "cluster.json")
		}
		h := start(t, a, c, options)
		a.answer = func(int, *http.Request) (int, string) {
			if rng.IntN(8) == 0 {
				return http.StatusInternalServerError, ""
			}

			return 0, ""
		}
		a.lost = func(int) bool { return rng.IntN(8) == 0 }
		for range 400 {
			var nodes []string
			for n := range 8 {
				if rng.IntN(2) == 0 {
					nodes = append(nodes, fmt.Sprint("n", n))
				}
			}

			h.Observe(slow("j", nodes...))
			c.sync(t, h, 1+rng.IntN(30))
			if rng.IntN(5) == 0 {
				h = start(t, a, c, options)
			}
		}

		if a.most != limit {
			t.Fatalf("%d nodes were cordoned at once, want %d", a.most, limit)
		}
	}
}

func TestDryRunWritesNothing(t *testing.T) {
	a, c := newAPI(t), newClock()
	file := filepath.Join(t.TempDir(), "cluster.json")
	h := start(t, a, c, func(o *Options) { o.DryRun, o.Act, o.StateFile = true, actTaint, file })
	for range 50 {
		v := slow("j", "n1", "n2")
		v.Events = append(v.Events, verdict.Event{Node: "n3", FirstStep: int64(c.now.Unix())})
		h.Observe(v)
		c.sync(t, h, 2)
	}

	if n := a.count(""); n != 0 {
		t.Fatalf("%d calls in a dry run: %v", n, a.calls)
	}

	if _, err := os.Stat(file); err == nil {
		t.Fatal("a dry run wrote its state")
	}
}

// TestErrors answers the first calls with an error of the server's and wants the
// back-off that fits, then the condition once.
func TestErrors(t *testing.T) {
	for name, e := range map[string]struct {
		code  int
		after string
		least time.Duration
	}{
		"throttled": {429, "77", 77 * time.Second}, "unavailable": {503, "", time.Second}, "gateway": {504, "", time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			a, c := newAPI(t), newClock()
			a.answer = func(n int, _ *http.Request) (int, string) {
				if n <= 3 {
					return e.code, e.after
				}

				return 0, ""
			}
			h := start(t, a, c, nil)
			c.sync(t, h, 1) // reads what stands on nodes
			h.Observe(slow("j", "n1"))
			for k := range 3 {
				if wait := h.sync(t.Context()); wait < e.least {
					t.Fatalf("waits %v after failure %d, want at least %v", wait, k+1, e.least)
				} else if again := h.sync(t.Context()); again > wait || a.count("") != k+1 {
					t.Fatalf("called during the back-off: %v", a.calls)
				} else {
					c.pass(wait)
				}
			}

			c.sync(t, h, 2)
			if got := a.status["n1"]; len(got) == 0 || got[0] != "True SlowCompute" {
				t.Fatalf("written %v after the errors", got)
			}
		})
	}
}

func TestTimeoutAndUnknownNode(t *testing.T) {
	a, c := newAPI(t), newClock()
	a.answer = func(_ int, r *http.Request) (int, string) {
		if strings.Contains(r.URL.Path, "stranger") {
			return http.StatusNotFound, ""
		}

		return 0, ""
	}
	h := start(t, a, c, nil)
	h.Observe(slow("j", "stranger", "n1"))
	c.sync(t, h, 5)
	if a.count("PATCH /api/v1/nodes/stranger/") != 1 {
		t.Fatalf("calls %v, want one for the node that the cluster doesn't know", a.calls)
	}

	c.sync(t, h, 5)
	if len(a.status["n1"]) == 0 {
		t.Fatalf("n1 was not written: %v", a.calls)
	}

	client := &http.Client{Timeout: time.Nanosecond}
	h = start(t, a, c, func(o *Options) { o.API.Client = client })
	h.Observe(slow("j", "n2"))
	h.sync(t.Context())
	if wait := h.sync(t.Context()); wait < time.Second || len(a.status["n2"]) != 0 {
		t.Fatalf("a time-out waits %v; written %v", wait, a.status["n2"])
	}
}

func TestWebhook(t *testing.T) {
	a, c := newAPI(t), newClock()
	a.answer = func(n int, _ *http.Request) (int, string) {
		if n == 1 {
			return 500, ""
		}

		return 0, ""
	}
	h := NewWebhook(a.URL+"/hook", slog.New(slog.DiscardHandler))
	h.client, h.now = a.Client(), c.Now
	h.Changed("1", slow("j", "n1"))
	c.pass(h.send(t.Context()))
	h.Changed("2", slow("j", "n2")) // newer than what failed
	c.pass(h.send(t.Context()))
	h.send(t.Context())
	if len(a.bodies) != 2 || !strings.Contains(a.bodies[1], `"n2"`) {
		t.Fatalf("posted %q", a.bodies)
	}
}
