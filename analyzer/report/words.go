package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// Tones are how serious a verdict is: they choose colour and symbol.
const (
	good    = "good"    // healthy
	note    = "note"    // healthy, with something to know
	warn    = "warn"    // suspects, or degraded without a cost worth acting on
	bad     = "bad"     // degraded
	unknown = "unknown" // undecided
)

// headline is the verdict in words.
type headline struct {
	Tone  string
	Label string // one word: "Degraded"
	Title string // one sentence
	More  string // one or two sentences, may be ""
}

// Headline is a verdict in one line, as the outputs begin, such as "Degraded: node-3
// slows this job down".
func Headline(v *verdict.Verdict) string {
	h := headlineOf(v)
	return h.Label + ": " + h.Title
}

// headlineOf says what was decided, most serious first.
func headlineOf(v *verdict.Verdict) headline {
	if !v.Decided {
		if off, ok := offNow(v); ok {
			return headline{unknown, "Off", sentence(capital(off)), "Nothing is called healthy that was not measured: `laggard trace on` records again."}
		}

		if mixed(v) {
			return headline{unknown, "Undecided", findingTitles[verdict.OverlappingRuns], "Nothing is judged of a mixture."}
		}

		return headline{unknown, "Undecided", "There is not enough data to decide.", whyUndecided(v)}
	}

	nodes, links := convicted(v)
	if !v.Healthy {
		return degraded(v, nodes, links)
	}

	if len(nodes)+len(links) > 0 {
		costs := " slow, costs "
		if len(nodes)+len(links) > 1 {
			costs = " slow, cost "
		}

		return headline{Tone: warn, Label: "Harmless", Title: culprits(nodes, links) + costs + Costs(v.JobImpact, v.JobImpactMax) + ".",
			More: "That is below the share of step time that makes a job unhealthy."}
	}

	if suspects := inState(v.Nodes, verdict.Suspect); len(suspects) > 0 {
		return headline{warn, "Suspect", "No node is degraded. " + culprits(suspects, nil) + " under suspicion.",
			"A suspicion is confirmed or dropped after some more steps; until then nothing needs to be done."}
	}

	if len(v.Findings) > 0 { // of equal ones the first
		f := slices.MaxFunc(v.Findings, func(a, b verdict.Finding) int { return cmp.Compare(a.JobImpact, b.JobImpact) })
		h := headline{note, "Healthy", "No node is to blame.", findingTitle(f)}
		if f.JobImpact > 0 { // what isn't known to cost anything is not said to cost nothing
			h.More += " " + cost(f.JobImpact, 0)
		}

		return h
	}

	h := headline{Tone: good, Label: "Healthy", Title: "No node slows this job down."}
	switch recovered := inState(v.Nodes, verdict.Recovered); {
	case len(recovered) > 0:
		h.More = culprits(recovered, nil) + " healthy again after a fault that has ended."
	case len(v.Events) > 0:
		h.More = fmt.Sprintf("%s passed without lasting harm.", count(len(v.Events), "short disturbance"))
	}

	return h
}

// degraded says who slows the job down: nodes before links, which may only show a node's fault.
func degraded(v *verdict.Verdict, nodes []verdict.Node, links []verdict.Link) headline {
	h := headline{Tone: bad, Label: "Degraded"}
	switch {
	case len(nodes) == 1:
		h.Title = plain(nodes[0].Node) + " slows this job down."
		h.More = nodeSentence(nodes[0]) + besides(nodes[0], links)
	case len(nodes) > 1:
		h.Title = count(len(nodes), "node") + " slow this job down."
		h.More = "They are " + names(called(nodes, nil), 8) + "."
	case len(links) == 1:
		h.Title = "The network of group " + plain(links[0].Group) + " slows this job down."
		h.More = linkSentence(links[0])
	case len(links) > 1:
		h.Title = count(len(links), "slow network group") + " slow this job down."
	default: // a verdict that is unhealthy without a culprit: say no more than that
		h.Title = "This job is not healthy."
	}

	if v.Most() > 0 && len(nodes)+len(unexplained(nodes, links)) > 1 {
		h.More = strings.TrimSpace(h.More + " Together they cost " + Costs(v.JobImpact, v.JobImpactMax) + " of step time.")
	}

	return h
}

// convicted returns the nodes and links that are degraded or intermittent.
func convicted(v *verdict.Verdict) (nodes []verdict.Node, links []verdict.Link) {
	nodes = slices.DeleteFunc(slices.Clone(v.Nodes), func(n verdict.Node) bool { return !verdict.Blamed(n.State) })
	links = slices.DeleteFunc(slices.Clone(v.Links), func(l verdict.Link) bool { return !verdict.Blamed(l.State) })
	return nodes, links
}

