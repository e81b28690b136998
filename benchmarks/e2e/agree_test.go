package e2e

import (
	"encoding/json"
	"fmt"
	"html"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/laggard-dev/laggard/analyzer/report"
	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// TestCost_PagesAndStoresAgree judges a job with two culprits, which together cost
// something else than their sum, from files, Parquet, ClickHouse 18.16 and the current
// engine: one verdict. Then it asks that engine what the panels show of what watch
// stored: the verdict's numbers and its first line. And it asks the report's page, the replay
// of raw ranges, and a webhook that watch calls.
func TestCost_PagesAndStoresAgree(t *testing.T) {
	t.Parallel()
	dir, _ := simulatedFiles(t, "two-culprits", 3, 32)
	v := decided(t, verdict.ExitDegraded, dir)
	sum := 0.0
	for _, n := range v.Nodes {
		sum += n.JobImpact
	}

	if len(v.Nodes) != 2 || math.Abs(sum-v.JobImpact) < 1e-3 {
		t.Fatalf("%d culprits cost %.4f one by one and %.4f together: they tell no sum from the whole", len(v.Nodes), sum, v.JobImpact)
	}

	server, engine := chtest.Start(t), chtest.StartEngine(t)
	current := "clickhouse://" + engine.Address + "/default?protocol=http&compression=none"
	for _, store := range []string{"parquet:" + t.TempDir(), server.Store(server.Database()), current} {
		if r := laggard(t, "ingest", dir, "--to", store, "--state", t.TempDir()); r.code != 0 {
			t.Fatalf("ingest to %s: %s%s", store, r.out, r.err)
		}

		same(t, "analyze "+store, v, decided(t, verdict.ExitDegraded, store))
	}

	r := laggard(t, "watch", current, "--once", "--to", current, "-o", "json")
	var watched verdict.Verdict
	if err := json.Unmarshal([]byte(r.out), &watched); err != nil || r.code != verdict.ExitDegraded {
		t.Fatalf("watch --once: exit code %d, %v\n%s%s", r.code, err, r.out, r.err)
	}

	same(t, "watch", v, &watched)

	p := pages{t, engine, v.Job}
	if got := p.ask("laggard-job", "Verdict"); len(got) != 1 || got[0]["verdict"] != report.Headline(v) {
		t.Errorf("panel Verdict: %v, want %q", got, report.Headline(v))
	}

	if got := p.ask("laggard-job", "Impact"); len(got) != 1 || !is(got[0]["impact"], v.JobImpact) {
		t.Errorf("panel Impact: %v, the verdict says %v", got, v.JobImpact)
	}

	if got := p.ask("laggard-fleet", "Jobs"); len(got) != 1 || !is(got[0]["impact"], v.JobImpact) || !is(got[0]["degraded"], 2) {
		t.Errorf("panel Jobs: %v, the verdict says %v", got, v.JobImpact)
	}

	series := map[any]any{}
	for _, point := range p.ask("laggard-job", "Impact over time") {
		series[point["series"]] = point["value"]
	}

	if !is(series["all together"], v.JobImpact) {
		t.Errorf("panel Impact over time: %v, the verdict says %v", series, v.JobImpact)
	}

	causes := map[any]map[string]any{}
	for _, line := range p.ask("laggard-job", "Causes") {
		causes[line["subject"]] = line
	}

	if len(causes) != len(v.Nodes) {
		t.Errorf("panel Causes: %v", causes)
	}

	for _, n := range v.Nodes {
		line := causes[n.Node]
		if !is(line["impact"], n.JobImpact) || !is(line["slowdown"], n.Slowdown) || line["cause"] != n.Cause || !is(series[n.Node], n.JobImpact) {
			t.Errorf("panels say of %s: %v and %v, the verdict says %+v", n.Node, line, series[n.Node], n)
		}
	}

	var stored verdict.Verdict
	body, err := engine.Query(`SELECT body FROM verdicts WHERE node = '' AND "group" = '' AND finding = '' FORMAT TSVRaw`)
	if err == nil {
		err = json.Unmarshal([]byte(body), &stored)
	}

	if err != nil {
		t.Fatalf("the stored verdict: %v in %q", err, body)
	}

	same(t, "the stored verdict", v, &stored)

	all := "What if all of them did: " + fmt.Sprintf("%.1f%%", 100*v.JobImpact)
	if r := laggard(t, "explain", "--what-if", dir); !strings.Contains(r.out, all) {
		t.Errorf("what-if doesn't say %q:\n%s", all, r.out)
	}

	x := whatIf(t, dir)
	same(t, "explain --what-if", v, &x.Verdict)
	if off := math.Abs(x.WhatIf.Together - v.JobImpact); off > max(0.005, 0.15*v.JobImpact) {
		t.Errorf("the ranges say %.4f, the verdict %.4f", x.WhatIf.Together, v.JobImpact)
	}

	pageAgrees(t, dir, v)
	same(t, "the webhook", v, posted(t, dir, v.Steps.Last))
}

// pageAgrees holds the HTML report to the verdict: its figures, and the JSON within it.
func pageAgrees(t *testing.T, dir string, v *verdict.Verdict) {
	t.Helper()
	page := laggard(t, "analyze", dir, "-o", "html").out
	_, headline, _ := strings.Cut(report.Headline(v), ": ") // after the word for the state
	wanted := []string{`<h1 id="verdict">` + headline + "</h1>", "<dd>" + report.Costs(v.JobImpact, v.JobImpactMax) + "</dd><dt>of step time waits for it</dt>"}
	for _, n := range v.Nodes {
		wanted = append(wanted, fmt.Sprintf("<b>%.2f×</b> against peers · <b>%s</b> of step time", n.Slowdown, report.Costs(n.JobImpact, n.JobImpactMax)))
	}

	for _, w := range wanted {
		if !strings.Contains(page, w) {
			t.Errorf("the page doesn't say %q", w)
		}
	}

	_, text, _ := strings.Cut(page, "<summary>The verdict as JSON</summary><pre>")
	text, _, found := strings.Cut(text, "</pre>")
	var within verdict.Verdict
	if err := json.Unmarshal([]byte(html.UnescapeString(text)), &within); !found || err != nil {
		t.Fatalf("the page's JSON: %v in %.300q", err, text)
	}

	same(t, "the page's JSON", v, &within)
}

// posted runs watch until its webhook has got a verdict on the job's last step, and returns it.
func posted(t *testing.T, dir string, last int64) *verdict.Verdict {
	t.Helper()
	came := make(chan verdict.Verdict, 100)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var v verdict.Verdict
		if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
			t.Errorf("what the webhook got: %v", err)
		}

		came <- v
	}))
	defer hook.Close()
	w := (&site{t: t}).start("watch", dir, "--every", "10ms", "--metrics", "", "--forget", "999999h", "--state", t.TempDir(), "--webhook", hook.URL)
	late := time.After(patience)
	for {
		select {
		case v := <-came:
			if v.Steps.Last < last {
				continue
			}

			if err := w.command.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}

			w.wait()
			return &v
		case err := <-w.done:
			t.Fatalf("watch ended: %v\n%s", err, w.words)
		case <-late:
			t.Fatalf("no verdict on step %d came to the webhook\n%s", last, w.words)
		}
	}
}

