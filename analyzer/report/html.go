package report

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

//go:embed page/page.html
var pageHTML string

//go:embed page/page.css
var pageCSS string

//go:embed page/*.js
var scripts embed.FS

// pageJS is the page's one script: its parts in the order in which they build on each
// other. They share a scope.
var pageJS = joined("page", "words", "colours", "map", "topology", "charts")

// joined puts the named scripts of the page together.
func joined(names ...string) string {
	var all strings.Builder
	for _, name := range names {
		part, err := scripts.ReadFile("page/" + name + ".js")
		if err != nil {
			panic("BUG: " + err.Error())
		}

		all.Write(part)
	}

	return all.String()
}

// pageTemplate is the page. What it shows in words goes through the same functions as the table's and
// explain's, so that the three never say a thing in two ways.
var pageTemplate = template.Must(template.New("page").Option("missingkey=error").Funcs(template.FuncMap{
	"times": times, "percent": percent, "seconds": seconds, "evidence": evidenceName, "plain": plain,
	"ranks": func(r []int) string { return rankList(r, 12) }, "names": func(l []string) string { return names(l, 8) },
	"title": findingTitle, "sentence": func(s string) string { return sentence(capital(plain(s))) },
	"ratio": ratioOf, "event": eventSentence, "count": count,
	"advice": func(c string) string { return advice[c] }, "node": nodeSentence, "link": linkSentence, "at": at,
	"share":    func(e verdict.Evidence) string { return shareBar(e.Value, e.Value, e.Peers) },
	"peers":    func(e verdict.Evidence) string { return shareBar(e.Peers, e.Value, e.Peers) },
	"positive": func(x float64) bool { return x > 0 }, "finite": finite,
	"sure": sure, "costs": Costs, "clock": clock, "mark": func(tone string) string { return toneMarks[tone] },
	"arrivals": arrivalRows, "caveat": arrivalsCaveat, "minus": func(a, b int) int { return a - b },
}).Parse(pageHTML))

// HTML writes one offline page: no network, no font, no library; everything is
// inside, and a policy in the page forbids the rest. It stays below 5 MB for
// 10,000 ranks and any number of steps (long jobs are drawn with several steps to
// a column; the page says so). Browsers draw it that can inflate (DecompressionStream, in all
// since 2023); older ones show its words and tables. Of a frame that is nil only words are shown,
// and a step of a few ranks where somebody asked for one: it may be nil.
func HTML(w io.Writer, v *verdict.Verdict, f *frame.Frame, step *frame.Timeline, made string) error {
	p := pictureOf(f)
	layers, stepTimes := p.layers(v), p.times()
	var medians []float64
	if len(layers) > 0 && layers[0].Ratio {
		medians = p.medians(layers[0].values, onset(v, p))
	}

	data, err := pageData(v, p, layers, stepTimes, medians)
	if err != nil {
		return err
	}

	verdictJSON := &bytes.Buffer{}
	if err := JSON(verdictJSON, v); err != nil {
		return err
	}

	slowdown, since := "", ""
	if len(layers) > 0 {
		slowdown, since = strings.ToLower(layers[0].Name)+" against peers", "of all steps"
		if from := onset(v, p); from > 0 {
			since = fmt.Sprintf("since step %d", p.Columns[from].Step)
		}
	}

	// What comes from the job is escaped by html/template but for Data, CSS and JS, which say that they are safe: they
	// are ours, embedded, and the data is json.Marshal's, which escapes <, > and &.
	view := map[string]any{
		"Verdict": complete(v), "Headline": headlineOf(v), "Scope": scope(v), "Made": made,
		"Facts": facts(v, p, stepTimes), "Limits": limits(v, p), "JSON": verdictJSON.String(),
		"Slowest":    slowest(v, p, medians, 10),
		"Slowdown":   slowdown, // what the first layer shows, in words
		"Since":      since,    // which steps the medians are of
		"HasPicture": len(layers) > 0, "Timeline": pictureOfStep(step),
		"Several": len(v.Nodes)+len(v.Links) > 1, // culprits: each has its own sentence
		"Ranks":   len(p.drawn), "Steps": len(p.Columns), "Stages": stageCount(p),
		"Data": template.JS(data), "CSS": template.CSS(pageCSS), "JS": template.JS(pageJS), //nolint:gosec // see above
		// The policy goes by hashes, so that nothing that slips into the page can run.
		"Policy": fmt.Sprintf("default-src 'none'; style-src %s; script-src %s; base-uri 'none'; form-action 'none'", hashOf(pageCSS), hashOf(pageJS)),
	}

	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, view); err != nil {
		return fmt.Errorf("render report: %w", err)
	}

	if _, err := w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}

	return nil
}

// hashOf is the source expression of a Content-Security-Policy that lets just this text run.
func hashOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// ratioOf is how many times as long as its peers' a value is, a dash without peers.
func ratioOf(e verdict.Evidence) string {
	if !(e.Peers > 0) {
		return "–"
	}

	return times(e.Value / e.Peers)
}

// shareBar is the length of a bar, in percent of the longer of the two.
func shareBar(x, a, b float64) string {
	most := math.Max(finite(a), finite(b))
	if !(most > 0) || !(x > 0) {
		return "0"
	}

	return fmt.Sprintf("%.1f", 100*x/most)
}

