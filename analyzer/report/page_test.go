package report

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/row"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// maxPage is the size that a page never reaches.
const maxPage = 5_000_000

// pages is where the pages of the samples are written: $LAGGARD_PAGES, to look at
// them, else a temporary directory.
func pages(t *testing.T) string {
	if dir := os.Getenv("LAGGARD_PAGES"); dir != "" {
		return dir
	}

	return t.TempDir()
}

func writePage(t *testing.T, path string, v *verdict.Verdict, f *frame.Frame, step *frame.Timeline) {
	t.Helper()
	var b bytes.Buffer
	if err := HTML(&b, v, f, step, ""); err != nil {
		t.Fatalf("HTML: %v", err)
	}

	if b.Len() >= maxPage {
		t.Errorf("page has %d bytes, want below %d", b.Len(), maxPage)
	}

	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// browser is a headless Chromium that notes what goes wrong in a page.
type browser struct {
	ctx context.Context

	mu       sync.Mutex
	problems []string // guarded by mu: console errors, exceptions, policy violations
	requests []string // guarded by mu
}

func startBrowser(t *testing.T) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("find chromium: %v; install Debian's package chromium", err)
	}

	allocator, stop := chromedp.NewExecAllocator(context.Background(),
		chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.Headless,
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-sync", true), chromedp.WindowSize(1320, 1900))
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Logf("stop chromium: %v", err)
		}

		cancel()
		stop()
	})
	b := &browser{}
	if err := chromedp.Listen(ctx, b.note); err != nil {
		t.Fatalf("start chromium: %v", err)
	}

	bounded, done := context.WithTimeout(ctx, 5*time.Minute)
	t.Cleanup(done)
	b.ctx = bounded
	b.run(t, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, network.Enable, network.EnableParams{})
		_, err2 := cdp.Call(ctx, target, log.Enable, cdp.Empty{})
		return errors.Join(err, err2)
	}))
	return b
}

func (b *browser) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		for _, a := range e.Args {
			b.problems = append(b.problems, fmt.Sprintf("console %s: %s", e.Type, a.Value))
		}
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, "exception: "+e.ExceptionDetails.Exception.Description)
	case *log.EventEntryAdded:
		b.problems = append(b.problems, fmt.Sprintf("%s %s: %s", e.Entry.Source, e.Entry.Level, e.Entry.Text))
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	}
}

// open loads a page, waits until it is drawn, and fails on anything in the console
// and on any request but the page's own.
func (b *browser) open(t *testing.T, path string) {
	t.Helper()
	b.mu.Lock()
	b.problems, b.requests = nil, nil
	b.mu.Unlock()
	b.run(t, chromedp.Navigate("file://"+path), chromedp.WaitReady(chromedp.CSS(`html[data-ready="yes"]`)))
}

func (b *browser) run(t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

// eval returns the value of a script.
func eval[T any](t *testing.T, b *browser, script string) T {
	t.Helper()
	return ask(t, b, chromedp.Evaluate[T](script))
}

// ask runs an action that has a result.
func ask[T any](t *testing.T, b *browser, action chromedp.Action[T]) T {
	t.Helper()
	v, err := chromedp.Run(b.ctx, action)
	if err != nil {
		t.Fatal(err)
	}

	return v
}

func (b *browser) check(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.problems {
		t.Errorf("page: %s", p)
	}

	if len(b.requests) != 1 {
		t.Errorf("page made requests: %q", b.requests)
	}
}

// colours counts the different colours on a canvas.
const colours = `(sel => { const c = document.querySelector(sel), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, s = new Set();
for (let i = 0; i < d.length; i += 4) s.add(d[i] << 16 | d[i+1] << 8 | d[i+2]); return s.size; })`

func TestHTML_DrawsEverySample(t *testing.T) {
	b, dir := startBrowser(t), pages(t)
	for name, s := range samples {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, name+".html")
			v, f := s.verdict(), s.frame()
			writePage(t, path, v, f, nil)
			b.open(t, path)
			text := eval[string](t, b, `document.body.innerText`)
			want := []string{"Every rank, every step", "What this rests on", "No checkpoint was recorded", fmt.Sprintf("%s ranks", grouped(s.ranks))}
			if s.slow >= 0 {
				want = append(want, fmt.Sprintf("node-%d slows this job down.", s.slow/s.perNode), "node-hours", "lost so far", "What to do.", fmt.Sprintf("rank %d", s.slow))
			} else {
				want = append(want, "No node slows this job down.")
			}

			for _, w := range want {
				if !strings.Contains(text, w) {
					t.Errorf("page lacks %q", w)
				}
			}

			if n := eval[int](t, b, colours+`('#map canvas')`); n < 20 {
				t.Errorf("heat map has %d colours: nothing drawn?", n)
			}

			if n, want := eval[int](t, b, `document.querySelectorAll('.chart path.own').length`), len(chartsOf(v, pictureOf(f))); n < want {
				t.Errorf("%d lines in evidence charts, want at least %d", n, want)
			}

			for _, theme := range []string{"light", "dark"} {
				for (eval[string](t, b, `getComputedStyle(document.body).backgroundColor`) == "rgb(16, 18, 22)") != (theme == "dark") {
					b.run(t, chromedp.Click(chromedp.CSS("#theme")))
				}

				if out := os.Getenv("LAGGARD_PAGES"); out != "" {
					png := ask(t, b, chromedp.FullScreenshot(100))
					if err := os.WriteFile(filepath.Join(out, name+"-"+theme+".png"), png, 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}

			b.check(t)
		})
	}
}

