package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// settingsOf runs a command with two settings and returns what it saw.
func settingsOf(t *testing.T, file string, args ...string) (store, flush string, err error) {
	t.Helper()
	c := &cobra.Command{Use: "probe", SilenceErrors: true, SilenceUsage: true}
	s := c.Flags().String("store", "default-store", "")
	f := c.Flags().String("flush", "1s", "")
	c.SetFlagErrorFunc(flagError)
	c.RunE = func(*cobra.Command, []string) error { return nil }
	if file != "" {
		path := filepath.Join(t.TempDir(), "laggard.yaml")
		if err := os.WriteFile(path, []byte(file), 0o644); err != nil {
			t.Fatal(err)
		}

		args = append(args, "--config", path)
	}

	withSettings(c)
	c.SetArgs(args)
	err = c.Execute()
	return *s, *f, err
}

func TestSettingsOrder(t *testing.T) {
	t.Setenv("LAGGARD_STORE", "from-environment")
	tests := []struct {
		name, file string
		args       []string
		store      string
		flush      string
	}{
		{"default", "", nil, "from-environment", "1s"},
		{"flag over environment", "", []string{"--store", "from-flag"}, "from-flag", "1s"},
		{"environment over file", "store: from-file\nflush: 2s\n", nil, "from-environment", "2s"},
		{"flag over all", "store: from-file\nflush: 2s\n", []string{"--flush=3s", "--store=x"}, "x", "3s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			store, flush, err := settingsOf(t, tt.file, tt.args...)
			if err != nil || store != tt.store || flush != tt.flush {
				t.Fatalf("store %q flush %q err %v, want %q %q", store, flush, err, tt.store, tt.flush)
			}
		})
	}
}

func TestSettingsErrorsNameTheKey(t *testing.T) {
	tests := []struct {
		name, file string
		args       []string
		want       string
	}{
		{"unknown key", "stroe: x\n", nil, `unknown key "stroe"; did you mean store?`},
		{"not a value", "store: [a, b]\n", nil, "store wants one value"},
		{"not YAML", "store: {\n", nil, "settings "},
		{"unknown flag", "", []string{"--stroe", "x"}, "unknown flag --stroe of laggard probe; did you mean --store?"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := settingsOf(t, tt.file, tt.args...)
			var u exitError
			if !errors.As(err, &u) || u.code != verdict.ExitUsage || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("err = %v, want a usage error with %q", err, tt.want)
			}
		})
	}
}