// slowest returns the n ranks with the highest median in the first layer as words (the class of the line,
// rank, node, stage, replica, slowdown): the heat map can't be read by a screen reader, nor to two digits.
func slowest(v *verdict.Verdict, p *picture, medians []float64, n int) (rows [][]string) {
	at := make([]int, 0, len(medians))
	for i, m := range medians {
		if !math.IsNaN(m) {
			at = append(at, i)
		}
	}

	slices.SortStableFunc(at, func(a, b int) int { return cmp.Compare(medians[b], medians[a]) })
	named := map[int]bool{}
	for _, n := range v.Nodes {
		for _, r := range n.Ranks {
			named[r] = true
		}
	}

	for _, i := range at[:min(n, len(at))] {
		r, class, replica := p.drawn[i], "", "–"
		if named[r.number] {
			class = "marked"
		}

		if r.replica >= 0 {
			replica = fmt.Sprint(r.replica)
		}

		rows = append(rows, []string{class, fmt.Sprint(r.number), plain(r.node), fmt.Sprint(r.stage), replica, times(medians[i])})
	}

	return rows
}

// onset is the index of the first step in which a culprit of now was slow or, where there
// is none, a suspect; 0 without either.
func onset(v *verdict.Verdict, p *picture) int {
	nodes, links := convicted(v)
	if len(nodes)+len(links) == 0 {
		nodes = inState(v.Nodes, verdict.Suspect)
	}

	since := earliest(nodes, links)
	if since == math.MaxInt64 {
		return 0
	}

	return min(p.stepIndex(since), max(0, len(p.Columns)-1))
}

// earliest is the first step in which one of them was slow, the highest number for none.
func earliest(nodes []verdict.Node, links []verdict.Link) int64 {
	since := int64(math.MaxInt64)
	for _, n := range nodes {
		since = min(since, n.SinceStep)
	}

	for _, l := range links {
		since = min(since, l.SinceStep)
	}

	return since
}

// medians returns the median of each rank over the steps from a column on, in the order they are drawn.
func (p *picture) medians(values [][]float32, from int) []float64 {
	medians := make([]float64, len(p.drawn))
	var own []float64
	for i, r := range p.drawn {
		own = own[:0]
		for _, v := range values[r.row][from:] {
			if v == v {
				own = append(own, float64(v))
			}
		}

		medians[i] = median(own)
	}

	return medians
}

// stageCount is the number of pipeline stages, 0 where none is known.
func stageCount(p *picture) int {
	most := 0
	for _, r := range p.drawn {
		most = max(most, r.stage+1)
	}

	return most
}

// dataOfPage is what the page's script reads.
type dataOfPage struct {
	Ranks    []int     `json:"ranks"`
	Node     []int     `json:"node"` // index into Nodes, per rank
	Nodes    []string  `json:"nodes"`
	Stage    []int     `json:"stage"`
	Replica  []int     `json:"replica"`
	From     []int64   `json:"from"` // per column: first and last step
	To       []int64   `json:"to"`
	Times    []float64 `json:"times"` // per column: job's step time, s; -1 unknown
	Layers   []layer   `json:"layers"`
	Medians  []float64 `json:"medians"` // per rank, of the first layer; 0 unknown
	Culprits []mark    `json:"culprits"`
	Charts   []chart   `json:"charts"`
}

// mark is a rank that the verdict names.
type mark struct {
	Row   int    `json:"row"`
	State string `json:"state"`
	Since int    `json:"since"` // column, -1 none
}

// mark adds the ranks that the verdict names, where there are columns to mark them in.
func (d *dataOfPage) mark(v *verdict.Verdict, p *picture, columns int) {
	for _, n := range v.Nodes {
		for _, r := range n.Ranks {
			if i := p.rowOf(r); i >= 0 && columns > 0 {
				d.Culprits = append(d.Culprits, mark{Row: i, State: n.State, Since: markAt(p, columns, n.SinceStep)})
			}
		}
	}
}

// pageData is what the page's script draws, as JSON. Names come from the job and pass through plain.
func pageData(v *verdict.Verdict, p *picture, layers []layer, stepTimes, medians []float64) ([]byte, error) {
	columns, err := encodeLayers(p, layers)
	if err != nil {
		return nil, err
	}

	d := dataOfPage{
		Ranks: []int{}, Node: []int{}, Nodes: []string{}, Stage: []int{}, Replica: []int{}, From: []int64{}, To: []int64{},
		Times: []float64{}, Layers: layers, Medians: []float64{}, Culprits: []mark{}, Charts: chartsOf(v, p),
	}
	index := map[string]int{}
	for _, r := range p.drawn {
		at, ok := index[r.node]
		if !ok {
			at = len(d.Nodes)
			index[r.node] = at
			d.Nodes = append(d.Nodes, plain(r.node))
		}

		d.Ranks, d.Node = append(d.Ranks, r.number), append(d.Node, at)
		d.Stage, d.Replica = append(d.Stage, r.stage), append(d.Replica, r.replica)
	}

	for i := range columns {
		from, to := bin(i, columns, len(p.Columns))
		d.From, d.To = append(d.From, p.Columns[from].Step), append(d.To, p.Columns[to-1].Step)
		t := -1.0 // JSON has no NaN
		if m := median(known(stepTimes[from:to])); m >= 0 {
			t = significant(m, 5)
		}

		d.Times = append(d.Times, t)
	}

	for _, m := range medians {
		if math.IsNaN(m) {
			m = 0
		}

		d.Medians = append(d.Medians, round(m, 4))
	}

	d.mark(v, p, columns)
	out, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("encode report: %w", err)
	}

	return out, nil
}