// TestHTML_CellsComeBack compares what the page's script decoded with the picture.
func TestHTML_CellsComeBack(t *testing.T) {
	b := startBrowser(t)
	s := samples["8"]
	f := s.frame()
	path := filepath.Join(t.TempDir(), "page.html")
	writePage(t, path, s.verdict(), f, nil)
	values := pictureOf(f).layers(s.verdict())[0].values
	b.open(t, path)
	b.run(t, chromedp.Focus(chromedp.CSS("#map canvas")))
	press := func(key string) string {
		return fmt.Sprintf(`document.querySelector('#map canvas').dispatchEvent(new KeyboardEvent('keydown', {key: %q}))`, key)
	}
	// The cursor begins at the culprit in the first step; one to the right, then along.
	for step := 1; step < 6; step++ {
		b.run(t, chromedp.Evaluate[chromedp.Void](press("ArrowRight")))
		tip := eval[string](t, b, `document.getElementById('tip').innerText`)
		v := values[s.slow][step]
		want := "not measured"
		if v == v {
			want = strings.TrimSuffix(times(float64(v)), "×")
			want = want[:len(want)-1] // cells hold half a percent
		}

		if !strings.HasPrefix(tip, want) && v == v && !near(tip, float64(v)) || !strings.Contains(tip, fmt.Sprintf("rank %d on node-%d", s.slow, s.slow/s.perNode)) || !strings.Contains(tip, fmt.Sprintf("step %d", 100+step)) {
			t.Errorf("tip at step %d says %q, want %s… (%g)", 100+step, tip, want, v)
		}
	}

	for _, key := range []string{"+", "+", "-", "ArrowUp", "ArrowDown", "ArrowLeft", "0"} {
		b.run(t, chromedp.Evaluate[chromedp.Void](press(key)))
	}

	b.run(t, chromedp.Click(chromedp.CSS(`#map-layers button:nth-child(2)`)), chromedp.Click(chromedp.CSS(`#map-in`)), chromedp.Click(chromedp.CSS(`#map-order button`)))
	b.check(t)
}

func near(tip string, want float64) bool {
	var got float64
	if _, err := fmt.Sscanf(tip, "%f", &got); err != nil {
		return false
	}

	return got > want*0.985 && got < want*1.015
}

// TestHTML_HostileNames puts markup and script into every string of a verdict and
// a picture: nothing of it may become an element or run.
func TestHTML_HostileNames(t *testing.T) {
	const evil = `</script><script>window.owned=1</script><img src=x onerror="window.owned=1">'"` + "`${window.owned=1}`" + `<!--</title><svg/onload=window.owned=1>&lt;script&gt;{{.}}` + "\u2028"
	s := samples["8"]
	v, f := s.verdict(), s.frame()
	v.Job, v.Source, v.Roles = evil, evil, evil
	n := &v.Nodes[0]
	n.Node, n.State, n.Cause, n.Detail, n.Evidence[0].Metric = evil, evil, evil, evil, evil
	v.Links = []verdict.Link{{Group: evil, Nodes: []string{evil}, State: evil, Detail: evil}}
	v.Findings = []verdict.Finding{{Kind: evil, Detail: evil}}
	v.Events = []verdict.Event{{Node: evil, Kind: evil, Cause: evil}}
	f.Notes = []string{evil}
	for i := range f.Layouts[0].Nodes {
		f.Layouts[0].Nodes[i] = evil
	}

	v.Arrivals = &verdict.Arrivals{Collectives: 1, Steps: 1, Ranks: []verdict.Arrival{{Node: evil}}}
	b := startBrowser(t)
	path := filepath.Join(t.TempDir(), "page.html")
	writePage(t, path, v, f, aStep(evil))
	b.open(t, path)
	b.run(t, chromedp.Evaluate[chromedp.Void](`document.querySelector('#map canvas').focus(); document.querySelector('#map canvas').dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowDown'}))`))
	if eval[bool](t, b, `'owned' in window`) {
		t.Error("script of a name ran")
	}

	if n := eval[int](t, b, `document.scripts.length`); n != 2 {
		t.Errorf("page has %d scripts, want 2", n)
	}

	if n := eval[int](t, b, `document.querySelectorAll('img, iframe, object, svg[onload], [onerror]').length`); n != 0 {
		t.Errorf("page has %d foreign elements", n)
	}

	if title := eval[string](t, b, `document.title`); !strings.Contains(title, "<script>window.owned=1</script>") {
		t.Errorf("title = %q, want the name as text", title)
	}

	b.check(t)
}