// unexplained returns the links that no convicted node is the reason of: a node of
// cause communication is what its slow groups share, so they are one fault with it.
func unexplained(nodes []verdict.Node, links []verdict.Link) []verdict.Link {
	return slices.DeleteFunc(slices.Clone(links), func(l verdict.Link) bool {
		return slices.ContainsFunc(nodes, func(n verdict.Node) bool {
			return n.Cause == verdict.Communication && slices.Contains(l.Nodes, n.Node)
		})
	})
}

// besides says what the links add to the sentence on the only node; "" without links.
func besides(n verdict.Node, links []verdict.Link) string {
	if len(links) == 0 {
		return ""
	}

	switch others := unexplained([]verdict.Node{n}, links); len(others) {
	case 0:
		return fmt.Sprintf(" It shows in %s.", count(len(links), "slow group"))
	case 1:
		return " Besides, there is a slow link."
	default:
		return fmt.Sprintf(" Besides, there are %s.", count(len(others), "slow link"))
	}
}

// inState returns the nodes in a state.
func inState(nodes []verdict.Node, state string) []verdict.Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n verdict.Node) bool { return n.State != state })
}

// called returns the names of nodes and links, as sentences have them.
func called(nodes []verdict.Node, links []verdict.Link) (list []string) {
	for _, n := range nodes {
		list = append(list, n.Node)
	}

	for _, l := range links {
		list = append(list, "group "+l.Group)
	}

	return list
}

// culprits names nodes and links, with the verb that goes with how many there are.
func culprits(nodes []verdict.Node, links []verdict.Link) string {
	list := called(nodes, links)
	is := " is"
	if len(list) > 1 {
		is = " are"
	}

	return names(list, 4) + is
}

// offNow returns what a verdict says of recording that is off everywhere.
func offNow(v *verdict.Verdict) (string, bool) {
	for _, f := range v.Findings {
		if f.Kind == verdict.RecordingOff && len(f.Ranks) == 0 && strings.Contains(f.Detail, " since ") {
			return f.Detail, true
		}
	}

	return "", false
}

// mixed reports whether the rows are of two runs: there is nothing to say of them.
func mixed(v *verdict.Verdict) bool {
	return !v.Decided && v.Steps.Analyzed == 0 && slices.ContainsFunc(v.Findings, func(f verdict.Finding) bool { return f.Kind == verdict.OverlappingRuns })
}

// whyUndecided repeats what the detector says is missing or, where it says nothing, counts what
// is there.
func whyUndecided(v *verdict.Verdict) string {
	var why []string
	for _, f := range v.Findings {
		if f.Kind == verdict.LowCoverage && f.Detail != "" {
			why = append(why, sentence(capital(plain(f.Detail))))
		}
	}

	if len(why) == 0 {
		why = append(why, fmt.Sprintf("%s analyzed, %s of the expected measurements are there.", count(v.Steps.Analyzed, "step"), percent(v.Coverage)))
	}

	return strings.Join(why, " ") + " Nothing is called healthy that was not measured."
}

// causeWords says what takes longer, to follow "needs 2.36× as long for".
var causeWords = map[string]string{
	verdict.Compute:       "computing",
	verdict.HostDelay:     "work on its host (launching, CPU, garbage collection)",
	verdict.DataLoader:    "the step, all of it in loading data",
	verdict.Checkpoint:    "saving checkpoints",
	verdict.Communication: "the same transfers",
	verdict.Unattributed:  "their part of the step (which part of it, the records don't tell)",
}

// advice says what to do about a cause.
var advice = map[string]string{
	verdict.Compute:       "Look at clocks, temperature, power cap and error counters of the device; move the job off it if they are off, or if nothing explains it.",
	verdict.HostDelay:     "Look at CPU load, NUMA binding, memory pressure and other processes on that host, and at garbage collection in the trainer.",
	verdict.DataLoader:    "Look at that node's path to storage: local disk, cache, mount, loader workers and their CPU share.",
	verdict.Checkpoint:    "Look at where that node saves to: disk, mount, free space, throughput.",
	verdict.Communication: "Look at that node's network ports: link speed, error and retry counters, cabling.",
	verdict.Unattributed:  "Switch Communication recording on (`laggard trace on`) to see where the time goes.",
}

// causeOf is a cause in words, a cause that is new here as it is.
func causeOf(cause string) string {
	if w, ok := causeWords[cause]; ok {
		return w
	}

	return plain(cause)
}

