// Package image holds the Dockerfile: a static binary on distroless.
//
// Invariant: whatever stage is built runs as uid 65532 with the one entry point
// that the manifests count on. Caveat: nothing is built in the tests; they read.
package image_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	return string(b)
}

// stage is one FROM of the Dockerfile with what follows it.
type stage struct {
	from, name string
	lines      []string
}

func stages(t *testing.T) []stage {
	t.Helper()
	text := regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(read(t, "Dockerfile"), "")
	text = strings.ReplaceAll(text, "\\\n", " ")
	from := regexp.MustCompile(`^FROM (?:--platform=\S+ )?(\S+)(?: AS (\S+))?$`)
	var all []stage
	for _, line := range strings.Split(text, "\n") {
		if m := from.FindStringSubmatch(line); m != nil {
			all = append(all, stage{from: m[1], name: m[2]})
		} else if len(all) > 0 && line != "" {
			all[len(all)-1].lines = append(all[len(all)-1].lines, line)
		}
	}

	return all
}

// TestDockerfile: images come from distroless, run as a numbered user, and hold a
// static binary built by the module's own Go.
func TestDockerfile(t *testing.T) {
	all := stages(t)
	if len(all) != 4 {
		t.Fatalf("%d stages, want 4", len(all))
	}

	runtime, release, build, last := all[0], all[1], all[2], all[3]
	if !strings.HasPrefix(runtime.from, "gcr.io/distroless/static") || !slices.Contains(runtime.lines, "USER 65532:65532") ||
		!slices.Contains(runtime.lines, `ENTRYPOINT ["/usr/local/bin/laggard"]`) {
		t.Errorf("runtime: %+v", runtime)
	}

	for _, s := range []stage{release, last} {
		if s.from != "runtime" || len(s.lines) != 1 || !strings.HasSuffix(s.lines[0], " /usr/local/bin/laggard") {
			t.Errorf("an image: %+v", s)
		}
	}

	goVersion := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "../../go.mod"))
	if build.from != "golang:"+goVersion[1] {
		t.Errorf("built with %s, go.mod says %s", build.from, goVersion[1])
	}

	if command := strings.Join(build.lines, "\n"); !strings.Contains(command, "CGO_ENABLED=0") || !strings.Contains(command, "-X main.version=") {
		t.Errorf("build: %s", command)
	}
}

// TestRelease: both architectures, checksums, a bill of materials, and the same
// build as everywhere.
func TestRelease(t *testing.T) {
	var r struct {
		Version int
		Builds  []struct {
			Env, Goos, Goarch, Flags, Ldflags []string
			Main                              string
		}
		Checksum struct{ Algorithm string }
		Sboms    []struct {
			Artifacts, Cmd string
			Args           []string
		}
		Archives []struct{ Files []string }
		Dockers  []struct {
			Goarch, Dockerfile string
			Flags              []string `yaml:"build_flag_templates"`
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "../../.goreleaser.yaml")), &r); err != nil {
		t.Fatal(err)
	}

	if len(r.Builds) != 1 || !slices.Equal(r.Builds[0].Goarch, []string{"amd64", "arm64"}) || !slices.Equal(r.Builds[0].Env, []string{"CGO_ENABLED=0"}) {
		t.Fatalf("builds %+v", r.Builds)
	}

	if r.Version != 2 || r.Checksum.Algorithm != "sha256" || len(r.Sboms) != 1 || r.Sboms[0].Artifacts != "binary" ||
		r.Sboms[0].Cmd != "go" || !slices.Equal(r.Sboms[0].Args, []string{"run", "./deploy/sbom", "-o", "$document", "$artifact"}) {
		t.Errorf("checksums or SBOM: %+v %+v", r.Checksum, r.Sboms)
	}

	want := strings.Replace(r.Builds[0].Ldflags[0], "{{ .Version }}", "$(VERSION)", 1)
	if makefile := read(t, "../../Makefile"); !strings.Contains(makefile, "LDFLAGS := "+want) {
		t.Errorf("ldflags %q aren't the Makefile's", want)
	}

	if len(r.Dockers) != 2 {
		t.Fatalf("images %+v", r.Dockers)
	}

	for _, d := range r.Dockers {
		if _, err := os.Stat("../../" + d.Dockerfile); err != nil || !slices.Contains(d.Flags, "--target=release") || !slices.Contains(d.Flags, "--platform=linux/"+d.Goarch) {
			t.Errorf("image of %s: %+v, %v", d.Goarch, d, err)
		}
	}
}
