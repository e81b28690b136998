// Package examples holds whole jobs that laggard watches: pytorch, an ordinary
// DDP script on 4 ranks, and dataparallel, the workers of `laggard demo`, whose
// recovery_test.go takes them through every recovery that MindCluster knows.
//
// Its tests run them for real and time what they do, so `make test` runs them
// alone, after everything else. Caveat: on a busy machine the machine's own
// contention is a straggler.
package examples
