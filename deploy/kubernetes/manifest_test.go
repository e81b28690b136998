package kubernetes_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// decode reads all documents of a manifest, strictly.
func decode(file string, b []byte) ([]document, error) {
	var docs []document
	plain := yaml.NewDecoder(bytes.NewReader(b))
	strict := yaml.NewDecoder(bytes.NewReader(b))
	strict.KnownFields(true)
	for {
		d := document{file: file}
		if err := plain.Decode(&d.node); errors.Is(err, io.EOF) {
			return docs, nil
		} else if err != nil {
			return nil, fmt.Errorf("parse %s: %w", file, err)
		}
		if err := d.node.Decode(&d.head); err != nil {
			return nil, fmt.Errorf("decode %s: %w", file, err)
		}
		make := kinds[d.head.APIVersion+"/"+d.head.Kind]
		if make == nil {
			return nil, fmt.Errorf("decode %s: kind %s/%s is none of those in schema_test.go", file, d.head.APIVersion, d.head.Kind)
		}
		d.value = make()
		if err := strict.Decode(d.value); err != nil {
			return nil, fmt.Errorf("decode %s: %w", file, err)
		}
		docs = append(docs, d)
	}
}

func load(t *testing.T, file string) []document {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	docs, err := decode(file, b)
	if err != nil {
		t.Fatal(err)
	}
	return docs
}

// manifests returns every manifest of the folder, kustomizations left out.
func manifests(t *testing.T) []document {
	t.Helper()
	var docs []document
	for _, file := range files(t) {
		if filepath.Base(file) != "kustomization.yaml" {
			docs = append(docs, load(t, file)...)
		}
	}
	return docs
}

func files(t *testing.T) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".yaml" {
			names = append(names, path)
		}
		return err
	})
	if err != nil || len(names) == 0 {
		t.Fatalf("manifests: %v, %v", names, err)
	}
	return names
}

func kustomizationOf(t *testing.T, dir string) kustomization {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var k kustomization
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&k); err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	return k
}

// isPatch tells documents that say only what changes.
func isPatch(t *testing.T, file string) bool {
	if filepath.Base(file) == "switch-owner.yaml" {
		return true
	}
	dir := filepath.Dir(file)
	if _, err := os.Stat(filepath.Join(dir, "kustomization.yaml")); err != nil {
		return false
	}
	for _, p := range kustomizationOf(t, dir).Patches {
		if p.Path == filepath.Base(file) {
			return true
		}
	}
	return false
}

var dns = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// TestDecode: every manifest decodes strictly, and says what the API requires.
func TestDecode(t *testing.T) {
	for _, d := range manifests(t) {
		if !dns.MatchString(d.head.Metadata.Name) {
			t.Errorf("%s: name %q", d.file, d.head.Metadata.Name)
		}
		if isPatch(t, d.file) {
			continue
		}
		checkComplete(t, d)
	}
	for _, bad := range []string{
		"apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {template: {spec: {contaners: []}}}\n",
		"apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {backoffLimit: many}\n",
		"apiVersion: batch/v2\nkind: Job\nmetadata: {name: a}\n",
	} {
		if _, err := decode("bad", []byte(bad)); err == nil {
			t.Errorf("decoded: %s", bad)
		}
	}
}

// checkComplete holds a whole object to the API's own rules.
func checkComplete(t *testing.T, d document) {
	t.Helper()
	for _, p := range pods(d.value) {
		if len(p.Spec.Containers) == 0 {
			t.Errorf("%s: %s has no container", d.file, d.head.Metadata.Name)
		}
		if _, ok := d.value.(*job); ok && p.Spec.RestartPolicy != "Never" && p.Spec.RestartPolicy != "OnFailure" {
			t.Errorf("%s: a Job's restartPolicy is %q", d.file, p.Spec.RestartPolicy)
		}
		checkVolumes(t, d, p)
		names := map[string]bool{}
		for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			if c.Image == "" || !dns.MatchString(c.Name) || names[c.Name] {
				t.Errorf("%s: container %q of image %q", d.file, c.Name, c.Image)
			}
			names[c.Name] = true
			checkPorts(t, d, c)
		}
		for _, c := range p.Spec.Containers {
			if c.RestartPolicy != "" {
				t.Errorf("%s: container %s has a restartPolicy: only an init container may", d.file, c.Name)
			}
		}
	}
	switch v := d.value.(type) {
	case *deployment:
		checkSelector(t, d.file, v.Spec.Selector, v.Spec.Template)
	case *daemonSet:
		checkSelector(t, d.file, v.Spec.Selector, v.Spec.Template)
	}
}

func checkSelector(t *testing.T, file string, s labelSelector, p podTemplate) {
	t.Helper()
	for k, v := range s.MatchLabels {
		if p.Metadata.Labels[k] != v {
			t.Errorf("%s: the selector asks for %s=%s, the pods have %q", file, k, v, p.Metadata.Labels[k])
		}
	}
}

// checkVolumes: mounts name volumes, each volume has one source, each is mounted.
func checkVolumes(t *testing.T, d document, p podTemplate) {
	t.Helper()
	mounted := map[string]bool{}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		for _, m := range c.VolumeMounts {
			mounted[m.Name] = true
			if !slices.ContainsFunc(p.Spec.Volumes, func(v volume) bool { return v.Name == m.Name }) {
				t.Errorf("%s: %s mounts %s, which is no volume", d.file, c.Name, m.Name)
			}
		}
	}
	for _, v := range p.Spec.Volumes {
		n := 0
		for _, has := range []bool{v.EmptyDir != nil, v.HostPath != nil, v.ConfigMap != nil, v.PersistentVolumeClaim != nil} {
			if has {
				n++
			}
		}
		if n != 1 || !mounted[v.Name] {
			t.Errorf("%s: volume %s has %d sources, mounted %v", d.file, v.Name, n, mounted[v.Name])
		}
	}
}

