// Package kubernetes holds the manifests: a base for what a cluster has once,
// components that add the agent to jobs, overlays that put them together, and
// complete examples.
//
// Invariant: every container of ours runs without root, capabilities, a writable
// root or the API's token; the two exceptions (the token of what tells the cluster,
// root's uid beside TaskD) are named in the tests. The watcher has the rights that it
// uses, overlay by overlay, and no others.
//
// Caveat: there is no cluster in this folder's tests. Manifests are decoded strictly
// into Kubernetes' own types (others' kinds into what schema_test.go says of them) and
// put together by kustomize's library, and the sidecar's containers run as real
// processes with their users, groups and paths. What an API server has to say of the
// overlays and of the watcher is tested on a real one, in apiserver.
package kubernetes_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

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

func kustomizationOf(t *testing.T, dir string) types.Kustomization {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	var k types.Kustomization
	if err := k.Unmarshal(b); err != nil { // strict
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
		if !dns.MatchString(d.value.GetName()) {
			t.Errorf("%s: name %q", d.file, d.value.GetName())
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
			t.Errorf("%s: %s has no container", d.file, d.value.GetName())
		}

		if _, ok := d.value.(*batchv1.Job); ok && p.Spec.RestartPolicy != "Never" && p.Spec.RestartPolicy != "OnFailure" {
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
			if c.RestartPolicy != nil {
				t.Errorf("%s: container %s has a restartPolicy: only an init container may", d.file, c.Name)
			}
		}
	}

	switch v := d.value.(type) {
	case *appsv1.Deployment:
		checkSelector(t, d.file, v.Spec.Selector, v.Spec.Template)
	case *appsv1.DaemonSet:
		checkSelector(t, d.file, v.Spec.Selector, v.Spec.Template)
	}
}

func checkSelector(t *testing.T, file string, s *metav1.LabelSelector, p corev1.PodTemplateSpec) {
	t.Helper()
	for k, v := range s.MatchLabels {
		if p.Labels[k] != v {
			t.Errorf("%s: the selector asks for %s=%s, the pods have %q", file, k, v, p.Labels[k])
		}
	}
}

// checkVolumes: mounts name volumes, each volume has one source, each is mounted.
func checkVolumes(t *testing.T, d document, p corev1.PodTemplateSpec) {
	t.Helper()
	mounted := map[string]bool{}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		for _, m := range c.VolumeMounts {
			mounted[m.Name] = true
			if !slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
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
func checkPorts(t *testing.T, d document, c corev1.Container) {
	t.Helper()
	for _, p := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
		if p == nil {
			continue
		}

		if len(c.Ports) != 1 || c.Ports[0].Name != p.HTTPGet.Port.StrVal || !slices.Contains([]string{"/healthz", "/readyz", "/readyz/rings"}, p.HTTPGet.Path) {
			t.Errorf("%s: %s is probed at %s%s", d.file, c.Name, p.HTTPGet.Port.StrVal, p.HTTPGet.Path)
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
		docs = slices.DeleteFunc(docs, func(d document) bool { return deleted(t, path, d) })
	}

	if k.Kind == "Kustomization" {
		checkPatches(t, dir, docs, used)
	}

	seen := map[string]bool{}
	for _, d := range docs {
		key := d.kind.APIVersion + "/" + d.kind.Kind + "/" + d.value.GetName()
		if seen[key] {
			t.Errorf("%s: %s comes twice", dir, key)
		}

		seen[key] = true
	}

	return docs
}

// checkPatches: a patch names what it changes, and that is there.
func checkPatches(t *testing.T, dir string, docs []document, used map[string]bool) {
	t.Helper()
	for _, p := range kustomizationOf(t, dir).Patches {
		version := ""
		if p.Path != "" {
			path := filepath.Join(dir, p.Path)
			used[path] = true
			patch := load(t, path)
			if len(patch) != 1 || patch[0].kind.Kind != p.Target.Kind {
				t.Errorf("%s: not one patch of a %s", path, p.Target.Kind)
				continue
			}

			version = patch[0].kind.APIVersion
		}

		key, value, _ := strings.Cut(p.Target.LabelSelector, "=")
		hit := slices.ContainsFunc(docs, func(d document) bool {
			return d.kind.Kind == p.Target.Kind && (version == "" || d.kind.APIVersion == version) &&
				(p.Target.Name == "" || p.Target.Name == d.value.GetName()) &&
				(key == "" || d.value.GetLabels()[key] == value)
		})
		if !hit {
			t.Errorf("%s: a patch targets %+v, which is not there", dir, p.Target)
		}
	}
}

// deleted reports whether a patch of the folder takes the object away.
func deleted(t *testing.T, dir string, d document) bool {
	t.Helper()
	return slices.ContainsFunc(kustomizationOf(t, dir).Patches, func(p types.Patch) bool {
		return strings.Contains(p.Patch, "$patch: delete") && p.Target.Kind == d.kind.Kind && p.Target.Name == d.value.GetName()
	})
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

// built is what `kustomize build` makes of a folder.
func built(t *testing.T, dir string) []document {
	t.Helper()
	m, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatalf("kustomize build %s: %v", dir, err)
	}

	out, err := m.AsYaml()
	if err != nil {
		t.Fatalf("kustomize build %s: %v", dir, err)
	}

	docs, err := decode(dir, out)
	if err != nil {
		t.Fatal(err)
	}

	return docs
}

// TestBuild: what kustomize makes of each overlay is complete and safe, and has the
// flags of its components.
func TestBuild(t *testing.T) {
	for _, dir := range tops(t) {
		docs := built(t, dir)
		if want := len(collect(t, dir, map[string]bool{})); len(docs) != want {
			t.Errorf("%s: %d objects, want %d", dir, len(docs), want)
		}

		for _, d := range docs {
			checkComplete(t, d)
			checkPods(t, d)
			for _, p := range pods(d.value) {
				for _, c := range containers(p) {
					if strings.HasPrefix(c.Image, image) {
						checkFlags(t, d, c)
					}
				}
			}
		}
	}

	for dir, want := range map[string][]string{
		"overlays/watch":            {"--kubernetes", "--dry-run=false"},
		"overlays/watch-act":        {"--kubernetes", "--dry-run=false", "--act=cordon", "--max-nodes=1"},
		"overlays/watch-reschedule": {"--kubernetes", "--dry-run=false", "--act=reschedule", "--max-nodes=1"},
		"overlays/watch-deepen":     {"--kubernetes", "--dry-run=false", "--deepen=8", "--agents=kubernetes"},
		"overlays/watch-share":      {"--share=$(POD_NAME)"},
		"overlays/sidecar-deepen":   {"--listen=unix,:9611", "--switch-insecure", "--records=deep"},
	} {
		var args []string
		for _, d := range built(t, dir) {
			for _, p := range pods(d.value) {
				for _, c := range containers(p) {
					args = append(args, c.Args...)
				}

				for _, v := range p.Spec.Volumes {
					acts := strings.Contains(dir, "act") || strings.Contains(dir, "reschedule") || strings.Contains(dir, "watch-deepen")
					if acts && v.Name == "state" && v.PersistentVolumeClaim == nil {
						t.Errorf("%s: what the watcher did is lost with its pod", dir)
					}
				}
			}
		}

		for _, w := range want {
			if !slices.Contains(args, w) {
				t.Errorf("%s: no %s among %q", dir, w, args)
			}
		}
	}
}
