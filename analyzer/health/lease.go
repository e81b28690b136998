package health

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
)

// ErrConflict is returned by SetLease, wrapped, when somebody else has made, changed or
// deleted the Lease since it was read.
var ErrConflict = errors.New("somebody else has written it")

// Lease is a Lease of coordination.k8s.io/v1 as far as we use it.
type Lease struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name            string            `json:"name"`
		Labels          map[string]string `json:"labels,omitempty"`
		Annotations     map[string]string `json:"annotations,omitempty"`
		ResourceVersion string            `json:"resourceVersion,omitempty"` // "" is not made yet
	} `json:"metadata"`
	Spec struct {
		Holder    string `json:"holderIdentity"`
		Seconds   int    `json:"leaseDurationSeconds"`
		Acquired  string `json:"acquireTime"` // as MicroTime
		Renewed   string `json:"renewTime"`
		Transfers int    `json:"leaseTransitions"`
	} `json:"spec"`
}

// MicroTime is the layout of a Lease's times, which are in UTC: the API server takes them with six
// digits of a second, always (metav1.MicroTime), and time.Time leaves zeros out.
const MicroTime = "2006-01-02T15:04:05.000000Z07:00"

// leasePath is the path of a namespace's Leases on the API server.
func leasePath(namespace string) string {
	return "/apis/coordination.k8s.io/v1/namespaces/" + url.PathEscape(namespace) + "/leases"
}

// Leases returns the Leases of a namespace that have a label, as they are at this moment.
func (a API) Leases(ctx context.Context, namespace, label string) ([]Lease, error) {
	var list struct{ Items []Lease }
	if err := a.Get(ctx, leasePath(namespace)+"?labelSelector="+url.QueryEscape(label), &list); err != nil {
		return nil, fmt.Errorf("list Leases in namespace %s: %w", namespace, mayLease(err, namespace))
	}

	return list.Items, nil
}

// SetLease makes or changes a Lease, unless somebody else has since it was read: then the
// error is ErrConflict. l becomes what the server has.
func (a API) SetLease(ctx context.Context, namespace string, l *Lease) error {
	l.APIVersion, l.Kind = "coordination.k8s.io/v1", "Lease"
	method, path := http.MethodPost, leasePath(namespace)
	if l.Metadata.ResourceVersion != "" {
		method, path = http.MethodPut, path+"/"+url.PathEscape(l.Metadata.Name)
	}

	err := a.call(ctx, method, path, jsonBody, l, l)
	if answered(err, http.StatusConflict, http.StatusNotFound) {
		err = errors.Join(ErrConflict, err)
	}

	if err != nil {
		return fmt.Errorf("write Lease %s/%s: %w", namespace, l.Metadata.Name, mayLease(err, namespace))
	}

	return nil
}

// DeleteLease takes a Lease away, unless somebody has written it since it was read.
func (a API) DeleteLease(ctx context.Context, namespace string, l *Lease) error {
	err := a.call(ctx, http.MethodDelete, leasePath(namespace)+"/"+url.PathEscape(l.Metadata.Name), jsonBody,
		map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": map[string]any{"resourceVersion": l.Metadata.ResourceVersion}}, nil)
	if err == nil || answered(err, http.StatusConflict, http.StatusNotFound) {
		return nil
	}

	return fmt.Errorf("delete Lease %s/%s: %w", namespace, l.Metadata.Name, mayLease(err, namespace))
}

// mayLease names the rights of a watcher of --share where one is missing.
func mayLease(err error, namespace string) error {
	return mayNot(err, namespace, "laggard-watch-share", "list, create, update and delete on leases.coordination.k8s.io", "--verb=list,create,update,delete --resource=leases.coordination.k8s.io")
}
