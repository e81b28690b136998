// Package image holds the Dockerfile: a static binary on distroless.
//
// Invariant: whatever stage is built runs as uid 65532 with the one entry point
// that the manifests count on. Caveat: nothing is built in the tests; they read.
package image
