package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
)

// TestStoreTypoMakesNothing: a text that names no store exits with 2 and the right
// form, wherever a STORE is wanted, and nothing is made: neither here nor elsewhere.
func TestStoreTypoMakesNothing(t *testing.T) {
	t.Parallel()
	job := t.TempDir() + "/job"
	if r := laggard(t, "simulate", "--scenario", "healthy", "--ranks", "8", "--steps", "30", "--seed", "7", job); r.code != 0 {
		t.Fatalf("simulate: %+v", r)
	}

	commands := map[string][]string{
		"ingest": {"ingest", job, "--to"},
		"audit":  {"audit", job},
		"watch":  {"watch", job, "--once", "--to"},
		"agent":  {"agent", "--dir", "profiling", "--until-idle", "1s", "--metrics", "", "--listen", "", "--store"},
	}
	wrong := []string{"clickhouse//x@h/db", "clickhouse:/x@h/db", "clickhouse:x", "foo", "./foo", "mysql://x@h/db", "parquet://data", "parquet:", "clickhouse://", "Clickhouse://x@h/db"}
	for name, args := range commands {
		for _, store := range wrong {
			here := t.TempDir()
			c := exec.Command(program, append(args, store)...)
			c.Env, c.Dir = append(os.Environ(), "LAGGARD_RUN="+here+"/rings"), here
			out, _ := c.CombinedOutput()
			if c.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "clickhouse://user@host:9000/") {
				t.Errorf("%s %s: exit code %d: %s", name, store, c.ProcessState.ExitCode(), out)
			}

			if made, err := os.ReadDir(here); err != nil || len(made) > 0 {
				t.Errorf("%s %s made %v, %v", name, store, made, err)
			}
		}
	}

	if r := laggard(t, "ingest", job, "--to", "clickhouse//me:secret@h/db"); strings.Contains(r.err, "secret") {
		t.Errorf("a password is said: %s", r.err)
	}

	if r := laggard(t, "analyze", job); r.code == 2 { // a SOURCE may be a bare folder
		t.Errorf("analyze: %+v", r)
	}
}

// TestStoreWithoutItsFirstReplica: of the replicas that a store's name lists one that answers is
// enough, for who writes and for who reads; where none does, each is named.
func TestStoreWithoutItsFirstReplica(t *testing.T) {
	t.Parallel()
	job := t.TempDir() + "/job"
	if r := laggard(t, "simulate", "--scenario", "healthy", "--ranks", "8", "--steps", "30", "--seed", "7", job); r.code != 0 {
		t.Fatalf("simulate: %+v", r)
	}

	server := chtest.Start(t)
	const dead = "127.0.0.1:1"
	store := fmt.Sprintf("clickhouse://%s,%s/%s", dead, server.Addr(), server.Database())
	for _, args := range [][]string{
		{"ingest", job, "--to", store}, {"audit", job, store}, {"analyze", store}, {"watch", store, "--once"},
	} {
		if r := laggard(t, args...); r.code != 0 {
			t.Errorf("%v: %+v", args, r)
		}
	}

	server.Kill()
	for _, args := range [][]string{{"ingest", job, "--to", store}, {"analyze", store}} {
		r := laggard(t, args...)
		if r.code != 1 || !strings.Contains(r.err, dead) || !strings.Contains(r.err, server.Addr()) || !strings.Contains(r.err, "refused") {
			t.Errorf("%v without a server: %+v", args, r)
		}
	}
}
