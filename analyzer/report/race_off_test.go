//go:build !race

package report

// raceDetector tells that every memory access costs ten times as much.
const raceDetector = false
