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
package apiserver
