package profiles

import (
	"math"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/schemas/row"
)

// Two real ranks, as text and as a database (of another run): sums and order are those that the
// profiler itself wrote beside, in step_trace_time.csv and analysis.db.
func TestAscend(t *testing.T) {
	type sums struct{ all, exposed float64 } // Communication and Communication(Not Overlapped), ms
	for _, form := range []struct {
		here, beside string
		group        string
		want         [2]sums
	}{
		{"testdata/ascend/level0", "ascend/text/level0", "868", [2]sums{{85.516889, 81.515607}, {68.60571, 64.616114}}},
		{"testdata/ascend/db/level0", "ascend/db/level0", "90.91.105.46%enp189s0f0_60000_0_1736407029972691", [2]sums{{89.880576, 85.881122}, {93.993858, 90.000781}}},
	} {
		folders := []string{form.here}
		if path, ok := sample(t, form.beside); ok {
			folders = append(folders, path)
		}

		for _, folder := range folders {
			got := open(t, folder, Options{})
			if got.Format.Name != "ascend" || len(got.Steps) != 2 || len(got.Unread) > 0 {
				t.Fatalf("%s: %s, %d steps, not read: %v", folder, got.Format.Name, len(got.Steps), got.Unread)
			}

			for i, want := range form.want {
				s := got.Steps[i]
				if s.Step != 50 || int(s.Rank) != i || math.Abs(ms(s.CommNs)-want.all) > 0.001 || math.Abs(ms(s.ExposedNs)-want.exposed) > 0.001 {
					t.Errorf("%s: rank %d, step %d: %.6f ms of communication, %.6f exposed; want %.6f, %.6f", folder, s.Rank, s.Step, ms(s.CommNs), ms(s.ExposedNs), want.all, want.exposed)
				}

				if s.Flags&row.FlagHostOnly != 0 {
					t.Errorf("rank %d has no device", s.Rank)
				}
			}

			for _, r := range got.Raws.AppendTo(nil) {
				if r.Kind == "Communication" && (r.Op != "allreduce" || r.Group != form.group || r.Dtype != "fp32" || r.Count == 0 || r.Bytes != 4*r.Count || r.HostStartNs == 0 || r.HostStartNs > r.StartNs) {
					t.Errorf("%+v", r)
				}
			}
		}
	}

	if path, ok := sample(t, "ascend/text/level1"); ok {
		if got := open(t, path, Options{}); len(got.Steps) != 2 || len(got.Unread) > 0 || math.Abs(ms(got.Steps[0].ExposedNs)-101.963203) > 0.001 {
			t.Errorf("level 1: %+v, not read: %v", got.Steps, got.Unread)
		}
	}
}

func ms(ns int64) float64 { return float64(ns) / 1e6 }

// Without its trace a rank has the sums of its steps.
func TestAscendSums(t *testing.T) {
	const table = "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage\n50,8000.5,100,20,120,30,1\n51,8000,100,20,120,30,1\n"
	got := open(t, folderOf(t, map[string]string{
		"a_ascend_pt/ASCEND_PROFILER_OUTPUT/step_trace_time.csv": table, "a_ascend_pt/profiler_info_3.json": `{"config": {"rank_id": {}}, "rank_id": 3}`,
	}), Options{})
	if len(got.Steps) != 2 || got.Steps[0].Rank != 3 || got.Steps[0].StepNs != 8130500 || got.Steps[0].ExposedNs != 100e3 || got.Steps[0].CommNs != 120e3 || got.Steps[0].SelfNs != 8030500 {
		t.Errorf("%+v", got.Steps)
	}

	if len(got.Notes) != 1 || !strings.Contains(got.Notes[0].Cause, "no times") {
		t.Errorf("%v", got.Notes)
	}
}

func TestMindStudio(t *testing.T) {
	got := open(t, "testdata/ascend/cluster_analysis_output", Options{})
	if got.Format.Name != "mindstudio" || len(got.Steps) != 16 {
		t.Fatalf("%s, %d steps", got.Format.Name, len(got.Steps))
	}

	var stages, computing [2]float64
	for _, s := range got.Steps {
		stages[s.Rank/8] += ms(s.SelfNs) / 8
		computing[s.Rank/8] += ms(s.FPNs) / 8
		if s.Step != 2 || s.ExposedNs <= 0 || s.CommNs < s.ExposedNs || s.FPNs <= 0 || s.FPCount != 1 {
			t.Errorf("%+v", s)
		}
	}

	if r := got.Rows.Ranks[9]; strings.Join(r.Groups, " ") != "pp:pp-1:1:2 dp:dp-8:1:8" {
		t.Errorf("rank %d: groups %v", r.Rank, r.Groups)
	}

	if math.Abs(computing[0]-75.5) > 0.1 || math.Abs(computing[1]-79.9) > 0.1 {
		t.Errorf("the stages compute for %.2f and %.2f ms", computing[0], computing[1])
	}

	if math.Abs(stages[0]-75.5-67) > 2 || math.Abs(stages[1]-80-85) > 2 {
		t.Errorf("own time of the stages %.1f and %.1f ms", stages[0], stages[1])
	}
}

func TestDamagedTables(t *testing.T) {
	const head = "Step,Type,Index,Computing,Communication(Not Overlapped),Overlapped,Communication,Free\n"
	for _, c := range []struct{ text, want string }{
		{"Step,Type,Index,Computing,Other\n", `no column "Communication(Not Overlapped)"`},
		{head + "2,rank,0,1,2,3,4,5\n2,rank,1,1,2", "line 3: it is cut; it is left out"},
		{head + "2,rank,0,1,2,3,4,5\n2,rank,1,x,2,3,4,5\n", `line 3: "x" is no time`},
		{head + "two,rank,0,1,2,3,4,5\n", `"two" is no step`},
		{head + "2,rank,0,1,2,3,4,5\n2,\"rank", "line 3:"},
	} {
		tree, err := Open(t.Context(), folderOf(t, map[string]string{"cluster_step_trace_time.csv": c.text}), Options{})
		var said string
		if err != nil {
			said = err.Error()
		} else {
			said = strings.Join(Sentences(tree.Unread), "\n")
			tree.Close()
		}

		if !strings.Contains(said, c.want) || !strings.Contains(said, "cluster_step_trace_time.csv") {
			t.Errorf("%q: it does not say %q: %s", c.text, c.want, said)
		}
	}
}
