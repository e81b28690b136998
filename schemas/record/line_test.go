package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sample returns a record with a value that is not "absent" in every field.
func sample() Record {
	return Record{
		Kind: Communication, Side: Device, Open: true, Step: 120, Start: 1753000000000000001, Dur: 5400000,
		HostStart: 1753000000000000000, HostDur: 7, Exposed: 0, Ring: 3, Seq: 812, Thread: 4711,
		Op: "allreduce", OpRaw: "HcclAllreduce", Group: "dp0", Peer: 0, Count: 4194304, Dtype: "bf16",
		Bytes: 8388608, Tokens: 9, Path: "/ckpt/1.pt",
	}
}

func TestAppendLine_Golden(t *testing.T) {
	r := New(Communication)
	r.Step, r.Start, r.Dur, r.Ring, r.Seq = 120, 1753000000000000001, 5400000, 1, 812
	r.Op, r.Group, r.Count, r.Dtype = "allreduce", "dp0", 4194304, "bf16"
	const want = `{"kind":"Communication","step":120,"start":1753000000000000001,"dur":5400000,"ring":1,"seq":812,"op":"allreduce","group":"dp0","count":4194304,"dtype":"bf16"}` + "\n"
	if got := string(r.AppendLine(nil)); got != want {
		t.Errorf("AppendLine\n got %s\nwant %s", got, want)
	}

	s := sample()
	const full = `{"kind":"Communication","step":120,"start":1753000000000000001,"dur":5400000,"side":"device","host_start":1753000000000000000,"host_dur":7,"exposed":0,"ring":3,"seq":812,"thread":4711,"op":"allreduce","op_raw":"HcclAllreduce","group":"dp0","peer":0,"count":4194304,"dtype":"bf16","bytes":8388608,"tokens":9,"path":"/ckpt/1.pt","open":true}` + "\n"
	if got := string(s.AppendLine(nil)); got != full {
		t.Errorf("AppendLine\n got %s\nwant %s", got, full)
	}
}

func TestParser_ControlLines(t *testing.T) {
	var p Parser
	meta := Meta{
		Format: Format, Segment: "8d1f000000000001", Job: "j<1>", Rank: 3, Incarnation: 0x0f3a000000000001, WorldSize: 8,
		LocalRank: 3, Node: "node-0", PID: 4000, StartedNs: 5, BootID: "b",
		Groups: []Group{{Dim: "dp", Name: "dp0", Size: 2, Ranks: []int{0, 4}}}, Writer: "python/1",
	}
	loss := Loss{Ring: 3, Kind: "Communication", Reason: RingFull, Count: 12, First: 1, Last: 2}
	sw := Switch{At: 7, Default: true}
	end := End{At: 9, How: "killed", Emitted: map[string]uint64{"Step": 12}}
	for _, c := range []struct {
		line []byte
		want LineType
	}{
		{meta.AppendLine(nil), LineMeta},
		{loss.AppendLine(nil), LineLoss},
		{sw.AppendLine(nil), LineSwitch},
		{end.AppendLine(nil), LineEnd},
		{[]byte(`{"meta":{"segment":"8d1f000000000001"},"next":{"3":812}}`), LineMeta},
		{[]byte(`{"Kind":1,"Flag":16}`), LineTaskD},
		{[]byte(` { "Kind" : 1 }`), LineTaskD},
		{[]byte(`{"future":{}}`), LineUnknown},
		{[]byte(`{}`), LineUnknown},
	} {
		got, err := p.Parse(c.line)
		if err != nil || got != c.want {
			t.Errorf("Parse(%s) = %v, %v; want %v", c.line, got, err, c.want)
		}

		if c.want == LineMeta && c.line[len(c.line)-1] == '\n' {
			if d := cmp.Diff(meta, p.Meta); d != "" {
				t.Error(d)
			}
		}
	}

	if d := cmp.Diff(loss, p.Loss); d != "" {
		t.Error(d)
	}

	if d := cmp.Diff(sw, p.Switch); d != "" {
		t.Error(d)
	}

	if d := cmp.Diff(end, p.End); d != "" {
		t.Error(d)
	}

	for _, bad := range []string{"", "x", "[1]", "null", `{"meta":5}`, `{"loss":{"count":-1}}`, `{"kind":"Step"`, `{"kind":1,"start":1,"dur":1}`, `{"kind":"Step"}`, `{"end":{}`} {
		if _, err := p.Parse([]byte(bad)); err == nil {
			t.Errorf("Parse(%q) accepts", bad)
		}
	}
}

func TestParser_StringsStayValid(t *testing.T) {
	var p Parser
	line := []byte(`{"kind":"tiny","start":1,"dur":2,"op":"allreduce","group":"g\u00e9"}`)
	if _, err := p.Parse(line); err != nil {
		t.Fatal(err)
	}

	first := p.Record
	for i := range line {
		line[i] = 'x'
	}

	for i := range 5000 {
		if _, err := p.Parse(fmt.Appendf(nil, `{"kind":"k%d","start":1,"dur":2,"op":"o%d","group":"\n%d"}`, i, i, i)); err != nil {
			t.Fatal(err)
		}
	}

	if first.Name != "tiny" || first.Op != "allreduce" || first.Group != "gé" {
		t.Errorf("strings changed: %+v", first)
	}
}

