// Package trace is the switch: which kinds the recorders record, from TaskD's
// five words to the word in each ring folder.
//
// Invariant: two booleans are all there is. The four light kinds go together
// and can't be off while Communication is on; Communication alone may be
// toggled. Whoever asks for something else through an interface with an answer
// is refused with the rule (Words.State); a file, which has nobody to answer to,
// is collapsed as TaskD collapses it (ParseFile).
//
// At start a recorder takes its state from LAGGARD_TRACE (Parse): "on", "off",
// or the words of what is on, separated by commas, as in
// "Step,FP,SaveCheckpoint,DataLoader"; unset means on. Any light word turns the
// four on, CommunicationOperator (or Communication) turns all five on.
package trace

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/laggard-dev/laggard/collector/ring"
	"github.com/laggard-dev/laggard/schemas/spelling"
)

const (
	communicationOperator = "CommunicationOperator"
	on                    = "on"
	off                   = "off"
)

// allWords are spelt as TaskD does, in the order of Words.
var allWords = []string{communicationOperator, "Step", "SaveCheckpoint", "FP", "DataLoader"}

// State is what the recorders act on.
type State struct {
	Light         bool `json:"default"` // Step, FP, SaveCheckpoint, DataLoader
	Communication bool `json:"communication"`
}

// On is everything on, the state at start.
var On = State{true, true}

// FromBits returns the state of a switch word.
func FromBits(word uint32) State {
	return State{word&ring.LightOn != 0, word&ring.CommunicationOn != 0}
}

// Bits returns the state as the low bits of a switch word, FORMAT.md section 2.1.
func (s State) Bits() uint32 {
	var b uint32
	if s.Light {
		b |= ring.LightOn
	}

	if s.Communication {
		b |= ring.CommunicationOn
	}

	return b
}

// String returns "on", "off", or what is on.
func (s State) String() string {
	switch {
	case s.Light && s.Communication:
		return on
	case s.Light:
		return "Step,FP,SaveCheckpoint,DataLoader"
	case s.Communication:
		return communicationOperator
	}

	return off
}

// Words returns the five words of the state.
func (s State) Words() Words {
	light, comm := word(s.Light), word(s.Communication)
	return Words{comm, light, light, light, light}
}

// word spells a boolean as the words do.
func word(b bool) string {
	if b {
		return on
	}

	return off
}

// Words is the switch as ConfigMaps, the gRPC service and the command line spell
// it: each word "on" or "off". The JSON is that of TaskD's switch file. A recorder knows two of
// them apart, Communication and the light four, which are switched together.
type Words struct {
	CommunicationOperator string `json:"CommunicationOperator"`
	Step                  string `json:"Step"`
	SaveCheckpoint        string `json:"SaveCheckpoint"`
	FP                    string `json:"FP"`
	DataLoader            string `json:"DataLoader"`
}

// problem is one thing that is wrong with a switch, in words for the person who wrote
// it: value is "" when the word itself is wrong, rule what holds instead, nearest the
// known word or value that was probably meant, "" none.
func problem(word, value, rule, nearest string) error {
	s := word
	if value != "" {
		s += fmt.Sprintf(": %q", value)
	}

	s += ": " + rule
	if nearest != "" {
		s += fmt.Sprintf(" (did you mean %q?)", nearest)
	}

	return errors.New(s)
}

const (
	ruleValue    = `must be "on" or "off"`
	ruleTogether = "Step, SaveCheckpoint, FP and DataLoader are switched together: give all four the same value"
	ruleFloor    = "Step, SaveCheckpoint, FP and DataLoader can't be off while CommunicationOperator is on: the detector compares steps"
	ruleKnown    = "is not one of CommunicationOperator, Step, SaveCheckpoint, FP, DataLoader"
)

// State checks the words and returns the state they ask for. The error joins what is
// wrong with each.
func (w Words) State() (State, error) {
	values := []string{w.CommunicationOperator, w.Step, w.SaveCheckpoint, w.FP, w.DataLoader}
	var errs []error
	for i, v := range values {
		errs = append(errs, checkValue(allWords[i], v))
	}

	if err := errors.Join(errs...); err != nil {
		return State{}, err
	}

	for i, v := range values {
		if i > 0 && v != w.Step {
			return State{}, problem(allWords[i], v, ruleTogether, "")
		}
	}

	if w.CommunicationOperator == on && w.Step == off {
		return State{}, problem(communicationOperator, on, ruleFloor, "")
	}

	return State{w.Step == on, w.CommunicationOperator == on}, nil
}

// checkValue refuses what is neither "on" nor "off", in small letters as TaskD wants them.
func checkValue(name, value string) error {
	switch value {
	case on, off:
		return nil
	case "":
		return problem(name, "", ruleValue+", it is empty", "")
	}

	return problem(name, value, ruleValue, spelling.Nearest(value, []string{on, off}))
}

// Parse reads the grammar of LAGGARD_TRACE. An error names the word; the state
// is then On: a typo must not turn the recording off.
func Parse(text string) (State, error) {
	var s State
	var errs []error
	for w := range strings.SplitSeq(text, ",") {
		switch w = strings.TrimSpace(w); {
		case strings.EqualFold(w, on):
			s = On
		case strings.EqualFold(w, off):
			if strings.Contains(text, ",") {
				errs = append(errs, problem(w, "", `"off" stands alone; to turn some kinds off, list the others`, ""))
			}
		case strings.EqualFold(w, communicationOperator), strings.EqualFold(w, "Communication"):
			s = On // the four can't be off then
		case slices.ContainsFunc(allWords, func(k string) bool { return strings.EqualFold(k, w) }):
			s.Light = true
		case w == "" && text == "":
			s = On
		default:
			errs = append(errs, problem(w, "", "is none of on, off, "+strings.Join(allWords, ", "), spelling.Nearest(w, append([]string{on, off}, allWords...))))
		}
	}

	if errs != nil {
		return On, fmt.Errorf("parse LAGGARD_TRACE: %w", errors.Join(errs...))
	}

	return s, nil
}