// aStep is a step of two ranks, of which the second waits for the first; with thousands of short
// ranges, and one that others overlap.
func aStep(name string) *frame.Timeline {
	const ms = 1_000_000
	v := &frame.Timeline{Step: 7, Aligned: true, Unsure: 2e-6, From: 5 * ms, To: 105 * ms}
	for rank := range 2 {
		l := frame.Line{Rank: rank, Node: name, Length: 0.1, Blocked: 0.05, Collectives: 1, Communications: 1, For: -1}
		add := func(kind, op string, start, dur, waits int64, whom int) {
			l.Ranges = append(l.Ranges, frame.Range{Record: row.Record{Rank: uint32(rank), Kind: kind, Op: op, Group: name, Step: 7, StartNs: start, DurNs: dur, ExposedNs: -1}, Waits: waits, For: whom})
		}
		add("Step", "", 5*ms, 100*ms, 0, -1)
		add("DataLoader", "", 6*ms, 4*ms, 0, -1)
		add("FP", "", 10*ms, 20*ms, 0, -1)
		add(name, "", 30*ms, 20*ms, 0, -1)
		if rank == 0 {
			l.Part, l.Last = frame.Culprit, 1
			add("Communication", "allreduce", 85*ms, 5*ms, 0, -1)
		} else {
			l.Part, l.For, l.Waited = frame.Victim, 0, 0.03
			add("Communication", "allreduce", 55*ms, 35*ms, 30*ms, 0)
			add("Communication", "send", 60*ms, 5*ms, 0, -1)
		}

		for i := range int64(5000) {
			add("Communication", name, 91*ms+i*1000, 500, 0, -1)
		}

		add("SaveCheckpoint", "", 100*ms, 5*ms, 0, -1)
		v.Lines = append(v.Lines, l)
	}

	return v
}

// TestHTML_Timeline: every range of a step is where its times say, waiting is marked and says for
// whom, and what is too narrow to be seen is drawn together.
func TestHTML_Timeline(t *testing.T) {
	b, dir := startBrowser(t), pages(t)
	s := samples["8"]
	v := s.verdict()
	v.Arrivals = &verdict.Arrivals{Collectives: 3, Steps: 1, Clear: true}
	for rank := range 20 {
		v.Arrivals.Ranks = append(v.Arrivals.Ranks, verdict.Arrival{Rank: rank, Node: "node-0", Waited: float64(rank)})
	}

	path := filepath.Join(dir, "timeline.html")
	writePage(t, path, v, s.frame(), aStep("node-0"))
	b.open(t, path)
	text := eval[string](t, b, `document.querySelector('#timeline').innerText + document.querySelector('#arrivals').innerText`)
	for _, want := range []string{"Step 7, side by side", "sure to ± 2.00 µs", "rank 0", "node-0 · waits most", "waits for a rank that has not entered", "loading data", "4 ranks in between"} {
		if !strings.Contains(text, want) {
			t.Errorf("page lacks %q: %s", want, text)
		}
	}

	if got := eval[string](t, b, `[...document.querySelectorAll('#timeline rect.waits title')].map(e => e.textContent).join()`); got != "allreduce in group node-0: waits for rank 0, 30.0 ms" {
		t.Errorf("waits: %q", got)
	}

	// 30 of 100 ms are waited, 100 of 100 is the step.
	if got := eval[float64](t, b, `document.querySelector('div.steps rect.waits').getBoundingClientRect().width / document.querySelector('div.steps rect.own').getBoundingClientRect().width`); math.Abs(got-0.3) > 0.002 {
		t.Errorf("waiting is %.4f as wide as the step, want 0.3", got)
	}

	if n := eval[int](t, b, `document.querySelectorAll('div.steps rect').length`); n > 300 {
		t.Errorf("%d bars of ranges that nobody can tell apart", n)
	}

	if fill := eval[string](t, b, `getComputedStyle(document.querySelector('div.steps rect.waits')).fill`); !strings.Contains(fill, "#hatch") {
		t.Errorf("waiting is filled with %s", fill)
	}

	if out := os.Getenv("LAGGARD_PAGES"); out != "" {
		png := ask(t, b, chromedp.FullScreenshot(100))
		if err := os.WriteFile(filepath.Join(out, "timeline.png"), png, 0o644); err != nil {
			t.Fatal(err)
		}
	}

	b.check(t)
}

