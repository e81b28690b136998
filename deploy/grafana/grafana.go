// Command grafana writes laggard's dashboards and alert rules: Go values that
// marshal to what Grafana and Prometheus read. Nothing here talks to either.
//
// Invariant: the files under dashboards/, alerts/ and provisioning/ and PANELS.md
// are what generated returns, byte for byte; a test compares them and runs every
// query against ClickHouse. Regenerate with `go generate ./deploy/grafana`.
//
// Caveat: the queries need the current DDL (ClickHouse 22.3 and newer): they
// filter by the materialised `ts`, which old servers' tables don't have.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:generate go run .

func main() {
	if err := write(); err != nil {
		fmt.Fprintln(os.Stderr, "grafana:", err)
		os.Exit(1)
	}
}

// write finds the module, so that it works from its root and from go generate.
func write() error {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}

	files, err := generated()
	if err != nil {
		return err
	}

	root := filepath.Join(filepath.Dir(strings.TrimSpace(string(out))), "deploy", "grafana")
	for name, content := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("make folder of %s: %w", name, err)
		}

		if err := os.WriteFile(path, content, 0o644); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}

	return nil
}

// dashboards returns the four dashboards, from the fleet down to one rank.
func dashboards() []Dashboard {
	return []Dashboard{fleet(), job(), rank(), pipeline()}
}

// generated returns every generated file by its path below deploy/grafana.
func generated() (map[string][]byte, error) {
	files := map[string][]byte{"PANELS.md": []byte(reference())}
	for _, d := range dashboards() {
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
