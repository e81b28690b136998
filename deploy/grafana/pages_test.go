// Package grafana_test holds the dashboards, the alert rules and PANELS.md beside it to
// what Grafana, Prometheus and the tables need. The files themselves are the source.
package grafana_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// plugin is the data source that the queries are written for.
const plugin = "grafana-clickhouse-datasource"

// dashboard is what the tests look at of Grafana's dashboard JSON.
type dashboard struct {
	UID, Title, Description string
	Tags                    []string
	Templating              struct{ List []variable }
	Annotations             struct{ List []annotation }
	Panels                  []panel
}

// variable is one variable. Query is a target for query variables and text for the others.
type variable struct {
	Name, Type, Definition string
	Datasource             source
	Query                  json.RawMessage
}

// target returns the query that fills a variable; ok is false where none does.
func (v variable) target() (t target, ok bool) {
	return t, v.Type == "query" && json.Unmarshal(v.Query, &t) == nil
}

// annotation marks moments in every panel with a time axis.
type annotation struct {
	Name       string
	Datasource source
	Target     target
}

// source names a data source.
type source struct{ Type, UID string }

// Formats of a query's reply, by the plugin's numbers.
const (
	formatSeries = 0
	formatTable  = 1
)

// target is one query: SQL for ClickHouse, or Expr for Prometheus.
type target struct {
	RefID, QueryType, RawSQL, Expr string
	Datasource                     source
	Format                         int
}

// panel is one panel; text is all of it.
type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               source
	GridPos                  struct{ H, W, X, Y int }
	Targets                  []target
	FieldConfig              struct {
		Overrides []struct {
			Matcher    struct{ Options string } // a field's name
			Properties []struct {
				ID    string
				Value json.RawMessage
			}
		}
	}
	MaxDataPoints int

	text json.RawMessage
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *panel) UnmarshalJSON(b []byte) error {
	type plain panel
	p.text = append(p.text[:0], b...)
	return json.Unmarshal(b, (*plain)(p))
}

// rule is one of Grafana's rules: a query (A), and a threshold over it (B).
type rule struct {
	UID, Title, Condition, For string
	Data                       []struct {
		RefID, DatasourceUID string
		RelativeTimeRange    struct{ From, To int } // seconds that the query looks back
		Model                struct {
			RefID, EditorType, QueryType, RawSQL, Type, Expression string
			Format                                                 int
			Conditions                                             []struct {
				Evaluator struct {
					Type   string
					Params []float64
				}
			}
		}
	}
	NoDataState, ExecErrState string
	Annotations, Labels       map[string]string
}

// twin is the same alert for Prometheus, which asks the agents' and watch's metrics.
type twin struct {
	Alert, Expr, For    string
	Annotations, Labels map[string]string
}

// alert is a rule and its twin, which stand at the same place of their files.
type alert struct {
	rule
	twin twin
}

// sql is one number column, the others become labels.
func (a alert) sql() string { return a.Data[0].Model.RawSQL }

// above is what a row's number must pass for the alert to fire.
func (a alert) above() float64 { return a.Data[1].Model.Conditions[0].Evaluator.Params[0] }

func (a alert) window() time.Duration {
	return time.Duration(a.Data[0].RelativeTimeRange.From) * time.Second
}

// dashboards reads the four dashboards, from the fleet down to one rank.
func dashboards(t *testing.T) []dashboard {
	t.Helper()
	var all []dashboard
	for _, uid := range []string{"laggard-fleet", "laggard-job", "laggard-rank", "laggard-pipeline"} {
		b, err := os.ReadFile(filepath.Join("dashboards", uid+".json"))
		if err != nil {
			t.Fatal(err)
		}

		var d dashboard
		if err := json.Unmarshal(b, &d); err != nil {
			t.Fatalf("%s: %v", uid, err)
		}

		all = append(all, d)
	}

	return all
}

// alerts reads both files of rules.
func alerts(t *testing.T) []alert {
	t.Helper()
	var ours struct {
		Groups []struct{ Rules []rule }
	}
	var theirs struct {
		Kind string
		Spec struct {
			Groups []struct{ Rules []twin }
		}
	}
	read(t, "provisioning/alerting/laggard.yaml", &ours)
	read(t, "alerts/prometheusrule.yaml", &theirs)
	if theirs.Kind != "PrometheusRule" || len(ours.Groups) != 1 || len(theirs.Spec.Groups) != 1 {
		t.Fatalf("kind %q, %d and %d groups", theirs.Kind, len(ours.Groups), len(theirs.Spec.Groups))
	}

	twins := theirs.Spec.Groups[0].Rules
	if len(twins) != len(ours.Groups[0].Rules) {
		t.Fatalf("%d rules, %d twins", len(ours.Groups[0].Rules), len(twins))
	}

	var all []alert
	for i, r := range ours.Groups[0].Rules {
		if len(r.Data) != 2 || r.Condition != "B" || len(r.Data[1].Model.Conditions) != 1 || len(r.Data[1].Model.Conditions[0].Evaluator.Params) != 1 {
			t.Fatalf("%s: not a query and a threshold over it: %+v", r.Title, r)
		}

		all = append(all, alert{r, twins[i]})
	}

	return all
}

// read takes YAML by the names of JSON, in any case.
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
