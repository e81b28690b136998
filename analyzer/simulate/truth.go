package simulate

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sort"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// Truth is the answer that a right verdict gives, in the schema of the labelled
// traces (truth.json).
type Truth struct {
	Name        string   `json:"name"`
	SlowNodes   []string `json:"slow_nodes"`
	SlowRanks   []int    `json:"slow_ranks"` // in the last attempt
	Cause       []string `json:"cause"`      // accepted causes
	Links       []string `json:"links"`      // groups
	Findings    []string `json:"findings"`   // kinds that must be there
	Events      []Event  `json:"events"`
	MustNotFlag []string `json:"must_not_flag"`
	OnsetStep   *int     `json:"onset_step"` // number of the step; null = no fault
	ExpectExit  []int    `json:"expect_exit"`

	// Onsets are the numbers of the steps at which each slow node's fault began.
	Onsets map[string]int `json:"onsets,omitempty"`

	Seed     uint64  `json:"seed"`
	Scenario string  `json:"scenario"`
	Seconds  float64 `json:"seconds"` // mean step time
	Impact   float64 `json:"impact"`  // share of step time lost to the faults since their onset
}

// Event is a problem that passes.
type Event struct {
	Node  string `json:"node"`
	Kind  string `json:"kind"`
	Ranks []int  `json:"ranks"`
}

// judge measures what the faults cost and says which exit codes are right: near
// the line between harmless and harmful either is.
func (t *Truth) judge(cfg Config) error {
	impact, err := Impact(cfg)
	if err != nil {
		return err
	}
	t.Impact = impact
	if len(t.SlowNodes)+len(t.Links) > 0 && impact < sureImpact && slices.Equal(t.ExpectExit, []int{verdict.ExitDegraded}) {
		t.ExpectExit = []int{verdict.ExitHealthy, verdict.ExitDegraded}
	}
	return nil
}

// sureImpact is the true impact above which a job must be called degraded: three
// times the command's default minimum.
const sureImpact = 0.03

// causes are the accepted causes of each kind of fault. Where experts exchange
// tokens within a forward pass, one range of all that exchange is as long as
// another, and what happens in it can't be told from what happens before it.
var causes = map[string][]string{
	Compute:    {verdict.Compute},
	Backward:   {verdict.Compute, verdict.HostDelay},
	Host:       {verdict.HostDelay},
	DataLoader: {verdict.DataLoader},
	SaveSlow:   {verdict.Checkpoint},
	NIC:        {verdict.Communication},
}

// truth sums up what was wrong.
func (j *job) truth() Truth {
	t := Truth{
		Name: j.cfg.Job, Seed: j.cfg.Seed, Scenario: j.cfg.Scenario, SlowNodes: []string{}, SlowRanks: []int{}, Cause: []string{},
		Links: []string{}, Findings: slices.Clone(j.cfg.Expect.Findings), Events: []Event{}, MustNotFlag: []string{},
		ExpectExit: j.cfg.Expect.Exit, Seconds: j.elapsed / 1e9 / float64(max(1, j.cfg.Steps)),
	}
	if t.Findings == nil {
		t.Findings = []string{}
	}
	if j.onset >= 0 {
		t.OnsetStep = &j.onset
	}
	for k := range j.effects {
		j.effects[k].tell(j, &t)
	}
	sort.Ints(t.SlowRanks)
	t.SlowRanks = slices.Compact(t.SlowRanks)
	t.innocent(j)
	if t.ExpectExit == nil {
		t.ExpectExit = []int{verdict.ExitHealthy}
		if len(t.SlowNodes)+len(t.Links) > 0 {
			t.ExpectExit = []int{verdict.ExitDegraded}
		}
	}
	return t
}

// tell adds one fault to the truth.
func (e *effect) tell(j *job, t *Truth) {
	node := j.hosts[e.Node].name
	switch {
	case e.Kind == Job:
		t.Findings = union(t.Findings, verdict.JobSlow)
	case e.Kind == Link:
		t.Links = union(t.Links, e.Group)
	case j.cfg.Expect.Event:
		t.Events = append(t.Events, Event{Node: node, Kind: "transient", Ranks: e.ranks})
	case j.cfg.Expect.Nodes == "none":
	default:
		t.SlowNodes = union(t.SlowNodes, node)
		if t.Onsets == nil {
			t.Onsets = map[string]int{}
		}
		if at, ok := t.Onsets[node]; (!ok || e.onset < at) && e.onset >= 0 {
			t.Onsets[node] = e.onset
		}
		t.SlowRanks = append(t.SlowRanks, e.ranks...)
		t.Cause = union(t.Cause, causes[e.Kind]...)
		if j.lay.shape.EP > 1 && (e.Kind == Compute || e.Kind == Backward || e.Kind == Host) {
			t.Cause = union(t.Cause, verdict.Compute, verdict.HostDelay)
		}
		if e.Kind == NIC {
			t.Links = union(t.Links, j.wideGroups(e.Node)...)
		}
	}
}

// wideGroups returns the names of the groups between hosts that have ranks on one.
func (j *job) wideGroups(host int) []string {
	var out []string
	for g := range j.lay.groups {
		gr := &j.lay.groups[g]
		if gr.wide && gr.dim != "world" && slices.ContainsFunc(gr.ranks, func(i int) bool { return j.lay.at[i].host == host }) {
			out = append(out, gr.name)
		}
	}
	return out
}

// innocent lists the nodes that may not be named.
func (t *Truth) innocent(j *job) {
	for h := range j.hosts {
		if !slices.Contains(t.SlowNodes, j.hosts[h].name) {
			t.MustNotFlag = append(t.MustNotFlag, j.hosts[h].name)
		}
	}
}

func union(to []string, words ...string) []string {
	for _, w := range words {
		if !slices.Contains(to, w) {
			to = append(to, w)
		}
	}
	return to
}

// save writes the truth as JSON.
func (t Truth) save(path string) error {
	b, err := json.MarshalIndent(t, "", " ")
	if err != nil {
		return fmt.Errorf("encode truth: %w", err)
	}
	if err := os.WriteFile(path, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("write truth: %w", err)
	}
	return nil
}
