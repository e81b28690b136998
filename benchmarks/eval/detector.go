package main

import (
	"encoding/json"

	"laggard/analyzer/detect"
	"laggard/analyzer/frame"
	"laggard/schemas/verdict"
)

// detector is what is measured, with the thresholds it comes with.
func detector(f *frame.Frame) *verdict.Verdict {
	return detect.Analyze(f, detect.Default())
}

// thresholds prints the detector's configuration.
func thresholds() string {
	b, err := json.MarshalIndent(detect.Default(), "", " ")
	if err != nil {
		return err.Error()
	}
	return string(b)
}
