package kubernetes_test

import "gopkg.in/yaml.v3"

// The part of the Kubernetes API that the manifests use, by the API's own names
// and types. A field that is misspelt, misplaced or of another type doesn't decode.

type object struct {
	APIVersion string   `yaml:"apiVersion"`
	Kind       string   `yaml:"kind"`
	Metadata   metadata `yaml:"metadata"`
}

type metadata struct {
	Name              string            `yaml:"name"`
	Namespace         string            `yaml:"namespace"`
	Labels            map[string]string `yaml:"labels"`
	Annotations       map[string]string `yaml:"annotations"`
	OwnerReferences   []ownerReference  `yaml:"ownerReferences"`
	CreationTimestamp *string           `yaml:"creationTimestamp"`
}

type ownerReference struct {
	APIVersion         string `yaml:"apiVersion"`
	Kind               string `yaml:"kind"`
	Name               string `yaml:"name"`
	UID                string `yaml:"uid"`
	Controller         bool   `yaml:"controller"`
	BlockOwnerDeletion bool   `yaml:"blockOwnerDeletion"`
}

type namespace struct {
	object `yaml:",inline"`
}

type configMap struct {
	object `yaml:",inline"`
	Data   map[string]string `yaml:"data"`
}

type serviceAccount struct {
	object                       `yaml:",inline"`
	AutomountServiceAccountToken *bool `yaml:"automountServiceAccountToken"`
}

type clusterRole struct {
	object `yaml:",inline"`
	Rules  []struct {
		APIGroups     []string `yaml:"apiGroups"`
		Resources     []string `yaml:"resources"`
		ResourceNames []string `yaml:"resourceNames"`
		Verbs         []string `yaml:"verbs"`
	} `yaml:"rules"`
}

type clusterRoleBinding struct {
	object  `yaml:",inline"`
	RoleRef struct {
		APIGroup string `yaml:"apiGroup"`
		Kind     string `yaml:"kind"`
		Name     string `yaml:"name"`
	} `yaml:"roleRef"`
	Subjects []struct {
		Kind      string `yaml:"kind"`
		Name      string `yaml:"name"`
		Namespace string `yaml:"namespace"`
	} `yaml:"subjects"`
}

type labelSelector struct {
	MatchLabels map[string]string `yaml:"matchLabels"`
}

type deployment struct {
	object `yaml:",inline"`
	Spec   struct {
		Replicas *int32 `yaml:"replicas"`
		Strategy struct {
			Type string `yaml:"type"`
		} `yaml:"strategy"`
		Selector labelSelector `yaml:"selector"`
		Template podTemplate   `yaml:"template"`
	} `yaml:"spec"`
}

type daemonSet struct {
	object `yaml:",inline"`
	Spec   struct {
		Selector       labelSelector `yaml:"selector"`
		UpdateStrategy struct {
			Type          string `yaml:"type"`
			RollingUpdate struct {
				MaxUnavailable string `yaml:"maxUnavailable"`
			} `yaml:"rollingUpdate"`
		} `yaml:"updateStrategy"`
		Template podTemplate `yaml:"template"`
	} `yaml:"spec"`
}

type jobSpec struct {
	BackoffLimit          *int32      `yaml:"backoffLimit"`
	ActiveDeadlineSeconds *int64      `yaml:"activeDeadlineSeconds"`
	CompletionMode        string      `yaml:"completionMode"`
	Completions           *int32      `yaml:"completions"`
	Parallelism           *int32      `yaml:"parallelism"`
	Template              podTemplate `yaml:"template"`
}

type job struct {
	object `yaml:",inline"`
	Spec   jobSpec `yaml:"spec"`
}

type cronJob struct {
	object `yaml:",inline"`
	Spec   struct {
		Schedule                   string `yaml:"schedule"`
		ConcurrencyPolicy          string `yaml:"concurrencyPolicy"`
		SuccessfulJobsHistoryLimit *int32 `yaml:"successfulJobsHistoryLimit"`
		FailedJobsHistoryLimit     *int32 `yaml:"failedJobsHistoryLimit"`
		JobTemplate                struct {
			Spec jobSpec `yaml:"spec"`
		} `yaml:"jobTemplate"`
	} `yaml:"spec"`
}

// replica is one entry of a PyTorchJob.
type replica struct {
	Replicas      *int32      `yaml:"replicas"`
	RestartPolicy string      `yaml:"restartPolicy"`
	Template      podTemplate `yaml:"template"`
}

