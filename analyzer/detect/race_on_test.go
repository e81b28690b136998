//go:build race

package detect

// raced: the race detector makes everything ten times slower, and there is one
// goroutine; a short form shows that it is so.
const raced = true
