package kubernetes_test

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

const image = "ghcr.io/laggard/laggard:"

// The two exceptions that the package comment names: pod template → what.
const rootException = "laggard-node" // owner of TaskD's files, through components/taskd-root-owned

var tokenException = []string{"laggard-watch", "laggard-batch"} // talk to the API server

// TestSecurity: every container of ours in every manifest, written out.
func TestSecurity(t *testing.T) {
	ours := 0
	for _, d := range manifests(t) {
		if d.file == "components/taskd-root-owned/daemonset.yaml" {
			continue // the exception; TestBuild sees it merged
		}

		checkPods(t, d)
		for _, p := range pods(d.value) {
			for _, c := range containers(p) {
				if strings.HasPrefix(c.Image, image) {
					ours++
				}
			}
		}
	}

	if ours < 15 {
		t.Errorf("only %d containers of ours were seen", ours)
	}
}

func containers(p corev1.PodTemplateSpec) []corev1.Container {
	return slices.Concat(p.Spec.InitContainers, p.Spec.Containers)
}

// checkPods holds the pods of a document to the rules.
func checkPods(t *testing.T, d document) {
	t.Helper()
	for _, p := range pods(d.value) {
		ours := false
		for _, c := range containers(p) {
			if strings.HasPrefix(c.Image, image) {
				ours = true
				checkContainer(t, d, c)
			}
		}

		token := p.Spec.AutomountServiceAccountToken
		switch {
		case !ours:
		case token == nil:
			t.Errorf("%s: %s doesn't say whether it has a token", d.file, d.value.GetName())
		case *token != slices.Contains(tokenException, d.value.GetName()):
			t.Errorf("%s: automountServiceAccountToken of %s is %v", d.file, d.value.GetName(), *token)
		}
	}
}

func checkContainer(t *testing.T, d document, c corev1.Container) {
	t.Helper()
	bad := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%s: %s: "+format, append([]any{d.file, c.Name}, args...)...)
	}
	s := c.SecurityContext
	if s == nil {
		bad("no securityContext")
		return
	}

	is := func(p *bool, want bool) bool { return p != nil && *p == want }
	asRoot := d.value.GetName() == rootException && is(s.RunAsNonRoot, false)
	if !asRoot && (!is(s.RunAsNonRoot, true) || s.RunAsUser == nil || *s.RunAsUser != 65532 || s.RunAsGroup == nil || *s.RunAsGroup != 65532) {
		bad("runs as root, or as whom the image says")
	}

	if !is(s.ReadOnlyRootFilesystem, true) || !is(s.AllowPrivilegeEscalation, false) {
		bad("its root is writable, or it may gain privileges")
	}

	if s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		bad("keeps capabilities")
	}

	if s.SeccompProfile == nil || s.SeccompProfile.Type != "RuntimeDefault" {
		bad("no seccomp profile")
	}

	for _, of := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
		for _, what := range []corev1.ResourceName{"cpu", "memory"} {
			if q, ok := of[what]; !ok || q.Sign() <= 0 {
				bad("no %s among requests or limits", what)
			}
		}
	}

	for _, e := range c.Env {
		secret := e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil
		if secret != strings.Contains(e.Name, "PASSWORD") {
			bad("%s: secrets come from a Secret, and nothing else does", e.Name)
		}
	}
}

// sidecarOf returns the install and agent containers of a pod.
func sidecarOf(t *testing.T, d document, p corev1.PodTemplateSpec) (install, agent, trainer corev1.Container) {
	t.Helper()
	for _, c := range containers(p) {
		switch c.Name {
		case "laggard-install":
			install = c
		case "laggard-agent":
			agent = c
		default:
			trainer = c
		}
	}

	if install.Name == "" || agent.Name == "" || trainer.Name == "" {
		t.Fatalf("%s: not a pod with a sidecar", d.file)
	}

	return install, agent, trainer
}

