package grafana_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	described  = regexp.MustCompile(`\b(?:description|counter|gauge)\("(\w+)"`)
	metricName = regexp.MustCompile(`\blaggard_\w+`)
)

// TestMetricsExist holds every PromQL expression to metrics that somebody exports.
func TestMetricsExist(t *testing.T) {
	known := map[string]bool{}
	for _, file := range []string{"writer/agent/metrics.go", "analyzer/watch/metrics.go"} {
		source, err := os.ReadFile(filepath.Join("..", "..", file))
		if err != nil {
			t.Fatal(err)
		}

		for _, m := range described.FindAllStringSubmatch(string(source), -1) {
			known["laggard_"+m[1]] = true
		}
	}

	var all []string
	for _, a := range alerts(t) {
		all = append(all, a.twin.Expr)
	}

	for _, d := range dashboards(t) {
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				all = append(all, target.Expr)
			}
		}
	}

	for _, expr := range all {
		for _, name := range metricName.FindAllString(expr, -1) {
			if !known[name] {
				t.Errorf("%s: nobody exports %s", expr, name)
			}
		}

		if strings.Count(expr, "(") != strings.Count(expr, ")") {
			t.Errorf("%s: brackets don't match", expr)
		}
	}
}

// TestRulesAreTwins: the same alerts in both files, each with its action, and labels in a
// summary that its query has. A query that fails is an alert of its own; one without rows
// is well, because rows are what is wrong.
func TestRulesAreTwins(t *testing.T) {
	for _, a := range alerts(t) {
		p := a.twin
		if a.UID != strings.ToLower(p.Alert) || a.For != p.For || a.Annotations["action"] != p.Annotations["action"] || len(a.Annotations["action"]) < 80 || !maps.Equal(a.Labels, p.Labels) {
			t.Errorf("%s: not twins: %+v and %+v", p.Alert, a.rule, p)
		}

		if a.Labels["component"] != "laggard" || a.Labels["severity"] == "" || a.NoDataState != "OK" || a.ExecErrState != "Error" {
			t.Errorf("%s: labels %v, without data %s, after an error %s", p.Alert, a.Labels, a.NoDataState, a.ExecErrState)
		}

		query, threshold := a.Data[0], a.Data[1]
		if m := query.Model; query.RefID != "A" || m.RefID != "A" || query.DatasourceUID != sourceUID || m.EditorType != "sql" || m.QueryType != "table" || m.Format != formatTable {
			t.Errorf("%s: query %+v", p.Alert, query)
		}

		if m := threshold.Model; threshold.RefID != "B" || m.RefID != "B" || threshold.DatasourceUID != "__expr__" || m.Type != "threshold" || m.Expression != "A" || m.Conditions[0].Evaluator.Type != "gt" || threshold.RelativeTimeRange != query.RelativeTimeRange {
			t.Errorf("%s: threshold %+v", p.Alert, threshold)
		}

		for _, label := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(a.Annotations["summary"], -1) {
			if !strings.Contains(columns["alerts"][a.Title], label[1]+" text") {
				t.Errorf("%s: the summary speaks of %s, its query has %s", p.Alert, label[1], columns["alerts"][a.Title])
			}
		}
	}
}

// sourceUID is the data source that provisioning makes and alert rules ask: they can't
// choose one as pages do.
const sourceUID = "laggard-clickhouse"

// TestProvisioning: the data source that the rules ask is the one that is made, of the
// plugin that the pages' queries are for, and pages are loaded.
func TestProvisioning(t *testing.T) {
	var made struct{ Datasources []source }
	read(t, "provisioning/datasources/laggard.yaml", &made)
	if len(made.Datasources) != 1 || made.Datasources[0] != (source{Type: plugin, UID: sourceUID}) {
		t.Errorf("data sources %+v", made.Datasources)
	}

	var loaded struct {
		Providers []struct {
			Type    string
			Options struct{ Path string }
		}
	}
	read(t, "provisioning/dashboards/laggard.yaml", &loaded)
	if len(loaded.Providers) != 1 || loaded.Providers[0].Type != "file" || loaded.Providers[0].Options.Path != "/var/lib/grafana/dashboards/laggard" {
		t.Errorf("providers %+v", loaded.Providers)
	}

	var objects struct{ Resources []string }
	read(t, "alerts/kustomization.yaml", &objects)
	if !slices.Equal(objects.Resources, []string{"prometheusrule.yaml"}) {
		t.Errorf("resources %v", objects.Resources)
	}
}

// TestLinksLead follows every link: its page exists, and has the variables.
func TestLinksLead(t *testing.T) {
	has := map[string]map[string]bool{}
	for _, d := range dashboards(t) {
		has[d.UID] = map[string]bool{}
		for _, v := range d.Templating.List {
			has[d.UID][v.Name] = true
		}
	}

	page := regexp.MustCompile(`^/d/([\w-]+)\?\$\{__url_time_range\}&`) // the time range goes along
	value := regexp.MustCompile(`var-(\w+)=`)
	followed := 0
	for _, d := range dashboards(t) {
		for _, p := range d.Panels {
			for _, o := range p.FieldConfig.Overrides {
				if !strings.Contains(columns[d.UID][p.Title], o.Matcher.Options+" ") {
					t.Errorf("%s, %s: no column %q to override", d.UID, p.Title, o.Matcher.Options)
				}

				for _, q := range o.Properties {
					if q.ID != "links" {
						continue
					}

					var links []struct{ URL string }
					if err := json.Unmarshal(q.Value, &links); err != nil {
						t.Fatalf("%s, %s: %v", d.UID, p.Title, err)
					}

					for _, l := range links {
						m := page.FindStringSubmatch(l.URL)
						if m == nil || has[m[1]] == nil {
							t.Errorf("%s, %s: %q leads nowhere", d.UID, p.Title, l.URL)
							continue
						}

						for _, v := range value.FindAllStringSubmatch(l.URL, -1) {
							if !has[m[1]][v[1]] {
								t.Errorf("%s, %s: %s has no variable %s", d.UID, p.Title, m[1], v[1])
							}
						}

						followed++
					}
				}
			}
		}
	}

	if followed < 6 {
		t.Errorf("%d links, want the way from fleet to job to rank", followed)
	}
}
