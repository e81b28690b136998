// Package apiserver proves the manifests and the watcher on a real Kubernetes API
// server: kube-apiserver, built once from its own source, over Debian's etcd. The
// server checks, stores, authorizes and throttles; laggard runs as a process with the
// flags of its overlay, as its uid, and with the token of its service account where a
// pod has it.
//
// What a cluster has beside that is not here: no kubelet, no scheduler, no controller.
// Nodes are objects, and tests write to them as the others of a cluster do.
//
// It is a module of its own, so that the product reaches nothing of Kubernetes.
package apiserver_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// adminToken is that of the one who installs laggard and looks at what it did.
const adminToken = "of-the-admin"

// server is a cluster's API server and its etcd, both processes.
type server struct {
	dir       string
	port      string
	etcd, api *exec.Cmd
	log       *os.File
	admin     *rest.Config
	client    *kubernetes.Clientset
	dynamic   *dynamic.DynamicClient
	caCert    []byte
	etcdPorts [2]string
	starts    []starting
}

// starting is a start of the API server. Until it is ready it may not have read its roles
// yet, and then forbids what they allow.
type starting struct{ begun, ready time.Time }

// apiserver is the program that .ci/parts built.
func apiserver() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "laggard", "kube-apiserver-v1.34.1")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("find the API server: %w; build it with `.ci/parts kubernetes`", err)
	}
	return path, nil
}

// newServer makes keys and starts both processes.
func newServer(dir string) (*server, error) {
	s := &server{dir: dir}
	var err error
	ports := make([]string, 3)
	for i := range ports {
		if ports[i], err = freePort(); err != nil {
			return nil, err
		}
	}
	s.port, s.etcdPorts = ports[0], [2]string{ports[1], ports[2]}
	if err := s.keys(); err != nil {
		return nil, err
	}
	for name, text := range map[string]string{
		"tokens.csv": adminToken + ",admin,1,system:masters\n",
		"audit.yaml": "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- {level: Metadata, userGroups: ['system:serviceaccounts']}\n- {level: None}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	if s.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		return nil, err
	}
	s.admin = &rest.Config{Host: "https://127.0.0.1:" + s.port, BearerToken: adminToken, TLSClientConfig: rest.TLSClientConfig{CAData: s.caCert}, QPS: -1}
	if s.client, err = kubernetes.NewForConfig(s.admin); err != nil {
		return nil, err
	}
	if s.dynamic, err = dynamic.NewForConfig(s.admin); err != nil {
		return nil, err
	}
	return s, s.start()
}

// transport trusts the server.
func (s *server) transport() (http.RoundTripper, error) {
	return rest.TransportFor(rest.AnonymousClientConfig(s.admin))
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// keys makes the certificate of the server, which signs itself, and the key of service
// accounts' tokens.
func (s *server) keys() error {
	for _, name := range []string{"server", "accounts"} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		der, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			return err
		}
		if err := s.pem(name+".key", "EC PRIVATE KEY", der); err != nil {
			return err
		}
		if name == "accounts" {
			continue
		}
		c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "laggard tests"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
		if der, err = x509.CreateCertificate(rand.Reader, c, c, key.Public(), key); err != nil {
			return err
		}
		if err := s.pem("server.crt", "CERTIFICATE", der); err != nil {
			return err
		}
		s.caCert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	return nil
}

func (s *server) pem(name, kind string, der []byte) error {
	return os.WriteFile(filepath.Join(s.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// start starts etcd and the API server, on the data and the ports of before.
func (s *server) start() error {
	path, err := apiserver()
	if err != nil {
		return err
	}
	at := func(name string) string { return filepath.Join(s.dir, name) }
	url := "http://127.0.0.1:" + s.etcdPorts[0]
	peer := "http://127.0.0.1:" + s.etcdPorts[1]
	s.etcd = s.command("etcd", "--name=e", "--data-dir="+at("etcd"), "--listen-client-urls="+url, "--advertise-client-urls="+url,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=e="+peer, "--log-level=warn")
	s.api = s.command(path, "--etcd-servers="+url, "--bind-address=127.0.0.1", "--secure-port="+s.port, "--advertise-address=127.0.0.1",
		"--tls-cert-file="+at("server.crt"), "--tls-private-key-file="+at("server.key"), "--token-auth-file="+at("tokens.csv"), "--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+at("accounts.key"), "--service-account-signing-key-file="+at("accounts.key"),
		"--service-cluster-ip-range=10.96.0.0/16", "--endpoint-reconciler-type=none", "--profiling=false",
		"--audit-policy-file="+at("audit.yaml"), "--audit-log-path="+at("audit.log"), "--audit-log-mode=blocking-strict")
	if err := errors.Join(s.etcd.Start(), s.api.Start()); err != nil {
		return fmt.Errorf("start the API server: %w", err)
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	for {
		body, err := s.client.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err == nil && string(body) == "ok" {
			s.starts = append(s.starts, starting{begun, time.Now()})
			return nil
		}
		select {
		case <-ctx.Done():
			log, _ := os.ReadFile(s.log.Name())
			return fmt.Errorf("the API server is not ready: %w\n%s", err, log[max(0, len(log)-4000):])
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (s *server) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Stdout, c.Stderr = s.log, s.log
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return c
}

// stop ends both as a machine that is switched off does.
func (s *server) stop() error {
	var errs []error
	for _, c := range []*exec.Cmd{s.api, s.etcd} {
		if c == nil || c.Process == nil {
			continue
		}
		errs = append(errs, c.Process.Kill())
		c.Wait() // "signal: killed" is what was asked for
	}
	return errors.Join(errs...)
}

// shared is the server of all tests; program is laggard: the one that LAGGARD_PROGRAM
// names, else built once.
var (
	shared  *server
	program string
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "laggard-apiserver-")
		if err == nil {
			defer os.RemoveAll(dir)
			err = os.Chmod(dir, 0o755) // laggard runs as another user
		}
		if program = os.Getenv("LAGGARD_PROGRAM"); err == nil && program == "" {
			program = filepath.Join(dir, "laggard")
			build := exec.Command("go", "build", "-trimpath", "-o", program, ".")
			build.Dir, build.Env = "../../..", append(os.Environ(), "CGO_ENABLED=0")
			var out []byte
			if out, err = build.CombinedOutput(); err != nil {
				err = fmt.Errorf("build laggard: %w\n%s", err, out)
			}
		}
		if err == nil {
			keep := filepath.Join(dir, "server")
			if err = os.Mkdir(keep, 0o700); err == nil {
				shared, err = newServer(keep)
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			if shared != nil {
				shared.stop()
			}
			return 1
		}
		defer shared.stop()
		return m.Run()
	}())
}

// until waits for a state of the cluster, however long a busy machine takes.
func until(t *testing.T, what string, ok func() (bool, string)) {
	t.Helper()
	last := ""
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		done, now := ok()
		if done {
			return
		}
		last = now
	}
	t.Fatalf("never came: %s; last: %s", what, last)
}

// audited are the lines of the server's audit log from an offset on.
func (s *server) audited(t *testing.T, from int64) (lines [][]byte, to int64) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.dir, "audit.log"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0
	}
	if err != nil {
		t.Fatal(err)
	}
	end := bytes.LastIndexByte(b, '\n') + 1
	return bytes.Split(bytes.TrimSpace(b[from:end]), []byte("\n")), int64(end)
}
