package health

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
)

// MindCluster's switch of a job: a ConfigMap that its Device Plugin, which looks for the
// label, brings to the nodes of the job. ClusterD gives it the owner of the job's PodGroup,
// so that it goes when the job does; so do we.
const (
	switchPrefix = "data-trace-"
	switchLabel  = "reset"
	switchKey    = "profilingSwitch"
	switchRole   = "laggard-switch"
	podGroups    = "/apis/scheduling.volcano.sh/v1beta1/namespaces/"
)

// owner is an owner reference.
type owner struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
}

// SetSwitch makes or changes the ConfigMap of a job's switch, the five words as JSON, and
// returns its name. The job is its name or its uid.
func (a API) SetSwitch(ctx context.Context, namespace, job string, words any) (string, error) {
	o, err := a.jobOwner(ctx, namespace, job)
	if err != nil {
		return "", err
	}

	text, err := json.Marshal(words)
	if err != nil {
		return "", fmt.Errorf("encode switch: %w", err)
	}

	name := switchPrefix + o.Name
	err = a.applyConfigMap(ctx, namespace, name, map[string]any{"labels": map[string]any{switchLabel: "true"}, "ownerReferences": []owner{o}}, map[string]string{switchKey: string(text)})
	if err != nil {
		return "", fmt.Errorf("write ConfigMap %s: %w", name, mayNot(err, namespace, switchRole, "create and patch on configmaps", "--verb=create,patch --resource=configmaps"))
	}

	return name, nil
}

// jobOwner finds a job by the PodGroups of its namespace: who owns one is a job.
func (a API) jobOwner(ctx context.Context, namespace, job string) (owner, error) {
	var list struct {
		Items []struct {
			Metadata struct{ OwnerReferences []owner }
		}
	}
	if err := a.Get(ctx, podGroups+url.PathEscape(namespace)+"/podgroups", &list); err != nil {
		if answered(err, http.StatusNotFound) {
			return owner{}, fmt.Errorf("list PodGroups: %w: the cluster has no Volcano, so no MindCluster", err)
		}

		return owner{}, fmt.Errorf("list PodGroups: %w", mayNot(err, namespace, switchRole, "list on podgroups.scheduling.volcano.sh", "--verb=list --resource=podgroups.scheduling.volcano.sh"))
	}

	for _, i := range list.Items {
		for _, o := range i.Metadata.OwnerReferences {
			if o.Name == job || o.UID == job {
				return o, nil
			}
		}
	}

	return owner{}, fmt.Errorf("find job %s in namespace %s: none of its %d PodGroups belongs to it: does the job run there?", job, namespace, len(list.Items))
}

// applyConfigMap makes a ConfigMap that is not there and changes one that is, by
// server-side apply. metadata holds what is not its name.
func (a API) applyConfigMap(ctx context.Context, namespace, name string, metadata map[string]any, data map[string]string) error {
	metadata["name"], metadata["namespace"] = name, namespace
	path := "/api/v1/namespaces/" + url.PathEscape(namespace) + "/configmaps/" + url.PathEscape(name) + "?fieldManager=laggard&force=true"
	return a.call(ctx, http.MethodPatch, path, applyPatch, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}, nil)
}

// mayNot names the right that is missing where the API server refused, and the role that
// grants it.
func mayNot(err error, namespace, role, verbs, grant string) error {
	if !answered(err, http.StatusForbidden) {
		return err
	}

	return fmt.Errorf("%w: this account needs the verbs %s in namespace %s: `kubectl -n %s create role %s %s`, and a rolebinding of it", err, verbs, namespace, namespace, role, grant)
}
