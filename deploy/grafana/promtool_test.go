package grafana_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// firing is one case of an alert: what is scraped, when it is looked at, and which
// alerts fire then, by their labels beside severity and component, and summary.
type firing struct {
	series  map[string]string // every minute, in promtool's notation
	at      string
	alert   string
	labels  map[string]string // nil: it doesn't fire
	summary string
}

var firings = []firing{
	{map[string]string{`laggard_node_degraded{job="j1",node="node-3",cause="compute",state="degraded"}`: "0x5 1x10"}, "6m",
		"LaggardSlowNode", nil, ""}, // not for two minutes yet
	{map[string]string{`laggard_node_degraded{job="j1",node="node-3",cause="compute",state="degraded"}`: "0x5 1x10"}, "9m",
		"LaggardSlowNode", map[string]string{"job": "j1", "node": "node-3", "cause": "compute", "state": "degraded"}, "node-3 slows job j1 down (compute)."},
	{map[string]string{`laggard_node_degraded{job="j1",node="node-3",cause="compute",state="suspect"}`: "0x20"}, "15m", "LaggardSlowNode", nil, ""},

	{map[string]string{`laggard_link_degraded{job="j1",group="dp-stage1-tp2"}`: "0x5 1x10"}, "6m", "LaggardSlowLink", nil, ""},
	{map[string]string{`laggard_link_degraded{job="j1",group="dp-stage1-tp2"}`: "0x5 1x10"}, "9m",
		"LaggardSlowLink", map[string]string{"job": "j1", "group": "dp-stage1-tp2"}, "Communication group dp-stage1-tp2 of job j1 is slow."},
	{map[string]string{`laggard_link_degraded{job="j1",group="dp-stage1-tp2"}`: "1x10 0x10"}, "15m", "LaggardSlowLink", nil, ""},

	{map[string]string{`laggard_store_failing_seconds{instance="a:9612"}`: "0+60x30"}, "12m",
		"LaggardShippingLag", map[string]string{"instance": "a:9612"}, "a:9612 has not shipped for 12m 0s."},
	{map[string]string{`laggard_store_failing_seconds{instance="a:9612"}`: "0 60 120 180 240 0x20"}, "12m", "LaggardShippingLag", nil, ""},
	{map[string]string{`laggard_store_last_ack_timestamp_seconds{instance="a:9612"}`: "60x30", `laggard_pending_rows{instance="a:9612"}`: "500x30"}, "15m",
		"LaggardShippingLag", map[string]string{"instance": "a:9612"}, "a:9612 has not shipped for 14m 0s."},
	{map[string]string{`laggard_store_last_ack_timestamp_seconds{instance="a:9612"}`: "60x30", `laggard_pending_rows{instance="a:9612"}`: "0x30"}, "15m",
		"LaggardShippingLag", nil, ""}, // nothing to ship: the job has ended

	{map[string]string{`laggard_records_dropped_total{namespace="ml",pod="t-0",instance="a:9612",reason="ring-full"}`: "0x10 7x10"}, "12m",
		"LaggardRecordsLost", map[string]string{"namespace": "ml", "pod": "t-0", "instance": "a:9612", "reason": "ring-full"}, "The agent a:9612 lost records (ring-full)."},
	{map[string]string{`laggard_records_aged_total{namespace="ml",pod="t-0",instance="a:9612"}`: "7x30"}, "20m", "LaggardRecordsLost", nil, ""},

	{map[string]string{`laggard_recorders{namespace="ml",pod="t-0",instance="a:9612"}`: "8x60", `laggard_records_drained_total{namespace="ml",pod="t-0",instance="a:9612",kind="Step"}`: "0+100x10 1000x50"}, "40m",
		"LaggardJobWithoutData", map[string]string{"namespace": "ml", "pod": "t-0", "instance": "a:9612"}, "Nothing was recorded for 15 minutes (agent a:9612, job )."},
	{map[string]string{`laggard_recorders{namespace="ml",pod="t-0",instance="a:9612"}`: "8x60", `laggard_records_drained_total{namespace="ml",pod="t-0",instance="a:9612",kind="Step"}`: "0+100x60"}, "40m",
		"LaggardJobWithoutData", nil, ""},
	{map[string]string{`laggard_watch_steps_total{job="j1",instance="w:9613"}`: "0+10x10 100x50"}, "40m",
		"LaggardJobWithoutData", map[string]string{"job": "j1", "instance": "w:9613"}, "Nothing was recorded for 15 minutes (agent w:9613, job j1)."},
}

// TestPromtool: Prometheus itself takes the rules, and each alert fires when it should
// and stays silent when it should not.
func TestPromtool(t *testing.T) {
	var object struct{ Spec any }
	read(t, "alerts/prometheusrule.yaml", &object)
	rules, err := yaml.Marshal(object.Spec)
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	file := filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(file, rules, 0o600); err != nil {
		t.Fatal(err)
	}

	promtool(t, "check", "rules", file)

	actions, severity := map[string]string{}, map[string]string{}
	for _, a := range alerts(t) {
		actions[a.twin.Alert], severity[a.twin.Alert] = a.twin.Annotations["action"], a.twin.Labels["severity"]
	}

	fires, silent := map[string]bool{}, map[string]bool{}
	var tests []any
	for _, f := range firings {
		var series []any
		for name, values := range f.series {
			series = append(series, map[string]any{"series": name, "values": values})
		}

		expect := []any{}
		if f.labels != nil {
			labels := map[string]string{"severity": severity[f.alert], "component": "laggard"}
			for k, v := range f.labels {
				labels[k] = v
			}

			expect = append(expect, map[string]any{"exp_labels": labels, "exp_annotations": map[string]string{"summary": f.summary, "action": actions[f.alert]}})
			fires[f.alert] = true
		} else {
			silent[f.alert] = true
		}

		tests = append(tests, map[string]any{"interval": "1m", "input_series": series,
			"alert_rule_test": []any{map[string]any{"eval_time": f.at, "alertname": f.alert, "exp_alerts": expect}}})
	}

	for name := range actions {
		if !fires[name] || !silent[name] {
			t.Errorf("%s: no case in which it fires, or none in which it is silent", name)
		}
	}

	text, err := yaml.Marshal(map[string]any{"rule_files": []string{file}, "evaluation_interval": "30s", "tests": tests})
	if err != nil {
		t.Fatal(err)
	}

	cases := filepath.Join(dir, "cases.yaml")
	if err := os.WriteFile(cases, text, 0o600); err != nil {
		t.Fatal(err)
	}

	promtool(t, "test", "rules", cases)
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.Command("promtool", args...).CombinedOutput()
	t.Logf("promtool %s: %s", strings.Join(args[:2], " "), strings.TrimSpace(string(out)))
	if err != nil {
		t.Errorf("promtool %v: %v", args, err)
	}
}
