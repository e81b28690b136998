package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain lets the test binary stand in for laggard in scripts.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"laggard": func() { os.Exit(run(os.Args[1:])) }})
}

// TestScripts runs testdata/script: what a person types, and what comes back.
func TestScripts(t *testing.T) {
	testDir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}

	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("NO_COLOR", "1")
			env.Setenv("PROFILES", filepath.Join(testDir, "writer", "profiles", "testdata"))
			return nil
		},
	})
}