// nodeSentence says what is wrong with a node, since when, and what it costs.
func nodeSentence(n verdict.Node) string {
	who, needs := "It", "needs"
	switch {
	case len(n.Ranks) == 1:
		who = fmt.Sprintf("Its rank %d", n.Ranks[0])
	case len(n.Ranks) > 1:
		who, needs = "Its ranks "+rankList(n.Ranks, 6), "need"
	}

	when := "since " + stepAt(n.SinceStep, n.SinceTime)
	if n.State == verdict.Recovered {
		needs = "needed"
		if n.UntilStep > n.SinceStep {
			when = "from " + stepAt(n.SinceStep, n.SinceTime) + " to " + stepAt(n.UntilStep, n.UntilTime)
		}
	}

	s := fmt.Sprintf("%s %s %s as long as peers for %s, %s", who, needs, times(n.Slowdown), causeOf(n.Cause), when)
	if n.State == verdict.Degraded && n.Slowdown <= 1 { // its peers have been slow as well, in turns
		s = fmt.Sprintf("%s %s longer than peers in many steps, if not in the middle of the last ones, %s", who, needs, when)
	}

	if n.State == verdict.Intermittent {
		s += ", coming and going"
	}

	return s + ". " + cost(n.JobImpact, n.JobImpactMax)
}

// linkSentence says how slow a group's transfers are, where, since when, and what that costs.
func linkSentence(l verdict.Link) string {
	on := ""
	if len(l.Nodes) > 0 {
		on = " between " + names(l.Nodes, 4)
		if len(l.Nodes) == 1 {
			on = " at " + names(l.Nodes, 1)
		}
	}

	return fmt.Sprintf("Transfers of group %s%s take %s as long as those of like groups, since %s. %s", plain(l.Group), on, times(l.Slowdown), stepAt(l.SinceStep, l.SinceTime), cost(l.JobImpact, l.JobImpactMax))
}

// cost says what an impact means; most is 0 where it is known who waits for whom.
func cost(impact, most float64) string {
	if !(max(impact, most) > 0) {
		return "The job loses no time by it."
	}

	return "It costs the job " + Costs(impact, most) + " of its time."
}

// Costs is an impact in figures: where it isn't recorded who waits for whom, those
// between which it lies.
func Costs(impact, most float64) string {
	switch {
	case !(most > impact):
		return smallShare(impact)
	case impact >= 0.001:
		return "at most " + smallShare(most) + " and at least " + smallShare(impact)
	}

	return "at most " + smallShare(most)
}

// smallShare is percent, in words where a figure would read as nothing.
func smallShare(x float64) string {
	if x > 0 && x < 0.001 {
		return "less than 0.1%"
	}

	return percent(x)
}

// costCell is Costs for a column.
func costCell(impact, most float64) string {
	if most > impact {
		return "≤" + percent(most)
	}

	return percent(impact)
}

// findingTitles are what is wrong with a job that no node is to blame for, by kind of finding.
var findingTitles = map[string]string{
	verdict.WorkloadImbalance: "Replicas get uneven work.",
	verdict.StageImbalance:    "Pipeline stages are unevenly loaded.",
	verdict.JobSlow:           "The whole job became slower.",
	verdict.LowCoverage:       "Part of the job was not measured.",
	verdict.SharedStorage:     "Shared storage slows ranks in turn.",
	verdict.OverlappingRuns:   "Two runs are recorded under one job name.",
	verdict.RecordingOff:      "Part of the job was not recorded: the switch was off.",
}

// findingTitle is a finding as one sentence: of a kind that is new here the kind's own word.
func findingTitle(f verdict.Finding) string {
	if t, ok := findingTitles[f.Kind]; ok {
		return t
	}

	return sentence(capital(strings.ReplaceAll(plain(f.Kind), "-", " ")))
}

// worldSentence says that nobody told the size of the job; "" where somebody did.
func worldSentence(from string) string {
	if from != verdict.FromRanks {
		return ""
	}

	return "Nothing told the number of ranks: it is counted by the rank directories, so ranks above the highest may be missing. "
}

// rolesSentence says where roles came from; "" when it need not be said.
func rolesSentence(roles string) string {
	switch roles {
	case "inferred":
		return "Nothing told the parallel layout, so ranks were compared with ranks that behave alike: give --topology to be surer."
	case "":
		return ""
	}

	return "Parallel layout from " + plain(roles) + "."
}

// capital returns s with its first letter in upper case, where the first word is
// a plain one: "node-3 …" stays as it is.
func capital(s string) string {
	first, _, _ := strings.Cut(s, " ")
	if first == "" || strings.ContainsFunc(first, func(r rune) bool { return r < 'a' || r > 'z' }) {
		return s
	}

	return string(s[0]-'a'+'A') + s[1:]
}

// sentence returns s with a full stop.
func sentence(s string) string {
	if s == "" || strings.ContainsAny(s[len(s)-1:], ".!?") {
		return s
	}

	return s + "."
}
