package apiserver_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ourUID is the user of every container of ours.
const ourUID = 65532

// pod is laggard as in a pod: a process of its uid that sees its service account where
// the kubelet mounts it, and nothing else of ours.
type pod struct {
	*exec.Cmd
	t    *testing.T
	said *words
	out  bytes.Buffer
	left chan error
}

// account is a folder with what the kubelet gives a pod of a service account.
func account(t *testing.T, s *server, namespace, name string) string {
	t.Helper()
	dir := t.TempDir()
	give := func(file string, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, file), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	give("token", []byte(tokenOf(t, s, namespace, name)))
	give("ca.crt", s.caCert)
	give("namespace", []byte(namespace))
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func tokenOf(t *testing.T, s *server, namespace, name string) string {
	t.Helper()
	r, err := s.client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("token of %s/%s: %v", namespace, name, err)
	}
	return r.Status.Token
}

// enter mounts the service account and becomes our user.
const enter = `mount -t tmpfs none /run && mkdir -p /run/secrets/kubernetes.io/serviceaccount &&
mount --bind "$ACCOUNT" /run/secrets/kubernetes.io/serviceaccount && cd / && exec $AS "$@"`

// newPod is a pod of that service account that runs laggard with these arguments.
func newPod(t *testing.T, s *server, account string, args ...string) *pod {
	t.Helper()
	argv := []string{"unshare", "--mount"}
	as := fmt.Sprintf("setpriv --reuid %d --regid %d --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all", ourUID, ourUID)
	if os.Getuid() != 0 {
		argv, as = append(argv, "--map-root-user"), ""
	}
	argv = append(argv, "sh", "-ec", enter, "pod", program)
	p := &pod{t: t, said: &words{}, left: make(chan error, 1), Cmd: exec.CommandContext(t.Context(), argv[0], append(argv[1:], args...)...)}
	p.Env = []string{"PATH=" + os.Getenv("PATH"), "ACCOUNT=" + account, "AS=" + as, "KUBERNETES_SERVICE_HOST=127.0.0.1", "KUBERNETES_SERVICE_PORT=" + s.port}
	p.Stdout, p.Stderr = &p.out, p.said
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return p
}

// begin starts it in the background, until the test ends.
func (p *pod) begin() *pod {
	p.t.Helper()
	if err := p.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() { p.left <- p.Wait() }()
	p.t.Cleanup(func() {
		p.Process.Kill()
		if p.t.Failed() {
			p.t.Logf("laggard said:\n%s", p.said.String())
		}
	})
	return p
}

// end sends a signal and waits for the process.
func (p *pod) end(sig syscall.Signal) error {
	p.t.Helper()
	if err := p.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
	return <-p.left
}

// runs is begin and its end: the exit code.
func (p *pod) runs() int {
	p.t.Helper()
	p.begin()
	<-p.left
	return p.ProcessState.ExitCode()
}

// words is what a process says.
type words struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *words) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// hears waits until laggard has said it.
func (p *pod) hears(pattern string) {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	until(p.t, "laggard says "+pattern, func() (bool, string) {
		said := p.said.String()
		return re.MatchString(said), said
	})
}

// arguments are those of a container of ours, where its store is, and what a test adds.
func arguments(of []any, store string, more ...string) []string {
	var args []string
	for _, a := range of {
		args = append(args, strings.NewReplacer("$(LAGGARD_STORE)", store, "parquet:/data/laggard", store).Replace(a.(string)))
	}
	return append(args, more...)
}

// owned is a folder that our user may write.
func owned(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "laggard-pod-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if os.Getuid() == 0 {
		if err := os.Chown(dir, ourUID, ourUID); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// outside is laggard on an admin's machine, which reaches the API through a proxy.
func outside(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, program, args...)
	c.Env = []string{"PATH=" + os.Getenv("PATH")}
	return c
}