type pytorchJob struct {
	object `yaml:",inline"`
	Spec   struct {
		NprocPerNode        string             `yaml:"nprocPerNode"`
		PytorchReplicaSpecs map[string]replica `yaml:"pytorchReplicaSpecs"`
	} `yaml:"spec"`
}

type volcanoJob struct {
	object `yaml:",inline"`
	Spec   struct {
		MinAvailable  int32               `yaml:"minAvailable"`
		SchedulerName string              `yaml:"schedulerName"`
		Plugins       map[string][]string `yaml:"plugins"`
		Policies      []struct {
			Event  string `yaml:"event"`
			Action string `yaml:"action"`
		} `yaml:"policies"`
		Tasks []struct {
			Name     string      `yaml:"name"`
			Replicas int32       `yaml:"replicas"`
			Template podTemplate `yaml:"template"`
		} `yaml:"tasks"`
	} `yaml:"spec"`
}

type podMonitor struct {
	object `yaml:",inline"`
	Spec   struct {
		NamespaceSelector struct {
			Any bool `yaml:"any"`
		} `yaml:"namespaceSelector"`
		Selector            labelSelector `yaml:"selector"`
		PodTargetLabels     []string      `yaml:"podTargetLabels"`
		PodMetricsEndpoints []struct {
			Port        string `yaml:"port"`
			Path        string `yaml:"path"`
			Interval    string `yaml:"interval"`
			Relabelings []struct {
				Action       string   `yaml:"action"`
				SourceLabels []string `yaml:"sourceLabels"`
				TargetLabel  string   `yaml:"targetLabel"`
			} `yaml:"relabelings"`
		} `yaml:"podMetricsEndpoints"`
	} `yaml:"spec"`
}

type podTemplate struct {
	Metadata metadata `yaml:"metadata"`
	Spec     podSpec  `yaml:"spec"`
}

type podSpec struct {
	ServiceAccountName            string `yaml:"serviceAccountName"`
	AutomountServiceAccountToken  *bool  `yaml:"automountServiceAccountToken"`
	TerminationGracePeriodSeconds *int64 `yaml:"terminationGracePeriodSeconds"`
	RestartPolicy                 string `yaml:"restartPolicy"`
	SecurityContext               struct {
		RunAsNonRoot        bool   `yaml:"runAsNonRoot"`
		FSGroup             *int64 `yaml:"fsGroup"`
		FSGroupChangePolicy string `yaml:"fsGroupChangePolicy"`
	} `yaml:"securityContext"`
	Tolerations []struct {
		Operator string `yaml:"operator"`
	} `yaml:"tolerations"`
	InitContainers []container `yaml:"initContainers"`
	Containers     []container `yaml:"containers"`
	Volumes        []volume    `yaml:"volumes"`
}

