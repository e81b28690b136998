package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

var (
	described  = regexp.MustCompile(`description\("(\w+)"`)
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
	for _, a := range alerts {
		all = append(all, a.Expr)
	}

	for _, d := range dashboards() {
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

// TestRulesAreTwins reads both files back: the same alerts, each with its action,
// and labels in a summary that its query has.
func TestRulesAreTwins(t *testing.T) {
	var ours struct {
		Groups []struct {
			Rules []struct {
				UID, Title, Condition, For string
				Data                       []struct{ RefID, DatasourceUID string }
				Annotations                map[string]string
			}
		}
	}
	var theirs struct {
		Kind string
		Spec struct {
			Groups []struct {
				Rules []struct {
					Alert, Expr, For string
					Annotations      map[string]string
				}
			}
		}
	}
	read(t, "provisioning/alerting/laggard.yaml", &ours)
	read(t, "alerts/prometheusrule.yaml", &theirs)
	if theirs.Kind != "PrometheusRule" || len(ours.Groups) != 1 || len(theirs.Spec.Groups) != 1 {
		t.Fatalf("kind %q, %d and %d groups", theirs.Kind, len(ours.Groups), len(theirs.Spec.Groups))
	}

	for i, a := range alerts {
		o, p := ours.Groups[0].Rules[i], theirs.Spec.Groups[0].Rules[i]
		if o.UID != strings.ToLower(p.Alert) || o.For != p.For || o.Annotations["action"] != p.Annotations["action"] || len(o.Annotations["action"]) < 80 {
			t.Errorf("%s: not twins: %+v and %+v", a.Name, o, p)
		}

		if len(o.Data) != 2 || o.Condition != "B" || p.Expr != a.Expr {
			t.Errorf("%s: %d queries, condition %s", a.Name, len(o.Data), o.Condition)
		}

		for _, label := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(a.Summary, -1) {
			if !strings.Contains(a.Columns, label[1]+" text") {
				t.Errorf("%s: the summary speaks of %s, its query has %s", a.Name, label[1], a.Columns)
			}
		}
	}
}

func read(t *testing.T, name string, into any) {
	t.Helper()
	b, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		t.Fatal(err)
	}

	if err := yaml.Unmarshal(b, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// TestLinksLead follows every link: its page exists, and has the variables.
func TestLinksLead(t *testing.T) {
	has := map[string]map[string]bool{}
	for _, d := range dashboards() {
		has[d.UID] = map[string]bool{}
		for _, v := range d.Templating.List {
			has[d.UID][v.Name] = true
		}
	}

	page := regexp.MustCompile(`/d/([\w-]+)\?`)
	value := regexp.MustCompile(`var-(\w+)=`)
	followed := 0
	for _, d := range dashboards() {
		for _, p := range d.Panels {
			if p.FieldConfig == nil {
				continue
			}

			for _, o := range p.FieldConfig.Overrides {
				if !strings.Contains(p.Targets[0].Columns, o.Matcher.Options) {
					t.Errorf("%s, %s: no column %q to override", d.UID, p.Title, o.Matcher.Options)
				}

				for _, q := range o.Properties {
					links, _ := q.Value.([]link)
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
