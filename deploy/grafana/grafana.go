// Package grafana is laggard's dashboards and alert rules as code: Go values that
// marshal to what Grafana and Prometheus read. Nothing here talks to either.
//
// Invariant: the files under dashboards/, alerts/ and provisioning/ and PANELS.md
// are what Files returns, byte for byte; a test compares them and runs every
// query against ClickHouse. Regenerate with `go generate ./deploy/grafana`.
//
// Caveat: the queries need the current DDL (ClickHouse 22.3 and newer): they
// filter by the materialised `ts`, which old servers' tables don't have.
package grafana

import (
	"bytes"
	"encoding/json"
	"fmt"
)

//go:generate go run ./generate

// Dashboards returns the four dashboards, from the fleet down to one rank.
func Dashboards() []Dashboard {
	return []Dashboard{fleet(), job(), rank(), pipeline()}
}

// Files returns every generated file by its path below deploy/grafana.
func Files() (map[string][]byte, error) {
	files := map[string][]byte{"PANELS.md": []byte(reference())}
	for _, d := range Dashboards() {
		b, err := marshal(d)
		if err != nil {
			return nil, fmt.Errorf("encode dashboard %s: %w", d.UID, err)
		}

		files["dashboards/"+d.UID+".json"] = b
	}

	for name, document := range map[string]any{
		"provisioning/alerting/laggard.yaml":    grafanaRules(),
		"provisioning/datasources/laggard.yaml": datasources(),
		"provisioning/dashboards/laggard.yaml":  providers(),
		"alerts/prometheusrule.yaml":            prometheusRule(),
		"alerts/kustomization.yaml":             ordered{"apiVersion", "kustomize.config.k8s.io/v1beta1", "kind", "Kustomization", "namespace", "laggard", "resources", []string{"prometheusrule.yaml"}},
	} {
		b, err := marshalYAML(document)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", name, err)
		}

		files[name] = b
	}

	return files, nil
}

// marshal is JSON as people read it: indented, with < and > as they are.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return nil, err
	}

	return b.Bytes(), nil
}
