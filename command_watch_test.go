package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/watch/depth"
)

// TestWatch_Usage wants errors that say what to do.
func TestWatch_Usage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "SOURCE is missing"},
		{[]string{"x", "-o", "jsno"}, "did you mean json"},
		{[]string{"x", "--every", "0s"}, "must be more than 0"},
		{[]string{"mysql://h/db"}, "unknown kind"},
		{[]string{t.TempDir(), "--once"}, "no job in it"},
		{[]string{t.TempDir(), "--once", "--deepen", "2"}, "--once posts and switches nothing"},
		{[]string{"--release"}, "--release needs --kubernetes"},
		{[]string{"x", "--release", "--kubernetes"}, `unexpected argument "x"`},
		{[]string{"--release", "--kubernetes"}, "--kubernetes: not in a pod"},
		{[]string{t.TempDir(), "--kubernetes", "--act", "reschedule", "--dry-run=false", "--kubernetes-server", "http://127.0.0.1:1"}, "--act=reschedule needs --state"},
		{[]string{"x", "--share-by", "rows"}, "--share-by needs --share"},
		{[]string{"x", "--share", "a", "--share-by", "lease"}, "did you mean leases"},
		{[]string{"x", "--share", "a", "--lease", "1500ms"}, "--lease 1.5s: want whole seconds"},
		{[]string{"x", "--share", "a", "--lease", "0s"}, "--lease 0s: want whole seconds, 1s at least"},
		{[]string{"x", "--share", "a", "--to", "parquet:y"}, "--share needs --to clickhouse://"},
		{[]string{"x", "--share", "a", "--to", "clickhouse://h/db", "--once"}, "goes without --once"},
		{[]string{"x", "--share", "a", "--to", "clickhouse://h/db", "--kubernetes"}, "--share goes without --kubernetes"},
		{[]string{t.TempDir(), "--share", "a", "--to", "clickhouse://127.0.0.1:1/db", "--share-by", "leases"}, "not in a pod"},
		{[]string{t.TempDir(), "--hold", "0s"}, "--hold 0s: must be more than 0"},
	} {
		root := rootCommand()
		root.SetArgs(append([]string{"watch"}, c.args...))
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("watch %v: %v; want %q", c.args, err, c.want)
		}
	}
}

// TestDepth_Usage wants errors that say what to do.
func TestDepth_Usage(t *testing.T) {
	list := filepath.Join(t.TempDir(), "agents.yaml")
	if err := os.WriteFile(list, []byte("node-0: 127.0.0.1:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		o    observation
		want string
	}{
		{observation{depth: depth.Options{Nodes: -1}}, "want a number of nodes"},
		{observation{depth: depth.Options{Nodes: 1}, agents: "{node}:1"}, "--deepen-for"},
		{observation{depth: depth.Options{Nodes: 1, Longest: 1}}, "--deepen needs --agents"},
		{observation{depth: depth.Options{Nodes: 1, Longest: 1}, agents: "/nowhere"}, "an address with {node} in it"},
		{observation{depth: depth.Options{Nodes: 1, Longest: 1}, agents: list}, ""},
		{observation{}, ""},
	} {
		if err := c.o.checkDepth(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
	}
}
