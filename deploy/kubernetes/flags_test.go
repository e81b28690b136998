package kubernetes_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// program is laggard: the one that LAGGARD_PROGRAM names, else built once.
var program = os.Getenv("LAGGARD_PROGRAM")

func TestMain(m *testing.M) {
	os.Exit(func() int {
		if program != "" {
			return m.Run()
		}

		dir, err := os.MkdirTemp("", "laggard-kubernetes-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		// Others run it: the agent's uid isn't ours.
		if err := os.Chmod(dir, 0o755); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}

		program = filepath.Join(dir, "laggard")
		build := exec.Command("go", "build", "-o", program, "github.com/laggard-dev/laggard")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build laggard: %v\n%s", err, out)
			return 1
		}

		return m.Run()
	}())
}

var flagLine = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+)`)

// helped are the flags of subcommands that were asked for.
var helped = map[string][]string{}

// flagsOf returns the flags of a subcommand.
func flagsOf(t *testing.T, sub string) []string {
	t.Helper()
	if known := helped[sub]; known != nil {
		return known
	}

	out, err := exec.Command(program, sub, "--help").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "laggard "+sub) {
		t.Fatalf("laggard %s --help: %v\n%s", sub, err, out)
	}

	var flags []string
	for _, m := range flagLine.FindAllStringSubmatch(string(out), -1) {
		flags = append(flags, m[1])
	}

	if len(flags) == 0 {
		t.Fatalf("laggard %s --help shows no flags:\n%s", sub, out)
	}

	helped[sub] = flags
	return flags
}

// read are the variables of our environment that aren't flags of the subcommand.
var read = []string{"LAGGARD_JOB", "LAGGARD_JOB_NAME", "LAGGARD_CLICKHOUSE_PASSWORD", "LAGGARD_RUN", "GOMEMLIMIT", "NODE_NAME", "POD_NAME", "POD_NAMESPACE"}

// TestFlags: every argument and every setting in the environment of every
// container of ours is one of the subcommand's.
func TestFlags(t *testing.T) {
	checked := 0
	for _, d := range manifests(t) {
		for _, p := range pods(d.value) {
			for _, c := range containers(p) {
				if !strings.HasPrefix(c.Image, image) {
					continue
				}

				checked += len(c.Args) - 1
				checkFlags(t, d, c)
			}
		}
	}

	if checked < 20 {
		t.Errorf("only %d arguments were seen", checked)
	}
}

func checkFlags(t *testing.T, d document, c corev1.Container) {
	t.Helper()
	if len(c.Args) == 0 || len(c.Command) != 0 {
		t.Fatalf("%s: %s: the image's entry point takes arguments: %q %q", d.file, c.Name, c.Command, c.Args)
	}

	flags := flagsOf(t, c.Args[0])
	for _, a := range c.Args[1:] {
		name, long := strings.CutPrefix(a, "--")
		name, _, _ = strings.Cut(name, "=")
		if long && !slices.Contains(flags, name) {
			t.Errorf("%s: %s: laggard %s has no --%s", d.file, c.Name, c.Args[0], name)
		}
	}

	checkEnvironment(t, d, c, flags)
}

var expansion = regexp.MustCompile(`\$\(([A-Z_]+)\)`)

func checkEnvironment(t *testing.T, d document, c corev1.Container, flags []string) {
	t.Helper()
	names := envNames(c)
	for i, e := range c.Env {
		setting := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(e.Name, "LAGGARD_"), "_", "-"))
		positional := slices.Contains(c.Args, "$("+e.Name+")")
		if !slices.Contains(read, e.Name) && !positional && !slices.Contains(flags, setting) {
			t.Errorf("%s: %s: nothing reads %s", d.file, c.Name, e.Name)
		}

		for _, m := range expansion.FindAllStringSubmatch(e.Value, -1) {
			if !slices.Contains(names[:i], m[1]) {
				t.Errorf("%s: %s: $(%s) in %s isn't set before it", d.file, c.Name, m[1], e.Name)
			}
		}
	}

	for _, a := range c.Args {
		for _, m := range expansion.FindAllStringSubmatch(a, -1) {
			if !slices.Contains(names, m[1]) {
				t.Errorf("%s: %s: $(%s) in %q isn't set", d.file, c.Name, m[1], a)
			}
		}
	}
}

// TestSwitch: the ConfigMap is as MindCluster makes it, and what it says is read.
func TestSwitch(t *testing.T) {
	c := load(t, "examples/switch.yaml")[0].value.(*corev1.ConfigMap)
	if c.Labels["reset"] != "true" || !strings.HasPrefix(c.Name, "data-trace-") || len(c.Data) != 1 {
		t.Errorf("ConfigMap %+v", c)
	}

	owner := load(t, "examples/switch-owner.yaml")[0].value.(*corev1.ConfigMap)
	if owner.Name != c.Name || len(owner.OwnerReferences) != 1 || owner.OwnerReferences[0].Kind != "Job" {
		t.Errorf("owner %+v", owner)
	}
}
