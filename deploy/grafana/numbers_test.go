package grafana_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/analyzer/report"
)

// number reads a value: JSON quotes 64-bit integers.
func number(v any) float64 {
	switch v := v.(type) {
	case float64:
		return v
	case string:
		f, err := strconv.ParseFloat(v, 64)
		if err == nil {
			return f
		}
	}

	return math.NaN()
}

// row finds the line whose first columns have these texts, and returns a column.
func (r reply) cell(column string, keys ...string) float64 {
	c := slices.IndexFunc(r.Meta, func(m struct{ Name, Type string }) bool { return m.Name == column })
	for _, line := range r.Data {
		match := c >= 0
		for i, k := range keys {
			text, _ := line[i].(string)
			match = match && text == k
		}

		if match {
			return number(line[c])
		}
	}

	return math.NaN()
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*math.Max(1, math.Abs(b)) }

// numbers holds what the panels show to the rows and to the verdicts.
func numbers(t *testing.T, s *store, r map[string]reply) {
	want := func(name string, got, want float64) {
		t.Helper()
		if !near(got, want) {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
	var steps []int64
	for i := range s.node.Steps {
		steps = append(steps, s.node.Steps[i].StepNs)
	}

	slices.Sort(steps)
	want("median step", r["laggard-job/Median step/node"].cell("step"), float64(steps[len(steps)/2])/1e9)
	if got, err := strconv.Atoi(strings.TrimSpace(s.query("SELECT count() FROM steps WHERE job = '" + bigJob + "'"))); err != nil || got != bigRanks*bigSteps {
		t.Errorf("big job has %d rank-steps, %v; want %d", got, err, bigRanks*bigSteps)
	}

	want("coverage", r["laggard-job/Coverage/big"].cell("coverage"), 1)
	for name, job := range map[string]string{"big": bigJob, "node": nodeJob, "link": linkJob} {
		v := s.verdicts[job]
		want("impact of "+job, r["laggard-job/Impact/"+name].cell("impact"), math.Trunc(v.Most()*1e6)/1e6)
		if got := r["laggard-job/Verdict/"+name].Data[0][0]; got != report.Headline(v) {
			t.Errorf("%s: the page says %q, the verdict %q", job, got, report.Headline(v))
		}

		if got := len(r["laggard-job/Causes/"+name].Data); got != len(v.Nodes)+len(v.Links) {
			t.Errorf("%s: %d causes, want %d", job, got, len(v.Nodes)+len(v.Links))
		}

		for _, n := range v.Nodes {
			want("slowdown of "+n.Node, r["laggard-job/Causes/"+name].cell("slowdown", n.Node, n.State, n.Cause), n.Slowdown)
		}

		for _, l := range v.Links {
			want("slowdown of "+l.Group, r["laggard-job/Causes/"+name].cell("slowdown", l.Group, l.State, "link"), l.Slowdown)
		}
	}

	fleetNumbers(t, s, r, want)
	culpritIsSeen(t, s, r)
	accountAddsUp(t, s, r, want)
	demoNumbers(t, s, r)
	alertsFire(t, s, r)
}

func fleetNumbers(t *testing.T, s *store, r map[string]reply, want func(string, float64, float64)) {
	want("jobs", r["laggard-fleet/Jobs with data/every"].cell("jobs"), 4)
	want("degraded nodes", r["laggard-fleet/Degraded nodes/every"].cell("nodes"), 2)
	want("slow links", r["laggard-fleet/Slow links/every"].cell("links"), float64(len(s.verdicts[linkJob].Links)))
	total := 0.0
	for name, job := range map[string]string{"node": nodeJob, "big": bigJob, "link": linkJob} {
		lost := s.lostByHand(t, job)
		want("node-hours lost by "+job, r["laggard-job/Node-hours lost/"+name].cell("lost"), lost)
		want("the fleet's row of "+job, r["laggard-fleet/Jobs/every"].cell("lost", job), lost)
		total += lost
	}

	want("node-hours lost", r["laggard-fleet/Node-hours lost/every"].cell("lost"), total)
}

// lostByHand adds up node-hours of a job, from word to word.
func (s *store) lostByHand(t *testing.T, job string) float64 {
	t.Helper()
	job = " WHERE job = '" + job + "'"
	end := number(strings.TrimSpace(s.query("SELECT max(start_ns) FROM steps" + job)))
	nodes := number(strings.TrimSpace(s.query("SELECT uniqExact(node) FROM ranks" + job)))
	lost, ns, share := 0.0, end, 0.0
	for _, line := range strings.Split(strings.TrimSpace(s.query("SELECT at_ns, impact_ppm FROM verdicts"+job+` AND node = '' AND "group" = '' AND finding = '' ORDER BY at_ns`)), "\n") {
		f := strings.Split(line, "\t")
		lost += share * math.Max(0, number(f[0])-ns)
		ns, share = number(f[0]), number(f[1])/1e6
	}

	return nodes * (lost + share*(end-ns)) / 3.6e12
}

// culpritIsSeen asks whether an eye on the page finds who is to blame.
func culpritIsSeen(t *testing.T, s *store, r map[string]reply) {
	for name, job := range map[string]string{"big": bigJob, "node": nodeJob} {
		n := s.verdicts[job].Nodes[0]
		slowest := r["laggard-job/Ranks against their role/"+name]
		if got := int(number(slowest.Data[0][0])); !slices.Contains(n.Ranks, got) {
			t.Errorf("%s: the slowest rank is %d, the verdict names %v", job, got, n.Ranks)
		}

		if ratio := r["laggard-rank/Ratio/"+name].cell("ratio"); ratio < 1.1 {
			t.Errorf("%s: the culprit's ratio is %v, want 1.1 and more", job, ratio)
		}
	}

	heat := r["laggard-job/Own time against the role, rank by rank/big"]
	sums, cells := map[string]float64{}, map[string]int{}
	for _, line := range heat.Data {
		sums[line[1].(string)] += number(line[2])
		cells[line[1].(string)]++
	}

	if len(sums) != 128 {
		t.Errorf("heat map of 1,024 ranks has %d rows, want 128", len(sums))
	}

	worst := ""
	for label := range sums {
		if worst == "" || sums[label]/float64(cells[label]) > sums[worst]/float64(cells[worst]) {
			worst = label
		}
	}

	// Rank 299 is tensor place 3 of stage 2; its row begins with a neighbour of its role.
	if !strings.HasPrefix(worst, "pp02 tp03 r0") || cells[worst] < 100 {
		t.Errorf("the reddest row is %q with %d cells, want the culprit's", worst, cells[worst])
	}
}

func accountAddsUp(t *testing.T, s *store, r map[string]reply, want func(string, float64, float64)) {
	ledger := r["laggard-pipeline/Ledger/every"]
	want("emitted", ledger.cell("emitted", bigJob), bigRanks*2*51_000)
	want("dropped", ledger.cell("dropped", bigJob), 24)
	want("in flight", ledger.cell("in_flight", bigJob), 0)
	emitted := 0.0
	for i := range s.node.Ledger {
		if s.node.Ledger[i].State == "emitted" {
			emitted += float64(s.node.Ledger[i].Records)
		}
	}

	want("emitted by the small job", ledger.cell("emitted", nodeJob), emitted)
	for _, line := range r["laggard-pipeline/Coverage/big"].Data {
		if number(line[2]) != 1 {
			t.Errorf("coverage is %v, nothing is missing", line)
		}
	}

	want("lost", r["laggard-pipeline/Lost/every"].cell("lost"), 24)
}

// alertsFire holds each alert to the jobs that it should name at each moment: nodes and
// links by what was said last of the jobs that stored steps in the last hour, and
// nothing where nothing is wrong.
func alertsFire(t *testing.T, s *store, r map[string]reply) {
	rules, fired := alerts(t), map[string]bool{}
	for moment, at := range s.moments() {
		decided := func(what string) []string {
			return strings.Fields(s.query(fmt.Sprintf("SELECT DISTINCT job FROM verdicts WHERE %s != '' AND finding = '' AND at_ns <= %d AND job IN (SELECT job FROM steps WHERE start_ns BETWEEN %d AND %[2]d)",
				what, at.UnixNano(), at.Add(-time.Hour).UnixNano())))
		}
		for title, want := range map[string][]string{
			"Slow node": decided("node"), "Slow link": decided(`"group"`), "Records lost": {bigJob}, "Job without data": {hungJob}, "Shipping lag": nil,
		} {
			firing := map[string]bool{}
			i := slices.IndexFunc(rules, func(a alert) bool { return a.Title == title })
			reply := r["alerts/"+title+"/"+moment]
			for _, line := range reply.Data {
				if number(line[len(line)-1]) > rules[i].above() {
					firing[line[0].(string)] = true
				}
			}

			for _, job := range want {
				if fired[title+" "+job] = true; !firing[job] {
					t.Errorf("alert %s does not fire for %s, %s: %v", title, job, moment, reply.Data)
				}
			}

			if len(firing) != len(want) && moment == "now" {
				t.Errorf("alert %s fires for %v, want %v", title, firing, want)
			}
		}
	}

	for _, must := range []string{"Slow node " + bigJob, "Slow link " + linkJob, "Records lost " + bigJob, "Job without data " + hungJob} {
		if !fired[must] {
			t.Errorf("no moment in which the alert fires: %s", must)
		}
	}
}
