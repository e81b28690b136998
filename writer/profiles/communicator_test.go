package profiles

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// The communicator of a collective that the trace calls by its operation alone is named where it can be
// known for certain, and not else: gloo runs those of each process group on two threads of their own.
func TestCommunicatorsWithoutAName(t *testing.T) {
	call := func(cat, name string, thread int) string {
		return fmt.Sprintf(`{"ph":"X","cat":%q,"name":%q,"pid":9,"tid":%d,"ts":%d,"dur":5,"args":{"stream":%d}}`, cat, name, thread, 100+thread, thread)
	}
	gloo := func(threads ...int) (calls []string) {
		for _, thread := range threads {
			calls = append(calls, call("user_annotation", "gloo:all_reduce", thread))
		}

		return calls
	}
	const (
		one = `{"pg_name":"0","pg_desc":"default_pg","ranks":[0,1,2,3]}`
		two = one + `,{"pg_name":"7","pg_desc":"undefined","ranks":[0,1]}`
	)

	for _, tt := range []struct {
		name, config string
		calls        []string
		want         string
	}{
		{"one group is listed", one, gloo(11, 15, 19), "0"},
		{"two groups are listed, and threads for both", two, gloo(31, 12, 30, 11), "0 7"},
		{"two groups are listed, a thread is missing", two, gloo(31, 12, 11), ""},
		{"two groups are listed, numbers of threads began anew", two, gloo(32000, 32001, 12, 11), ""},
		{"none is listed, threads of one", "", gloo(11, 12), onlyGroup},
		{"none is listed, threads of two", "", gloo(11, 12, 13), ""},
		{"none is listed, MPI", "", []string{call("user_annotation", "mpi:all_reduce", 11)}, ""},
		{"point to point is of no thread of a group", "", append(gloo(11, 12), call("user_annotation", "gloo:send", 1)), " " + onlyGroup},
		{"a stream of NCCL", "", []string{call("kernel", "ncclKernel_AllReduce_RING_LL_Sum_float", 20)}, onlyGroup},
		{"two streams of NCCL", "", []string{call("kernel", "ncclKernel_AllReduce_RING_LL_Sum_float", 20), call("kernel", "ncclKernel_AllReduce_RING_LL_Sum_float", 24)}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := open(t, folderOf(t, map[string]string{"rank0.json": `{"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 4, "pg_config": [` + tt.config +
				`]}, "traceEvents": [{"ph":"X","cat":"user_annotation","name":"ProfilerStep#3","pid":9,"tid":1,"ts":90,"dur":60000,"args":{}},` + strings.Join(tt.calls, ",") + `]}`}), Options{})
			names := map[string]bool{}
			for _, r := range got.Raws.AppendTo(nil) {
				if r.Kind == "Communication" {
					names[r.Group] = true
				}
			}

			if all := strings.Join(slices.Sorted(maps.Keys(names)), " "); all != tt.want || len(names) == 0 {
				t.Errorf("communicators %q, want %q", all, tt.want)
			}
		})
	}
}
