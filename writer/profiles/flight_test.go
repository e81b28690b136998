package profiles

import (
	"strings"
	"testing"
)

// Real dumps of four ranks on gloo, of which rank 2 does more work before each of 16 reductions of
// gradients: who called them last is in the ranges, for these clocks are one host's.
func TestFlight(t *testing.T) {
	got := open(t, "testdata/flight", Options{})
	if got.Format.Name != "flight" || got.Tree.Ranks != 4 || len(got.Steps) != 4 || len(got.Unread) > 0 {
		t.Fatalf("%s: %d ranks, %d steps, not read: %v", got.Format.Name, got.Tree.Ranks, len(got.Steps), got.Unread)
	}

	if words := strings.Join(Sentences(got.Notes), "\n"); !strings.Contains(words, "of 38 not when they ended") || !strings.Contains(words, "marks no step") {
		t.Error(words)
	}

	for _, s := range got.Steps {
		if s.StepNs < 1800e6 || s.StepNs > 2600e6 { // from the first call to the last
			t.Errorf("rank %d: a step of %d ns", s.Rank, s.StepNs)
		}
	}

	ops := map[string]int{}
	calls := map[uint32][]int64{}
	for _, r := range got.Raws.AppendTo(nil) {
		if r.Kind != "Communication" {
			continue
		}

		ops[r.Op]++
		if r.Open != 1 || r.DurNs != 0 || r.Group != "0" || r.Side == "device" {
			t.Fatalf("%+v", r)
		}

		if r.Op == "allreduce" && r.Count == 263168 {
			calls[r.Rank] = append(calls[r.Rank], r.StartNs)
			if r.Dtype != "fp32" || r.Bytes != 4*263168 || r.OpRaw != "all_reduce" {
				t.Fatalf("%+v", r)
			}
		}
	}

	if ops["allreduce"] != 4*32 || ops["allgather"] != 4 || ops["broadcast"] != 4*4 || ops["barrier"] != 4 {
		t.Errorf("%v", ops)
	}

	last := 0
	for n := range 16 {
		if s := calls[2][n]; s > calls[0][n] && s > calls[1][n] && s > calls[3][n] {
			last++
		}
	}

	if last != 16 {
		t.Errorf("rank 2 is the last in %d of 16", last)
	}

	for _, r := range got.Rows.Ranks {
		if r.WorldSize != 4 || len(r.GroupRanks) != 1 || len(r.GroupRanks[0]) != 4 {
			t.Errorf("%+v", r)
		}
	}
}

// What NCCL's recorder says, by its documented fields: the device's length where timing is on, else until
// the watchdog found it done; and what hangs stays open.
func TestFlightOfNCCL(t *testing.T) {
	got := open(t, folderOf(t, map[string]string{"nccl_trace_rank_1.json": `{"version":"2.10","pg_config":{"0":{"name":"0","desc":"default_pg","ranks":"[0, 1]"},"1":{"name":"1","desc":"mesh_tp","ranks":"[0, 1]"}},"entries":[
{"profiling_name":"nccl:all_reduce","process_group":["1","mesh_tp"],"input_sizes":[[4,8],[]],"input_dtypes":["BFloat16"],"output_sizes":[[4,8],[]],"time_created_ns":1000000000,"time_discovered_completed_ns":1009000000,"duration_ms":2.5,"state":"completed","retired":true},
{"profiling_name":"nccl:send 1->0","process_group":["0","default_pg"],"input_sizes":[[3]],"input_dtypes":["Float"],"time_created_ns":1010000000,"time_discovered_completed_ns":1019000000,"state":"completed","is_p2p":true},
{"profiling_name":"nccl:_all_gather_base","process_group":["0","default_pg"],"input_sizes":[[1]],"output_sizes":[[2]],"input_dtypes":["Half"],"time_created_ns":1020000000,"time_discovered_completed_ns":null,"state":"started","retired":false}]}`}), Options{})
	var said []string
	for _, r := range got.Raws.AppendTo(nil) {
		if r.Kind == "Communication" {
			said = append(said, strings.Join([]string{r.Op, r.Group, r.Dtype, r.Side}, " "))
			switch r.Op {
			case "allreduce":
				if r.StartNs != 1006500000 || r.DurNs != 2500000 || r.HostStartNs != 1e9 || r.Count != 33 || r.Bytes != 66 {
					t.Errorf("%+v", r)
				}
			case "send":
				if r.Peer != 0 || r.DurNs != 9000000 || r.Open != 0 {
					t.Errorf("%+v", r)
				}
			case "allgather":
				if r.Open != 1 || r.Count != 2 {
					t.Errorf("%+v", r)
				}
			}
		}
	}

	if words := strings.Join(said, ", "); words != "allreduce 1 bf16 device, send 0 fp32 host, allgather 0 fp16 host" {
		t.Error(words)
	}

	if r := got.Rows.Ranks[0]; r.Rank != 1 || r.WorldSize != 2 || strings.Join(r.Groups, " ") != ":0:1:2 tp:1:1:2" {
		t.Errorf("%+v", r)
	}
}

// A pickle is told for what it is, with what to do, and is not loaded.
func TestFlightPickle(t *testing.T) {
	_, err := Open(t.Context(), "testdata/flight-pickle", Options{})
	if err == nil || !strings.Contains(err.Error(), "nccl_trace_rank_0: a pickle") || !strings.Contains(err.Error(), "_dump_nccl_trace_json()") {
		t.Errorf("%v", err)
	}
}