type container struct {
	Name          string   `yaml:"name"`
	Image         string   `yaml:"image"`
	RestartPolicy string   `yaml:"restartPolicy"`
	Command       []string `yaml:"command"`
	Args          []string `yaml:"args"`
	Env           []envVar `yaml:"env"`
	Ports         []struct {
		Name          string `yaml:"name"`
		ContainerPort int32  `yaml:"containerPort"`
	} `yaml:"ports"`
	StartupProbe   *probe `yaml:"startupProbe"`
	ReadinessProbe *probe `yaml:"readinessProbe"`
	LivenessProbe  *probe `yaml:"livenessProbe"`
	Resources      struct {
		Requests map[string]string `yaml:"requests"`
		Limits   map[string]string `yaml:"limits"`
	} `yaml:"resources"`
	SecurityContext *securityContext `yaml:"securityContext"`
	VolumeMounts    []struct {
		Name      string `yaml:"name"`
		MountPath string `yaml:"mountPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
}

type securityContext struct {
	RunAsNonRoot             *bool  `yaml:"runAsNonRoot"`
	RunAsUser                *int64 `yaml:"runAsUser"`
	RunAsGroup               *int64 `yaml:"runAsGroup"`
	ReadOnlyRootFilesystem   *bool  `yaml:"readOnlyRootFilesystem"`
	AllowPrivilegeEscalation *bool  `yaml:"allowPrivilegeEscalation"`
	Capabilities             *struct {
		Drop []string `yaml:"drop"`
	} `yaml:"capabilities"`
	SeccompProfile *struct {
		Type string `yaml:"type"`
	} `yaml:"seccompProfile"`
}

type envVar struct {
	Name      string `yaml:"name"`
	Value     string `yaml:"value"`
	ValueFrom *struct {
		FieldRef *struct {
			FieldPath string `yaml:"fieldPath"`
		} `yaml:"fieldRef"`
		ConfigMapKeyRef *keyRef `yaml:"configMapKeyRef"`
		SecretKeyRef    *keyRef `yaml:"secretKeyRef"`
	} `yaml:"valueFrom"`
}

type keyRef struct {
	Name     string `yaml:"name"`
	Key      string `yaml:"key"`
	Optional bool   `yaml:"optional"`
}

type probe struct {
	HTTPGet struct {
		Path string `yaml:"path"`
		Port string `yaml:"port"`
	} `yaml:"httpGet"`
	PeriodSeconds    int32 `yaml:"periodSeconds"`
	FailureThreshold int32 `yaml:"failureThreshold"`
}

type volume struct {
	Name     string `yaml:"name"`
	EmptyDir *struct {
		Medium    string `yaml:"medium"`
		SizeLimit string `yaml:"sizeLimit"`
	} `yaml:"emptyDir"`
	HostPath *struct {
		Path string `yaml:"path"`
		Type string `yaml:"type"`
	} `yaml:"hostPath"`
	ConfigMap *struct {
		Name     string `yaml:"name"`
		Optional bool   `yaml:"optional"`
	} `yaml:"configMap"`
	PersistentVolumeClaim *struct {
		ClaimName string `yaml:"claimName"`
		ReadOnly  bool   `yaml:"readOnly"`
	} `yaml:"persistentVolumeClaim"`
}

// kustomization is a kustomization.yaml of either kind.
type kustomization struct {
	APIVersion string   `yaml:"apiVersion"`
	Kind       string   `yaml:"kind"`
	Namespace  string   `yaml:"namespace"`
	Resources  []string `yaml:"resources"`
	Components []string `yaml:"components"`
	Patches    []struct {
		Path   string `yaml:"path"`
		Target struct {
			Kind          string `yaml:"kind"`
			Name          string `yaml:"name"`
			LabelSelector string `yaml:"labelSelector"`
		} `yaml:"target"`
	} `yaml:"patches"`
	Images []struct {
		Name   string `yaml:"name"`
		NewTag string `yaml:"newTag"`
	} `yaml:"images"`
}

// kinds is which type a document is decoded into.
var kinds = map[string]func() any{
	"v1/Namespace":      func() any { return new(namespace) },
	"v1/ConfigMap":      func() any { return new(configMap) },
	"v1/ServiceAccount": func() any { return new(serviceAccount) },
	"rbac.authorization.k8s.io/v1/ClusterRole":        func() any { return new(clusterRole) },
	"rbac.authorization.k8s.io/v1/ClusterRoleBinding": func() any { return new(clusterRoleBinding) },
	"apps/v1/Deployment":                              func() any { return new(deployment) },
	"apps/v1/DaemonSet":                               func() any { return new(daemonSet) },
	"batch/v1/Job":                                    func() any { return new(job) },
	"batch/v1/CronJob":                                func() any { return new(cronJob) },
	"kubeflow.org/v1/PyTorchJob":                      func() any { return new(pytorchJob) },
	"batch.volcano.sh/v1alpha1/Job":                   func() any { return new(volcanoJob) },
	"monitoring.coreos.com/v1/PodMonitor":             func() any { return new(podMonitor) },
}

// pods returns the pod templates of a decoded document.
func pods(v any) []podTemplate {
	switch v := v.(type) {
	case *deployment:
		return []podTemplate{v.Spec.Template}
	case *daemonSet:
		return []podTemplate{v.Spec.Template}
	case *job:
		return []podTemplate{v.Spec.Template}
	case *cronJob:
		return []podTemplate{v.Spec.JobTemplate.Spec.Template}
	case *pytorchJob:
		var all []podTemplate
		for _, r := range v.Spec.PytorchReplicaSpecs {
			all = append(all, r.Template)
		}
		return all
	case *volcanoJob:
		var all []podTemplate
		for _, t := range v.Spec.Tasks {
			all = append(all, t.Template)
		}
		return all
	}
	return nil
}

// document is one decoded YAML document.
type document struct {
	file  string
	head  object
	value any
	node  yaml.Node
}
