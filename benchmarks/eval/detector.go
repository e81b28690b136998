package main

import (
	"laggard/analyzer/frame"
	"laggard/schemas/verdict"
)

// detector is what is measured.
var detector = func(*frame.Frame) *verdict.Verdict { return verdict.New("") }

// thresholds prints the detector's configuration.
func thresholds() string { return "none" }
