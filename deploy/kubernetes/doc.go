// Package kubernetes holds the manifests: a base for what a cluster has once,
// components that add the agent to jobs, overlays that put them together, and
// complete examples.
//
// Invariant: every container of ours runs without root, capabilities, a writable
// root or the API's token; the two exceptions (the watcher's token, root's uid
// beside TaskD) stand in one file each and are named in the tests. The watcher has
// the rights that it uses, overlay by overlay, and no others.
//
// Caveat: there is no cluster in the tests. Manifests are decoded strictly into
// Kubernetes' own types (others' kinds into what schema_test.go says of them) and
// put together by kustomize's library, and the sidecar's containers run as real
// processes with their users, groups and paths.
package kubernetes
