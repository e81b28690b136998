// Package kubernetes holds the manifests: a base for what a cluster has once,
// components that add the agent to jobs, overlays that put them together, and
// complete examples.
//
// Invariant: every container of ours runs without root, capabilities, a writable
// root or the API's token; the two exceptions (the token of what tells the cluster,
// root's uid beside TaskD) are named in the tests. The watcher has the rights that it
// uses, overlay by overlay, and no others.
//
// Caveat: there is no cluster in this folder's tests. Manifests are decoded strictly
// into Kubernetes' own types (others' kinds into what schema_test.go says of them) and
// put together by kustomize's library, and the sidecar's containers run as real
// processes with their users, groups and paths. What an API server has to say of the
// overlays and of the watcher is tested on a real one, in apiserver.
package kubernetes
