package grafana_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// drawn is a panel with its results, as testdata/page.html draws it.
type drawn struct {
	Panel   json.RawMessage `json:"panel"`
	Columns [][]string      `json:"columns"` // name, kind
	Rows    [][]any         `json:"rows"`
}

// pictures draws the dashboards from the results, in headless Chromium: not
// Grafana, but the same data in the same places, to be looked at. They go to
// $LAGGARD_PICTURES when it is set.
func pictures(t *testing.T, results map[string]reply) {
	page, err := os.ReadFile(filepath.Join("testdata", "page.html"))
	if err != nil {
		t.Fatal(err)
	}

	dir := os.Getenv("LAGGARD_PICTURES")
	if dir == "" {
		dir = t.TempDir()
	}

	ctx := chromium(t)
	for _, d := range dashboards(t) {
		for _, name := range []string{"every", "big", "node", "demo"} {
			if !wanted(d.UID, name) || name == "big" && wanted(d.UID, "every") {
				continue
			}

			text, err := json.Marshal(map[string]any{"title": d.Title, "view": name, "panels": withResults(d, name, results)})
			if err != nil {
				t.Fatal(err)
			}

			path := filepath.Join(dir, d.UID+"-"+name)
			html := strings.Replace(string(page), "DATA", strings.ReplaceAll(string(text), "</", `<\/`), 1)
			if err := os.WriteFile(path+".html", []byte(html), 0o644); err != nil {
				t.Fatal(err)
			}

			picture(t, ctx, path, len(d.Panels))
		}
	}
}

func withResults(d dashboard, name string, results map[string]reply) []drawn {
	var all []drawn
	for _, p := range d.Panels {
		r := results[d.UID+"/"+p.Title+"/"+name]
		x := drawn{Panel: p.text, Rows: r.Data, Columns: [][]string{}}
		for _, m := range r.Meta {
			x.Columns = append(x.Columns, []string{m.Name, kind(m.Type)})
		}

		if len(x.Rows) > 40 && p.Type == "table" {
			x.Rows = x.Rows[:40]
		}

		all = append(all, x)
	}

	return all
}

// picture takes the PNG and holds the page to having drawn every panel.
func picture(t *testing.T, ctx context.Context, path string, panels int) {
	t.Helper()
	absolute, err := filepath.Abs(path + ".html")
	if err != nil {
		t.Fatal(err)
	}

	ask(t, ctx, path, chromedp.Navigate("file://"+absolute))
	title := ask(t, ctx, path, chromedp.Title())
	png := ask(t, ctx, path, chromedp.FullScreenshot(100))
	if want := fmt.Sprintf("drawn %d", panels); title != want {
		t.Errorf("%s: page says %q, want %q", path, title, want)
	}

	if len(png) < 20_000 {
		t.Errorf("%s: picture has %d bytes: nothing on it", path, len(png))
	}

	if err := os.WriteFile(path+".png", png, 0o644); err != nil {
		t.Fatal(err)
	}
}

func ask[T any](t *testing.T, ctx context.Context, path string, action chromedp.Action[T]) T {
	t.Helper()
	v, err := chromedp.Run(ctx, action)
	if err != nil {
		t.Fatalf("draw %s: %v", path, err)
	}

	return v
}

// chromium starts the browser; it ends with the test.
func chromium(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("find chromium: %v; install Debian's package chromium", err)
	}

	allocator, stop := chromedp.NewExecAllocator(context.Background(),
		chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.Headless, chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.UserDataDir(t.TempDir()), chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true), chromedp.WindowSize(1500, 1200))
	ctx, cancel := chromedp.NewContext(allocator)
	limited, done := context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Logf("stop chromium: %v", err)
		}

		done()
		cancel()
		stop()
	})
	return limited
}
