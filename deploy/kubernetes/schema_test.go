package kubernetes_test

import (
	"bytes"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"sigs.k8s.io/yaml"
)

// scheme is Kubernetes' own types, decoder reads YAML into them as the API server
// does with fieldValidation=Strict: a field that is misspelt, misplaced, there twice
// or of another type is an error.
var (
	scheme  = runtime.NewScheme()
	decoder = json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
)

func init() {
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme, rbacv1.AddToScheme, networkingv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
}

// The kinds of others, as far as the manifests use them, by their own definitions; pod
// templates in them are Kubernetes' own.

// pytorchJob is kubeflow.org/v1 PyTorchJob: github.com/kubeflow/training-operator
// pkg/apis/kubeflow.org/v1 (PyTorchJobSpec, ReplicaSpec).
type pytorchJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		NprocPerNode        *string `json:"nprocPerNode"`
		PytorchReplicaSpecs map[string]struct {
			Replicas      *int32                 `json:"replicas"`
			RestartPolicy string                 `json:"restartPolicy"`
			Template      corev1.PodTemplateSpec `json:"template"`
		} `json:"pytorchReplicaSpecs"`
	} `json:"spec"`
}

// volcanoJob is batch.volcano.sh/v1alpha1 Job: github.com/volcano-sh/apis
// pkg/apis/batch/v1alpha1 (JobSpec, TaskSpec, LifecyclePolicy).
type volcanoJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		MinAvailable  int32               `json:"minAvailable"`
		SchedulerName string              `json:"schedulerName"`
		Plugins       map[string][]string `json:"plugins"`
		Policies      []struct {
			Event  string `json:"event"`
			Action string `json:"action"`
		} `json:"policies"`
		Tasks []struct {
			Name     string                 `json:"name"`
			Replicas int32                  `json:"replicas"`
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"tasks"`
	} `json:"spec"`
}

// ascendJob is mindxdl.gitee.com/v1 AscendJob: gitcode.com/Ascend/mind-cluster
// component/ascend-operator/pkg/api/v1 (AscendJobSpec, with Kubeflow's RunPolicy).
type ascendJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		SchedulerName string `json:"schedulerName"`
		SuccessPolicy string `json:"successPolicy"`
		RunPolicy     struct {
			BackoffLimit     *int32 `json:"backoffLimit"`
			SchedulingPolicy struct {
				MinAvailable *int32 `json:"minAvailable"`
				Queue        string `json:"queue"`
			} `json:"schedulingPolicy"`
		} `json:"runPolicy"`
		ReplicaSpecs map[string]struct {
			Replicas      *int32                 `json:"replicas"`
			RestartPolicy string                 `json:"restartPolicy"`
			Template      corev1.PodTemplateSpec `json:"template"`
		} `json:"replicaSpecs"`
	} `json:"spec"`
}

// podMonitor is monitoring.coreos.com/v1 PodMonitor:
// github.com/prometheus-operator/prometheus-operator pkg/apis/monitoring/v1.
type podMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		NamespaceSelector struct {
			Any bool `json:"any"`
		} `json:"namespaceSelector"`
		Selector            metav1.LabelSelector `json:"selector"`
		PodTargetLabels     []string             `json:"podTargetLabels"`
		PodMetricsEndpoints []struct {
			Port        string `json:"port"`
			Path        string `json:"path"`
			Interval    string `json:"interval"`
			HonorLabels bool   `json:"honorLabels"`
			Relabelings []struct {
				Action       string   `json:"action"`
				SourceLabels []string `json:"sourceLabels"`
				TargetLabel  string   `json:"targetLabel"`
			} `json:"relabelings"`
		} `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

// prometheusRule is monitoring.coreos.com/v1 PrometheusRule, of the same package.
type prometheusRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Groups []struct {
			Name     string `json:"name"`
			Interval string `json:"interval"`
			Rules    []struct {
				Alert       string            `json:"alert"`
				Expr        string            `json:"expr"`
				For         string            `json:"for"`
				Labels      map[string]string `json:"labels"`
				Annotations map[string]string `json:"annotations"`
			} `json:"rules"`
		} `json:"groups"`
	} `json:"spec"`
}

// foreign is which of these a document is decoded into.
var foreign = map[string]func() metav1.Object{
	"kubeflow.org/v1/PyTorchJob":              func() metav1.Object { return new(pytorchJob) },
	"batch.volcano.sh/v1alpha1/Job":           func() metav1.Object { return new(volcanoJob) },
	"mindxdl.gitee.com/v1/AscendJob":          func() metav1.Object { return new(ascendJob) },
	"monitoring.coreos.com/v1/PodMonitor":     func() metav1.Object { return new(podMonitor) },
	"monitoring.coreos.com/v1/PrometheusRule": func() metav1.Object { return new(prometheusRule) },
}

// document is one decoded YAML document.
type document struct {
	file  string
	kind  metav1.TypeMeta
	value metav1.Object
}

// decode reads all documents of a manifest, strictly.
func decode(file string, b []byte) ([]document, error) {
	var docs []document
	for _, part := range bytes.Split(b, []byte("\n---\n")) {
		d := document{file: file}
		if err := yaml.Unmarshal(part, &d.kind); err != nil {
			return nil, fmt.Errorf("parse %s: %w", file, err)
		}

		if blank := foreign[d.kind.APIVersion+"/"+d.kind.Kind]; blank != nil {
			d.value = blank()
			if err := yaml.UnmarshalStrict(part, d.value); err != nil {
				return nil, fmt.Errorf("decode %s: %w", file, err)
			}
		} else {
			v, _, err := decoder.Decode(part, nil, nil)
			if err != nil {
				return nil, fmt.Errorf("decode %s: %w", file, err)
			}

			d.value = v.(metav1.Object)
		}

		docs = append(docs, d)
	}

	return docs, nil
}

// pods returns the pod templates of a decoded document.
func pods(v metav1.Object) []corev1.PodTemplateSpec {
	var all []corev1.PodTemplateSpec
	switch v := v.(type) {
	case *appsv1.Deployment:
		return append(all, v.Spec.Template)
	case *appsv1.DaemonSet:
		return append(all, v.Spec.Template)
	case *batchv1.Job:
		return append(all, v.Spec.Template)
	case *batchv1.CronJob:
		return append(all, v.Spec.JobTemplate.Spec.Template)
	case *pytorchJob:
		for _, r := range v.Spec.PytorchReplicaSpecs {
			all = append(all, r.Template)
		}
	case *volcanoJob:
		for _, t := range v.Spec.Tasks {
			all = append(all, t.Template)
		}
	case *ascendJob:
		for _, r := range v.Spec.ReplicaSpecs {
			all = append(all, r.Template)
		}
	}

	return all
}
