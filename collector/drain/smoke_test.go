package drain_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"laggard/collector/drain"
	"laggard/collector/recorder"
	"laggard/schemas/record"
	"laggard/writer/segment"
)

func TestSmoke(t *testing.T) {
	run, dir := filepath.Join(t.TempDir(), "run"), t.TempDir()
	rec, err := recorder.Open(recorder.Options{RunDir: run, Meta: record.Meta{Job: "j", Rank: 2, WorldSize: 4}})
	if err != nil {
		t.Fatal(err)
	}
	th := rec.Thread()
	ar, g, path := rec.Intern("HcclAllreduce"), rec.Intern("dp0"), rec.Intern("/ckpt/1")
	for i := range 3 {
		s := th.Step(int64(i), 100)
		fp := th.Begin(record.FP, recorder.Attr{})
		c := th.Begin(record.Communication, recorder.Op(ar, g, 1024, record.DtypeCode("bf16")).To(1))
		c.EndExposed(10)
		fp.End()
		k := th.Begin(record.SaveCheckpoint, recorder.Attr{Text: path, Value: 99})
		k.End()
		s.End()
	}
	hang := th.Begin(record.FP, recorder.Attr{})
	_ = hang
	d, err := drain.New(drain.Options{RunDir: run, Node: "n0", Open: func(m record.Meta) (drain.Writer, error) {
		return segment.Open(filepath.Join(dir, m.Job, strconv.Itoa(m.Rank)), m, segment.Options{})
	}})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		p, err := d.Pass()
		fmt.Println(p, err, d.Idle(), d.Hanging(0))
	}
	rec.Close()
	p, err := d.Pass()
	fmt.Println(p, err, d.Idle(), d.Stats())
	fs, _ := filepath.Glob(dir + "/*/*/*")
	for _, f := range fs {
		b, _ := os.ReadFile(f)
		fmt.Println(f)
		fmt.Print(string(b))
	}
	es, _ := os.ReadDir(run)
	fmt.Println(es)
}