// same holds a verdict to analyze's on the files; where it was read from may differ.
func same(t *testing.T, who string, want, got *verdict.Verdict) {
	t.Helper()
	w, g := *want, *got
	w.Source, g.Source = "", ""
	if diff := cmp.Diff(w, g); diff != "" {
		t.Errorf("%s differs from analyze of the files (-files +it):\n%s", who, diff)
	}
}

// is reports whether a panel's value is a number, which is stored in millionths.
func is(value any, want float64) bool {
	switch x := value.(type) {
	case float64:
		return math.Abs(x-want) < 1e-6
	case string: // a 64-bit integer
		return x == fmt.Sprint(want)
	}

	return false
}

// pages asks an engine what panels show of one job.
type pages struct {
	t      *testing.T
	engine *chtest.Engine
	job    string
}

// ask returns the rows of a panel. Macros and variables become what the plugin makes of
// them over all time: deploy/grafana tests that.
func (p pages) ask(dashboard, title string) (rows []map[string]any) {
	p.t.Helper()
	macros := strings.NewReplacer("${job:sqlstring}", "'"+p.job+"'", "$__timeFilter(ts)", "1 = 1",
		"$__conditionalAll(job IN (${job:sqlstring}), $job)", "job = '"+p.job+"'",
		"$__conditionalAll(node IN ('', ${node:sqlstring}), $node)", "1 = 1",
		"$__fromTime", "toDateTime(0)", "$__toTime", "toDateTime(4000000000)")
	var page struct {
		Panels []struct {
			Title   string
			Targets []struct{ RawSQL string }
		}
	}
	b, err := os.ReadFile(filepath.Join("..", "..", "deploy", "grafana", "dashboards", dashboard+".json"))
	if err == nil {
		err = json.Unmarshal(b, &page)
	}

	if err != nil {
		p.t.Fatalf("dashboard %s: %v", dashboard, err)
	}

	for _, panel := range page.Panels {
		if panel.Title != title {
			continue
		}

		text, err := p.engine.Query(macros.Replace(panel.Targets[0].RawSQL) + "\nFORMAT JSON")
		var reply struct{ Data []map[string]any }
		if err == nil {
			err = json.Unmarshal([]byte(text), &reply)
		}

		if err != nil {
			p.t.Fatalf("panel %s: %v", title, err)
		}

		return reply.Data
	}

	p.t.Fatalf("dashboard %s has no panel %s", dashboard, title)
	return nil
}
