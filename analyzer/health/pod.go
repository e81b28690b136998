package health

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// serviceAccount is where Kubernetes mounts a pod's identity.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// apiHost names the API server in the environment of a pod.
const apiHost = "KUBERNETES_SERVICE_HOST"

// InPod reports whether this process runs in a pod.
func InPod() bool { return os.Getenv(apiHost) != "" }

// OfPod returns the API server of the cluster whose pod this process runs in, as the
// pod's service account.
func OfPod() (API, error) {
	if !InPod() {
		return API{}, errors.New("not in a pod (KUBERNETES_SERVICE_HOST is not set): name the API with --kubernetes-server")
	}

	certificates := filepath.Join(serviceAccount, "ca.crt")
	pem, err := os.ReadFile(certificates)
	if err != nil {
		return API{}, fmt.Errorf("read the cluster's certificate: %w: does the pod have a service account?", err)
	}

	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return API{}, fmt.Errorf("no certificate in %s", certificates)
	}

	namespace, err := os.ReadFile(filepath.Join(serviceAccount, "namespace"))
	if err != nil {
		return API{}, fmt.Errorf("read the pod's namespace: %w: does the pod have a service account?", err)
	}

	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return API{
		Server:    "https://" + net.JoinHostPort(os.Getenv(apiHost), cmp.Or(os.Getenv("KUBERNETES_SERVICE_PORT"), "443")),
		TokenFile: filepath.Join(serviceAccount, "token"),
		Client:    &http.Client{Transport: t},
		Namespace: strings.TrimSpace(string(namespace)),
	}, nil
}
