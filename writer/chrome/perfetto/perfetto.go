// Package perfetto asks Perfetto's own trace processor, the engine of its viewer,
// what it sees in a trace that a test wrote.
//
// Invariant: every answer is the real engine's. Caveat: it is WebAssembly that runs
// in Node, some seconds a trace; `make parts` installs it.
package perfetto

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// version of the trace processor.
const version = "v55.3"

//go:embed query.mjs
var script []byte

// Query opens a trace and returns the rows of each query, a query a line. It fails
// the test when the engine is missing, and says how to get it.
func Query(t testing.TB, trace string, queries ...string) [][][]any {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}

	engine := filepath.Join(cache, "laggard", "perfetto-"+version)
	if _, err := os.Stat(filepath.Join(engine, "trace_processor.wasm")); err != nil {
		t.Fatalf("Perfetto's trace processor is not installed (%v): run make parts", err)
	}

	program := filepath.Join(t.TempDir(), "query.mjs")
	if err := os.WriteFile(program, script, 0o600); err != nil {
		t.Fatal(err)
	}

	c := exec.Command("node", program, engine, trace)
	c.Stdin = strings.NewReader(strings.Join(queries, "\n"))
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.Output()
	if err != nil {
		t.Fatalf("open %s in Perfetto: %v\n%s", trace, err, said.String())
	}

	answers := json.NewDecoder(bytes.NewReader(out))
	rows := make([][][]any, len(queries))
	for i, q := range queries {
		if err := answers.Decode(&rows[i]); err != nil {
			t.Fatalf("Perfetto's answer to %q: %v\n%s", q, err, said.String())
		}
	}

	return rows
}

// Complaints is the query for what Perfetto could not take of a trace: no rows.
const Complaints = "SELECT name, severity, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0"