// checkPorts: probes name a port of their container, and a scraped one is there.
func checkPorts(t *testing.T, d document, c container) {
	t.Helper()
	for _, p := range []*probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
		if p == nil {
			continue
		}
		if len(c.Ports) != 1 || c.Ports[0].Name != p.HTTPGet.Port || !slices.Contains([]string{"/healthz", "/readyz"}, p.HTTPGet.Path) {
			t.Errorf("%s: %s is probed at %s%s", d.file, c.Name, p.HTTPGet.Port, p.HTTPGet.Path)
		}
		if want := fmt.Sprintf("--metrics=:%d", c.Ports[0].ContainerPort); !slices.Contains(c.Args, want) {
			t.Errorf("%s: %s is probed at its port and has no %s", d.file, c.Name, want)
		}
	}
}

// collect returns what a kustomization puts together before its patches, and
// checks its files and the targets of its patches on the way.
func collect(t *testing.T, dir string, used map[string]bool) []document {
	t.Helper()
	k := kustomizationOf(t, dir)
	used[filepath.Join(dir, "kustomization.yaml")] = true
	var docs []document
	for _, r := range k.Resources {
		path := filepath.Join(dir, r)
		info, err := os.Stat(path)
		if err != nil {
			t.Errorf("%s: resource %v", dir, err)
			continue
		}
		if info.IsDir() {
			docs = append(docs, collect(t, path, used)...)
			continue
		}
		used[path] = true
		docs = append(docs, load(t, path)...)
	}
	for _, c := range k.Components {
		path := filepath.Join(dir, c)
		if kind := kustomizationOf(t, path).Kind; kind != "Component" {
			t.Errorf("%s: %s is a %s, not a Component", dir, c, kind)
		}
		docs = append(docs, collect(t, path, used)...)
		checkPatches(t, path, docs, used)
	}
	if k.Kind == "Kustomization" {
		checkPatches(t, dir, docs, used)
	}
	seen := map[string]bool{}
	for _, d := range docs {
		key := d.head.APIVersion + "/" + d.head.Kind + "/" + d.head.Metadata.Name
		if seen[key] {
			t.Errorf("%s: %s comes twice", dir, key)
		}
		seen[key] = true
	}
	return docs
}

func checkPatches(t *testing.T, dir string, docs []document, used map[string]bool) {
	t.Helper()
	for _, p := range kustomizationOf(t, dir).Patches {
		path := filepath.Join(dir, p.Path)
		used[path] = true
		patch := load(t, path)
		if len(patch) != 1 || patch[0].head.Kind != p.Target.Kind {
			t.Errorf("%s: not one patch of a %s", path, p.Target.Kind)
			continue
		}
		key, value, _ := strings.Cut(p.Target.LabelSelector, "=")
		hit := slices.ContainsFunc(docs, func(d document) bool {
			return d.head.Kind == p.Target.Kind && d.head.APIVersion == patch[0].head.APIVersion &&
				(p.Target.Name == "" || p.Target.Name == d.head.Metadata.Name) &&
				(key == "" || d.head.Metadata.Labels[key] == value)
		})
		if !hit {
			t.Errorf("%s targets %+v, which is not there", path, p.Target)
		}
	}
}

// tops returns the folders that a person applies.
func tops(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob("overlays/*")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("overlays: %v, %v", dirs, err)
	}
	return append(dirs, "base", "examples")
}

// TestReferences: every resource, component and patch that is named exists, every
// patch hits something, and every file is used.
func TestReferences(t *testing.T) {
	used := map[string]bool{"examples/switch-owner.yaml": true} // applied by hand: it says so
	for _, dir := range tops(t) {
		collect(t, dir, used)
	}
	for _, file := range files(t) {
		if !used[file] {
			t.Errorf("%s is used by no overlay", file)
		}
	}
}

// built is what kustomize makes of a folder.
func built(t *testing.T, dir string) []document {
	t.Helper()
	command := []string{"kubectl", "kustomize", dir}
	if _, err := exec.LookPath("kustomize"); err == nil {
		command = []string{"kustomize", "build", dir}
	} else if _, err := exec.LookPath("kubectl"); err != nil {
		return nil
	}
	c := exec.Command(command[0], command[1:]...)
	var words bytes.Buffer
	c.Stderr = &words
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, words.Bytes())
	}
	docs, err := decode(dir, out)
	if err != nil {
		t.Fatal(err)
	}
	return docs
}

// TestBuild: what kustomize makes of each overlay is complete and safe.
func TestBuild(t *testing.T) {
	for _, dir := range tops(t) {
		docs := built(t, dir)
		if docs == nil {
			t.Logf("NEITHER kustomize NOR kubectl IS INSTALLED: %s is checked by its parts only (TestReferences)", dir)
			continue
		}
		if want := len(collect(t, dir, map[string]bool{})); len(docs) != want {
			t.Errorf("%s: %d objects, want %d", dir, len(docs), want)
		}
		for _, d := range docs {
			checkComplete(t, d)
			checkPods(t, d)
		}
	}
}
