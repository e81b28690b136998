package grafana_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestPanelsAreDescribed(t *testing.T) {
	for _, d := range dashboards(t) {
		seen, ids, taken := map[string]bool{}, map[int]bool{}, map[[2]int]string{}
		for _, p := range d.Panels {
			if seen[p.Title] || p.Title == "" || ids[p.ID] {
				t.Errorf("%s: title %q is empty, or it or number %d is there twice", d.UID, p.Title, p.ID)
			}

			seen[p.Title], ids[p.ID] = true, true
			if p.Type != "row" && p.Description == "" || p.GridPos.X+p.GridPos.W > 24 {
				t.Errorf("%s: %s has no description or passes the page's edge", d.UID, p.Title)
			}

			for x := range p.GridPos.W {
				for y := range p.GridPos.H {
					cell := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
					if taken[cell] != "" {
						t.Fatalf("%s: %s lies over %s", d.UID, p.Title, taken[cell])
					}

					taken[cell] = p.Title
				}
			}
		}
	}
}

// TestQueriesAskTheirSource: a page asks the data sources that its selectors offer, and the
// format of a query is the one that its kind names.
func TestQueriesAskTheirSource(t *testing.T) {
	ours := source{Type: plugin, UID: "${datasource}"}
	prometheus := source{Type: "prometheus", UID: "${prometheus}"}
	for _, d := range dashboards(t) {
		check := func(title string, q target, outer source) {
			want := ours
			if q.Expr != "" {
				want = prometheus
			}

			formats := map[string]int{"table": formatTable, "timeseries": formatSeries}
			if format, ok := formats[q.QueryType]; q.Datasource != want || outer != want || q.RefID == "" || q.Expr == "" && (!ok || q.Format != format || q.RawSQL == "") {
				t.Errorf("%s, %s: %+v asked of %+v", d.UID, title, q, outer)
			}
		}
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				check(p.Title, q, p.Datasource)
			}
		}

		for _, a := range d.Annotations.List {
			check(a.Name, a.Target, a.Datasource)
		}

		for _, v := range d.Templating.List {
			if q, ok := v.target(); ok {
				check(v.Name, q, v.Datasource)
				if v.Definition != q.RawSQL {
					t.Errorf("%s, %s: the definition is not the query", d.UID, v.Name)
				}
			}
		}
	}
}

// TestFilesHaveReaders: every file in the folders is one that the tests read.
func TestFilesHaveReaders(t *testing.T) {
	for dir, want := range map[string]string{
		"dashboards": "laggard-fleet.json laggard-job.json laggard-pipeline.json laggard-rank.json", "alerts": "kustomization.yaml prometheusrule.yaml",
		"provisioning/datasources": "laggard.yaml", "provisioning/dashboards": "laggard.yaml", "provisioning/alerting": "laggard.yaml",
	} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}

		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}

		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s has %s, the tests read %s", dir, got, want)
		}
	}

	for _, d := range dashboards(t) {
		if _, known := columns[d.UID]; !known || len(d.Tags) != 1 || d.Tags[0] != "laggard" {
			t.Errorf("%s: tags %v; links between pages go by the tag", d.UID, d.Tags)
		}
	}
}

// shared are the subqueries that several queries begin with: README.md has what each is.
var shared = regexp.MustCompile(`(?m)^(?:WITH )?(seats|chosen|alike|current|runs|losses|entries|account|arrivals|live) AS \(`)

// jobs are the conditions on jobs: of a page with one, of a page with several, of an alert.
var jobs = strings.NewReplacer("$__conditionalAll(job IN (${job:sqlstring}), $job)", "JOBS", "job = ${job:sqlstring}", "JOBS", "1 = 1", "JOBS")

// TestSharedPartsAreAlike: a subquery that has one name is one text on all pages, so that
// a change of it is made everywhere.
func TestSharedPartsAreAlike(t *testing.T) {
	first, uses := map[string]string{}, 0
	check := func(where, sql string) {
		for _, at := range shared.FindAllStringSubmatchIndex(sql, -1) {
			name := sql[at[2]:at[3]]
			_, end, err := arguments(sql, at[1]-1)
			if err != nil {
				t.Fatal(err)
			}

			text := jobs.Replace(sql[at[1]:end])
			if first[name] == "" {
				first[name] = text
			}

			if uses++; text != first[name] {
				t.Errorf("%s: %s is\n%s\nelsewhere\n%s", where, name, text, first[name])
			}
		}
	}
	for _, d := range dashboards(t) {
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				check(d.UID+", "+p.Title, q.RawSQL)
			}
		}
	}

	for _, a := range alerts(t) {
		check(a.Title, a.sql())
	}

	if len(first) != 10 || uses < 50 {
		t.Errorf("%d shared parts in %d places", len(first), uses)
	}
}