// TestSidecar: examples and components say the same, rings are a tmpfs with a
// limit that trainer and agent share by group, segments have room above the cap.
func TestSidecar(t *testing.T) {
	first := load(t, "examples/job.yaml")[0]
	install, agent, trainer := sidecarOf(t, first, pods(first.value)[0])
	for _, file := range []string{"examples/job.yaml", "examples/pytorchjob.yaml", "examples/volcano-job.yaml", "components/sidecar/job.yaml", "components/sidecar-older/job.yaml"} {
		d := load(t, file)[0]
		for _, p := range pods(d.value) {
			i, a, tr := sidecarOf(t, d, p)
			if !reflect.DeepEqual(i, install) {
				t.Errorf("%s: laggard-install isn't that of examples/job.yaml", file)
			}

			if older := strings.Contains(file, "older"); older {
				if a.RestartPolicy != nil || a.StartupProbe != nil || !slices.ContainsFunc(a.Args, func(s string) bool { return strings.HasPrefix(s, "--until-idle=") }) {
					t.Errorf("%s: a plain container leaves by --until-idle: %+v", file, a)
				}
			} else {
				if a.RestartPolicy == nil || *a.RestartPolicy != corev1.ContainerRestartPolicyAlways || a.StartupProbe == nil || a.StartupProbe.HTTPGet.Path != "/readyz/rings" {
					t.Errorf("%s: not a native sidecar with a startup probe: %+v", file, a)
				}

				if !slices.Equal(a.Args, agent.Args) || !slices.Equal(envNames(a), envNames(agent)) || !reflect.DeepEqual(a.VolumeMounts, agent.VolumeMounts) {
					t.Errorf("%s: laggard-agent isn't that of examples/job.yaml", file)
				}
			}

			if !slices.Equal(envNames(tr), envNames(trainer)) || jobLabel(tr) != jobLabel(a) {
				t.Errorf("%s: the trainer's environment is %q, of job %s; want %q, of %s", file, envNames(tr), jobLabel(tr), envNames(trainer), jobLabel(a))
			}

			checkShared(t, file, p, a, tr)
		}
	}
}

func envNames(c corev1.Container) (names []string) {
	for _, e := range c.Env {
		names = append(names, e.Name)
	}

	return names
}

func jobLabel(c corev1.Container) string {
	for _, e := range c.Env {
		if e.Name == "LAGGARD_JOB" {
			return e.ValueFrom.FieldRef.FieldPath
		}
	}

	return ""
}

func checkShared(t *testing.T, file string, p corev1.PodTemplateSpec, agent, trainer corev1.Container) {
	t.Helper()
	if p.Spec.SecurityContext.FSGroup == nil || *p.Spec.SecurityContext.FSGroup != *agent.SecurityContext.RunAsGroup {
		t.Errorf("%s: fsGroup isn't the agent's group", file)
	}

	if s := trainer.SecurityContext; s == nil || s.RunAsGroup == nil || *s.RunAsGroup != *agent.SecurityContext.RunAsGroup {
		t.Errorf("%s: the trainer's group isn't the agent's: it could not read rings of mode 0660", file)
	}

	if p.Labels["laggard/metrics"] != "true" {
		t.Errorf("%s: the PodMonitor doesn't select these pods", file)
	}

	for _, c := range []corev1.Container{agent, trainer} {
		i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "LAGGARD_RUN" })
		run := c.Env[i].Value
		mounted := false
		for _, m := range c.VolumeMounts {
			mounted = mounted || m.MountPath == run && m.Name == "laggard-rings"
		}

		if !mounted {
			t.Errorf("%s: LAGGARD_RUN of %s is %s, where the rings aren't mounted", file, c.Name, run)
		}
	}

	for _, v := range p.Spec.Volumes {
		switch v.Name {
		case "laggard-rings":
			if v.EmptyDir == nil || v.EmptyDir.Medium != "Memory" || v.EmptyDir.SizeLimit == nil {
				t.Errorf("%s: rings aren't on a bounded tmpfs: %+v", file, v)
			}
		case "laggard-segments":
			limit := v.EmptyDir.SizeLimit.Value()
			for _, a := range agent.Args {
				if mb, ok := strings.CutPrefix(a, "--cap="); ok {
					n, err := strconv.ParseInt(strings.TrimSuffix(mb, "MB"), 10, 64)
					if err != nil || n*1_000_000*4 > limit*3 {
						t.Errorf("%s: --cap %s leaves less than a quarter of %s: the kubelet would evict the trainer", file, mb, v.EmptyDir.SizeLimit)
					}
				}
			}
		}
	}
}
