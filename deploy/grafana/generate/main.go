// Command generate writes the dashboards, rules and provisioning files of package
// grafana below deploy/grafana.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/laggard-dev/laggard/deploy/grafana"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// run finds the module, so that it works from its root and from go generate.
func run() error {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}

	root := filepath.Join(filepath.Dir(strings.TrimSpace(string(out))), "deploy", "grafana")
	files, err := grafana.Files()
	if err != nil {
		return err
	}

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