func TestParser_AllocatesNothing(t *testing.T) {
	lines, _ := benchLines()
	var p Parser
	parse := func() {
		for _, l := range lines {
			if _, err := p.Parse(l); err != nil {
				t.Fatal(err)
			}
		}
	}
	parse()
	if n := testing.AllocsPerRun(10, parse); n != 0 {
		t.Errorf("%v allocations for %d canonical lines, want 0", n, len(lines))
	}

	r := sample()
	buf := r.AppendLine(nil)
	if n := testing.AllocsPerRun(10, func() { buf = r.AppendLine(buf[:0]) }); n != 0 {
		t.Errorf("AppendLine allocates %v times", n)
	}

	if n := testing.AllocsPerRun(10, func() { BaseOp("allreduce") }); n != 0 {
		t.Errorf("BaseOp of a base word allocates %v times", n)
	}
}

// TestParser_DiffersNever is the differential test: the scanner against
// encoding/json over generated lines. LAGGARD_LINES sets the number, LAGGARD_SEED
// the seed. R22.
func TestParser_DiffersNever(t *testing.T) {
	n := 200_000
	if s := os.Getenv("LAGGARD_LINES"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}

	seed := rand.Uint64()
	if s := os.Getenv("LAGGARD_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}

	t.Logf("%d lines, LAGGARD_SEED=%d", n, seed)
	workers := runtime.GOMAXPROCS(0)
	results := make([]counts, workers)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			g := generator{rand.New(rand.NewPCG(seed, uint64(i)))}
			var p Parser
			for lines := 0; lines < n/workers; {
				for _, line := range g.lines() {
					if msg := results[i].disagreement(&p, line); msg != "" {
						t.Errorf("LAGGARD_SEED=%d\n%s", seed, msg)
						return
					}

					lines++
				}
			}
		})
	}

	wg.Wait()
	var c counts
	for _, r := range results {
		c.accepted += r.accepted
		c.canonical += r.canonical
	}

	t.Logf("%+v", c)
	if c.canonical < n/20 || c.accepted < n/4 || c.accepted > n*3/4 {
		t.Errorf("the generator is lopsided: %+v", c)
	}
}

// counts tells what the generated lines were like.
type counts struct{ accepted, canonical int }

// disagreement says how Parse and the plain codec differ on a record line, "" when
// they don't. The canonical path is also held alone.
func (c *counts) disagreement(p *Parser, line []byte) string {
	want, wantErr := plainParse(line)
	if wantErr == nil {
		c.accepted++
	}

	bare := bytes.TrimSuffix(line, []byte("\n"))
	if has(bare, 0, `{"kind":"`) && p.canonical(bare) {
		c.canonical++
		if wantErr != nil || p.Record != want {
			return fmt.Sprintf("canonical on %q\n got %+v\nwant %+v, %v", line, p.Record, want, wantErr)
		}
	}

	typ, err := p.Parse(line)
	switch {
	case typ != LineRecord: // another first key, or no JSON at all
		if wantErr == nil && (err != nil || firstKeyIs(line, "kind")) {
			return fmt.Sprintf("Parse(%q) = %v, %v; the plain codec reads %+v", line, typ, err, want)
		}
	case (err == nil) != (wantErr == nil):
		return fmt.Sprintf("Parse(%q): %v; the plain codec: %v", line, err, wantErr)
	case err == nil && p.Record != want:
		return fmt.Sprintf("Parse(%q)\n got %+v\nwant %+v", line, p.Record, want)
	}

	return ""
}

// firstKeyIs reports whether the first key of a JSON object is key.
func firstKeyIs(line []byte, key string) bool {
	d := json.NewDecoder(bytes.NewReader(line))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return false
	}

	t, err := d.Token()
	return err == nil && t == key
}

// TestAppendLine_AgreesWithPlain holds the writer to encoding/json and to the parser.
func TestAppendLine_AgreesWithPlain(t *testing.T) {
	g := generator{rand.New(rand.NewPCG(7, 7))}
	var p Parser
	for range 20000 {
		r := g.record()
		got := r.AppendLine(nil)
		if bytes.Count(got, []byte("\n")) != 1 || !json.Valid(got) {
			t.Fatalf("AppendLine gives %q", got)
		}

		a, err := plainParse(got)
		if err != nil {
			t.Fatalf("plain codec on %q: %v", got, err)
		}

		b, err := plainParse(plainLine(r))
		if err != nil {
			t.Fatalf("plain codec: %v", err)
		}

		if a != b {
			t.Fatalf("AppendLine and encoding/json differ for %+v\n got %s\nwant %s", r, got, plainLine(r))
		}

		if typ, err := p.Parse(got); err != nil || typ != LineRecord || p.Record != a {
			t.Fatalf("Parse(%q) = %v, %v, %+v; want %+v", got, typ, err, p.Record, a)
		}
	}
}

