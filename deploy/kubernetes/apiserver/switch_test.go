package apiserver_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	switchSpace = "research"
	switchJob   = "train"
)

// grant gives the service account that switches a role of so many rules, by a name.
func (s *server) grant(t *testing.T, name string, rule rbacv1.PolicyRule) {
	t.Helper()
	rbac := s.client.RbacV1()
	_, err := rbac.Roles(switchSpace).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
	if err == nil {
		_, err = rbac.RoleBindings(switchSpace).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "switch", Namespace: switchSpace}}}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	client := s.as(t, tokenOf(t, s, switchSpace, "switch"))
	until(t, "the server knows the role "+name, func() (bool, string) {
		may := mayDo(t, client, switchSpace)
		return may[rule.Verbs[0]+" "+rule.APIGroups[0]+"/"+rule.Resources[0]], ""
	})
}

// ascendTraining makes a job as MindCluster has it: an AscendJob, and the PodGroup that Volcano
// made for it. It returns the job as an owner.
func (s *server) ascendTraining(t *testing.T) metav1.OwnerReference {
	t.Helper()
	job := schema.GroupVersionKind{Group: "mindxdl.gitee.com", Version: "v1", Kind: "AscendJob"}
	group := schema.GroupVersionKind{Group: "scheduling.volcano.sh", Version: "v1beta1", Kind: "PodGroup"}
	s.define(t, job, group)
	create := func(kind schema.GroupVersionKind, name string, owners ...metav1.OwnerReference) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(kind)
		o.SetName(name)
		o.SetNamespace(switchSpace)
		o.SetOwnerReferences(owners)
		at, err := s.resource(o)
		if err == nil {
			o, err = at.Create(t.Context(), o, metav1.CreateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	o := create(job, switchJob)
	yes := true
	owner := metav1.OwnerReference{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName(), UID: o.GetUID(), Controller: &yes, BlockOwnerDeletion: &yes}
	create(group, "podgroup-of-nobody")
	create(group, switchJob+"-"+string(o.GetUID()), owner)
	return owner
}

// TestTraceConfigMap: `laggard trace` with a service account's token makes the ConfigMap that
// MindCluster's Device Plugin takes to the nodes, owned by the job, and changes it. Until
// it has the rights that its errors name, it says which is missing.
func TestTraceConfigMap(t *testing.T) {
	s := shared
	s.namespace(t, switchSpace)
	if _, err := s.client.CoreV1().ServiceAccounts(switchSpace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "switch"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	mounted := account(t, s, switchSpace, "switch")
	run := func(code int, words []string, args ...string) {
		t.Helper()
		p := newPod(t, s, mounted, append([]string{"trace"}, append(args, "--configmap")...)...)
		got := p.runs()
		for _, w := range words {
			if said := p.out.String() + p.said.String(); got != code || !strings.Contains(said, w) {
				t.Errorf("trace %v: exit %d, %s; want exit %d and %q", args, got, said, code, w)
			}
		}
	}
	off := []string{"off", "--job", switchSpace + "/" + switchJob}
	run(1, []string{"list on podgroups.scheduling.volcano.sh in namespace research",
		"kubectl -n research create role laggard-switch --verb=list --resource=podgroups.scheduling.volcano.sh"}, off...)
	s.grant(t, "list", rbacv1.PolicyRule{Verbs: []string{"list"}, APIGroups: []string{"scheduling.volcano.sh"}, Resources: []string{"podgroups"}})
	run(1, []string{"no Volcano"}, off...)
	job := s.ascendTraining(t)
	run(1, []string{"find job another in namespace research"}, "off", "--job", switchSpace+"/another")
	run(1, []string{"create and patch on configmaps in namespace research", "--verb=create,patch --resource=configmaps"}, off...)
	s.grant(t, "write", rbacv1.PolicyRule{Verbs: []string{"create", "patch"}, APIGroups: []string{""}, Resources: []string{"configmaps"}})
	for _, tt := range []struct {
		args []string
		want string // the bytes that the nodes get
	}{
		{off, `{"CommunicationOperator":"off","Step":"off","SaveCheckpoint":"off","FP":"off","DataLoader":"off"}`},
		{[]string{"on", "--job", switchSpace + "/" + string(job.UID)}, `{"CommunicationOperator":"on","Step":"on","SaveCheckpoint":"on","FP":"on","DataLoader":"on"}`},
		{[]string{"on", "--job", switchSpace + "/" + switchJob, "--words", "Step"}, `{"CommunicationOperator":"off","Step":"on","SaveCheckpoint":"on","FP":"on","DataLoader":"on"}`},
	} {
		run(0, []string{"ConfigMap data-trace-train"}, tt.args...)
		// The Device Plugin's informer asks by this label.
		list, err := s.client.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{LabelSelector: "reset=true"})
		if err != nil || len(list.Items) != 1 {
			t.Fatalf("trace %v: %d ConfigMaps with the label, %v", tt.args, len(list.Items), err)
		}
		cm := list.Items[0]
		owner := job
		owner.Controller, owner.BlockOwnerDeletion = nil, nil
		if cm.Name != "data-trace-train" || cm.Namespace != switchSpace || len(cm.Data) != 1 || cm.Data["profilingSwitch"] != tt.want ||
			!slices.Equal(cm.OwnerReferences, []metav1.OwnerReference{owner}) {
			t.Errorf("trace %v: %s/%s owned by %+v: %v", tt.args, cm.Namespace, cm.Name, cm.OwnerReferences, cm.Data)
		}
	}
}
