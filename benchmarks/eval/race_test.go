//go:build race

package main

// slow is set under the race detector, which makes a case ten times as long.
const slow = true

func init() { parityRecords /= 4 }