func FuzzParser(f *testing.F) {
	r := sample()
	f.Add(r.AppendLine(nil))
	f.Add([]byte(`{"kind":"Step","dur":2,"start":1,"x":[{"a":1.5e3},"\ud83d\ude00"]}`))
	f.Add([]byte(`{ "kind" : "S\u0074ep" , "start": 1, "dur": -0, "start": null }`))
	f.Add([]byte(`{"meta":{"incarnation":"00000000000000ff"}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		var p Parser
		var c counts
		if msg := c.disagreement(&p, line); msg != "" {
			t.Fatal(msg)
		}
	})
}

// TestParser_Escapes: words with escapes or text beyond ASCII are read on the canonical
// path, a known kind that is written so is that kind, and what is no string is no word.
func TestParser_Escapes(t *testing.T) {
	for _, c := range []struct {
		line string
		want bool
	}{
		{`{"kind":"St\u0065p","step":1,"start":5,"dur":1}`, true},
		{`{"kind":"r\u00f6llout","start":5,"dur":1,"group":"größe \"0\""}`, true},
		{`{"kind":"FP","start":5,"dur":1,"path":"/a/very/long/path/that/ends/with/\ud83d\ude00"}`, true},
		{`{"kind":"FP","start":5,"dur":1,"path":"/a\\"}`, true},
		{`{"kind":"FP","start":5,"dur":1,"path":"/a\"}`, false},
		{`{"kind":"FP","start":5,"dur":1,"path":"/a\q"}`, false},
		{"{\"kind\":\"FP\",\"start\":5,\"dur\":1,\"path\":\"/a\x01\"}", false},
		{`{"kind":"FP","start":5,"dur":1,"path":"/a`, false},
	} {
		var p Parser
		if got := p.canonical([]byte(c.line)); got != c.want {
			t.Errorf("canonical(%s) = %v", c.line, got)
		}

		if s := new(counts).disagreement(&p, []byte(c.line)); s != "" {
			t.Error(s)
		}
	}
}

// TestParser_WordsOfOthers: a parser whose words others number, too, does not take an escape for
// a word that has the same bytes, and a word that is too long is left to them.
func TestParser_WordsOfOthers(t *testing.T) {
	var w Words
	w.Add(`gr\u00f6`)
	w.Add("a\x01")
	p := Parser{Words: &w}
	for _, c := range []struct {
		line, group string
		numbered    bool
	}{
		{`{"kind":"FP","start":1,"dur":2,"group":"gr\u00f6"}`, "grö", false},
		{`{"kind":"FP","start":1,"dur":2,"group":"gr\\u00f6"}`, `gr\u00f6`, false},
		{`{"kind":"FP","start":1,"dur":2,"group":"dp0"}`, "dp0", true},
		{`{"kind":"FP","start":1,"dur":2,"group":""}`, "", true},
		{`{"kind":"FP","start":1,"dur":2,"group":"` + strings.Repeat("g", longestWord+1) + `"}`, strings.Repeat("g", longestWord+1), false},
	} {
		if _, err := p.Parse([]byte(c.line)); err != nil || p.Record.Group != c.group || p.Numbered != c.numbered {
			t.Errorf("%s: %v, group %q, numbered %t", c.line, err, p.Record.Group, p.Numbered)
		}

		if c.numbered && w.Text(p.Numbers.Group) != c.group {
			t.Errorf("%s: group is word %d of %q", c.line, p.Numbers.Group, w.List())
		}
	}

	if _, err := p.Parse([]byte("{\"kind\":\"FP\",\"start\":1,\"dur\":2,\"group\":\"a\x01\"}")); err == nil {
		t.Error("a control character in a word is accepted")
	}
}

// TestParser_InternsNothingWrong: a parser that has interned the words of other lines reads
// a line as a new one does.
func TestParser_InternsNothingWrong(t *testing.T) {
	g := generator{rand.New(rand.NewPCG(7, 13))}
	var p Parser
	var line []byte
	for i := range 20_000 {
		r := g.record()
		line = r.AppendLine(line[:0])
		if g.IntN(10) == 0 { // one byte of it is another one, or missing
			at := g.IntN(len(line))
			line[at] = line[g.IntN(len(line))]
			line = line[:len(line)-g.IntN(2)*g.IntN(2)]
		}

		var fresh Parser
		want, wantErr := fresh.Parse(line)
		got, err := p.Parse(line)
		if got != want || (err == nil) != (wantErr == nil) || err == nil && want == LineRecord && p.Record != fresh.Record {
			t.Fatalf("line %d %q\n got %v, %v, %+v\nwant %v, %v, %+v", i, line, got, err, p.Record, want, wantErr, fresh.Record)
		}

		if n, r := p.Numbers, &p.Record; err == nil && want == LineRecord && p.Numbered &&
			(p.Words.Text(n.Name) != r.Name || p.Words.Text(n.Op) != r.Op || p.Words.Text(n.OpRaw) != r.OpRaw ||
				p.Words.Text(n.Group) != r.Group || p.Words.Text(n.Dtype) != r.Dtype || p.Words.Text(n.Path) != r.Path) {
			t.Fatalf("line %d %q is numbered %+v, want %+v", i, line, n, p.Words.Number(r))
		}
	}
}
