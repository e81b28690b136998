package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const manifests = ".." // the folder with overlays

// built is what `kustomize build` makes of a folder.
func built(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	m, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(manifests, dir))
	if err != nil {
		t.Fatalf("kustomize build %s: %v", dir, err)
	}
	var all []*unstructured.Unstructured
	for _, r := range m.Resources() {
		b, err := r.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(b); err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	return all
}

// objectOf is the only object of a kind in what was built.
func objectOf(t *testing.T, all []*unstructured.Unstructured, kind string) *unstructured.Unstructured {
	t.Helper()
	i := slices.IndexFunc(all, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind })
	if i < 0 {
		t.Fatalf("no %s among %d objects", kind, len(all))
	}
	return all[i]
}

// resource is where the server keeps objects of a kind.
func (s *server) resource(o *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	groups, err := restmapper.GetAPIGroupResources(s.client.Discovery())
	if err != nil {
		return nil, err
	}
	kind := o.GroupVersionKind()
	m, err := restmapper.NewDiscoveryRESTMapper(groups).RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	if m.Scope.Name() == meta.RESTScopeNameRoot {
		return s.dynamic.Resource(m.Resource), nil
	}
	namespace := o.GetNamespace()
	if namespace == "" {
		namespace = "default"
	}
	return s.dynamic.Resource(m.Resource).Namespace(namespace), nil
}

// apply is server-side apply of one object, every field of which the server must know.
func (s *server) apply(ctx context.Context, o *unstructured.Unstructured, dryRun ...string) error {
	at, err := s.resource(o)
	if err != nil {
		return err
	}
	b, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = at.Patch(ctx, o.GetName(), types.ApplyPatchType, b,
		metav1.PatchOptions{FieldManager: "kubectl", Force: ptr.To(true), FieldValidation: metav1.FieldValidationStrict, DryRun: dryRun})
	return err
}

// install applies an overlay, namespaces first as kustomize orders them, and removes it
// with the test.
func (s *server) install(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	all := built(t, dir)
	t.Cleanup(func() { s.uninstall(t, all) })
	for _, o := range all {
		if err := s.apply(t.Context(), o); err != nil {
			t.Errorf("%s: apply %s %s: %v", dir, o.GetKind(), o.GetName(), err)
		}
	}
	return all
}

func (s *server) uninstall(t *testing.T, all []*unstructured.Unstructured) {
	ctx := context.Background()
	for _, o := range slices.Backward(all) {
		at, err := s.resource(o)
		if err == nil {
			err = at.Delete(ctx, o.GetName(), metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
		}
		if o.GetKind() == "Namespace" {
			s.finalize(t, o.GetName())
		}
		if !meta.IsNoMatchError(err) {
			removed(t, err)
		}
	}
}

// namespace makes one that somebody else has made on a real cluster.
func (s *server) namespace(t *testing.T, name string) {
	t.Helper()
	if _, err := s.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		removed(t, s.client.CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{}))
		s.finalize(t, name)
	})
}

// finalize lets a namespace go: what a controller does when it is empty.
func (s *server) finalize(t *testing.T, name string) {
	ns, err := s.client.CoreV1().Namespaces().Get(context.Background(), name, metav1.GetOptions{})
	if err == nil {
		ns.Spec.Finalizers = nil
		_, err = s.client.CoreV1().Namespaces().Finalize(context.Background(), ns, metav1.UpdateOptions{})
	}
	removed(t, err)
}

// define makes kinds that an operator brings, of which the server checks no field.
func (s *server) define(t *testing.T, kinds ...schema.GroupVersionKind) {
	t.Helper()
	client, err := apiextensions.NewForConfig(s.admin)
	if err != nil {
		t.Fatal(err)
	}
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	for _, k := range kinds {
		plural := strings.ToLower(k.Kind) + "s"
		name := plural + "." + k.Group
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: k.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: strings.ToLower(k.Kind), Kind: k.Kind, ListKind: k.Kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: k.Version, Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}}}}}}
		if _, err := crds.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { removed(t, crds.Delete(context.Background(), name, metav1.DeleteOptions{})) })
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(k)
		until(t, "the server knows "+k.Kind, func() (bool, string) {
			at, err := s.resource(o)
			if err == nil {
				_, err = at.List(t.Context(), metav1.ListOptions{})
			}
			return err == nil, fmt.Sprint(err)
		})
	}
}

var monitoring = []schema.GroupVersionKind{
	{Group: "monitoring.coreos.com", Version: "v1", Kind: "PodMonitor"}, {Group: "monitoring.coreos.com", Version: "v1", Kind: "PrometheusRule"},
}

// TestOverlays: a cluster that has nothing takes every overlay as it is; the one with
// monitoring wants the Prometheus operator's kinds, and the one that reschedules the
// namespace of MindCluster.
func TestOverlays(t *testing.T) {
	s := shared
	dirs, err := filepath.Glob(filepath.Join(manifests, "overlays", "*"))
	if err != nil || len(dirs) < 12 {
		t.Fatalf("overlays %v, %v", dirs, err)
	}
	for _, dir := range dirs {
		name := filepath.Base(dir)
		t.Run(name, func(t *testing.T) {
			if name == "watch-reschedule" {
				s.namespace(t, "mindx-dl")
			}
			if name == "watch-monitoring" {
				var refused []string
				for _, o := range built(t, "overlays/"+name) {
					if err := s.apply(t.Context(), o, metav1.DryRunAll); meta.IsNoMatchError(err) {
						refused = append(refused, o.GetKind())
					}
				}
				if slices.Sort(refused); !slices.Equal(refused, []string{"PodMonitor", "PrometheusRule"}) {
					t.Errorf("without the operator the server does not know %v", refused)
				}
				s.define(t, monitoring...)
			}
			all := s.install(t, "overlays/"+name)
			for _, o := range all {
				at, err := s.resource(o)
				if err == nil {
					_, err = at.Get(t.Context(), o.GetName(), metav1.GetOptions{})
				}
				if err != nil {
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
				}
				if err := s.apply(t.Context(), o); err != nil {
					t.Errorf("a second time %s %s: %v", o.GetKind(), o.GetName(), err)
				}
			}
		})
	}
}