func TestHTML_WithoutPicture(t *testing.T) {
	b, dir := startBrowser(t), t.TempDir()
	for name, v := range cases() {
		path := filepath.Join(dir, name+".html")
		writePage(t, path, v, nil, nil)
		b.open(t, path)
		if h := eval[string](t, b, `document.querySelector('h1').innerText`); h != headlineOf(v).Title {
			t.Errorf("%s: headline %q, want %q", name, h, headlineOf(v).Title)
		}

		text := eval[string](t, b, `document.body.innerText`)
		for _, l := range v.Links { // each row says what its link costs, at most where that is all that is known
			if want := Costs(l.JobImpact, l.JobImpactMax); !strings.Contains(text, "\t"+want+"\t") {
				t.Errorf("%s: no cell %q in %q", name, want, text)
			}
		}

		b.check(t)
	}
}

// TestHTML_StaysSmall renders thousands of steps of 8,192 ranks, with much noise
// (which does not compress).
func TestHTML_StaysSmall(t *testing.T) {
	s := samples["8192"]
	s.steps, s.noise = 3000, 0.15
	t.Logf("scale: %d ranks × %d steps", s.ranks, s.steps)
	var b bytes.Buffer
	if err := HTML(&b, s.verdict(), s.frame(), nil, ""); err != nil {
		t.Fatal(err)
	}

	t.Logf("%d bytes", b.Len())
	if b.Len() >= maxPage {
		t.Errorf("page has %d bytes, want below %d", b.Len(), maxPage)
	}
}

func TestHTML_SameInputSameBytes(t *testing.T) {
	s := samples["8"]
	var a, b bytes.Buffer
	for _, w := range []*bytes.Buffer{&a, &b} {
		if err := HTML(w, s.verdict(), s.frame(), nil, ""); err != nil {
			t.Fatal(err)
		}
	}

	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Fatal("two calls gave different bytes")
	}
}

// TestHTML_Prints: on paper the page is light, whatever the screen is, its buttons are
// away, and the heat map is there.
func TestHTML_Prints(t *testing.T) {
	b, dir := startBrowser(t), pages(t)
	s := samples["64"]
	path := filepath.Join(dir, "print.html")
	writePage(t, path, s.verdict(), s.frame(), nil)
	b.open(t, path)
	for eval[string](t, b, `getComputedStyle(document.body).backgroundColor`) != "rgb(16, 18, 22)" {
		b.run(t, chromedp.Click(chromedp.CSS("#theme")))
	}

	if pdf := ask(t, b, chromedp.PrintToPDF()); !bytes.HasPrefix(pdf, []byte("%PDF")) || len(pdf) < 50_000 {
		t.Errorf("printed %d bytes, beginning %q", len(pdf), pdf[:min(len(pdf), 8)])
	}

	// The same as it stands on the screen, to be looked at.
	b.run(t, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"})
		return err
	}), chromedp.Evaluate[chromedp.Void](`dispatchEvent(new Event('beforeprint'))`))
	if got := eval[string](t, b, `getComputedStyle(document.body).backgroundColor`); got != "rgb(255, 255, 255)" {
		t.Errorf("paper is %s", got)
	}

	if eval[bool](t, b, `['#theme', '.seg', '#tip'].some(s => [...document.querySelectorAll(s)].some(e => getComputedStyle(e).display !== 'none'))`) {
		t.Error("buttons are printed")
	}

	if n := eval[int](t, b, colours+`('#map canvas')`); n < 20 {
		t.Errorf("heat map has %d colours on paper", n)
	}

	if out := os.Getenv("LAGGARD_PAGES"); out != "" {
		png := ask(t, b, chromedp.FullScreenshot(100))
		if err := os.WriteFile(filepath.Join(out, "64-print.png"), png, 0o644); err != nil {
			t.Fatal(err)
		}
	}

	b.check(t)
}
