package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestBill writes the bill of two binaries and holds it to what the go command says is
// in them.
func TestBill(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for _, flags := range []string{"", "-s -w"} { // a binary and a stripped one
		path := filepath.Join(dir, fmt.Sprint("sample-", len(flags)))
		c := exec.Command("go", "build", "-trimpath", "-ldflags", flags, "-o", path, "./testdata/sample")
		c.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}

		paths = append(paths, path)
	}

	var out, again bytes.Buffer
	if err := run(paths, &out); err != nil {
		t.Fatal(err)
	}

	if err := run([]string{paths[1], paths[0]}, &again); err != nil || !bytes.Equal(out.Bytes(), again.Bytes()) {
		t.Errorf("the same binaries gave other bytes, %v", err)
	}

	d := json.NewDecoder(&out)
	d.DisallowUnknownFields()
	var b bill
	if err := d.Decode(&b); err != nil || b.Format != "CycloneDX" || b.Spec != "1.5" || b.Metadata.Component.Name != "laggard" || len(b.Dependencies) != 2 {
		t.Fatalf("%+v, %v", b, err)
	}

	listed := map[string]component{}
	for _, c := range b.Components {
		listed[c.Ref] = c
	}

	for _, path := range paths {
		file := listed["file:"+filepath.Base(path)]
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		if sum := sha256.Sum256(data); len(file.Hashes) != 1 || file.Hashes[0].Content != hex.EncodeToString(sum[:]) {
			t.Errorf("%s: hashes %v", path, file.Hashes)
		}
	}

	said, err := exec.Command("go", "version", "-m", paths[1]).Output()
	if err != nil {
		t.Fatal(err)
	}

	deps := regexp.MustCompile(`(?m)^\tdep\t(\S+)\t(\S+)`).FindAllStringSubmatch(string(said), -1)
	for _, m := range deps {
		if c := listed["pkg:golang/"+m[1]+"@"+m[2]]; c.Version != m[2] || len(c.About) != 1 || len(c.About[0].Value) != 64 {
			t.Errorf("%s %s is listed as %+v", m[1], m[2], c)
		}
	}

	if want := len(paths) + len(deps) + 1; len(deps) == 0 || len(b.Components) != want {
		t.Errorf("%d components, want %d: the files, the modules, the standard library", len(b.Components), want)
	}

	if err := run(nil, &out); err == nil {
		t.Error("no binary is no error")
	}

	if err := run([]string{"main.go"}, &out); err == nil || !strings.Contains(err.Error(), "main.go") {
		t.Errorf("a file that is no binary: %v", err)
	}
}
