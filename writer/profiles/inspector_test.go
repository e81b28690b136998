package profiles

import (
	"fmt"
	"strings"
	"testing"
)

// inspectedBy lists the collectives that a folder's logs hold, by rank.
func inspectedBy(t *testing.T, at string) (calls []string, got opened) {
	t.Helper()
	got = open(t, at, Options{})
	if got.Format.Name != "inspector" {
		t.Fatalf("taken for %s", got.Format.Name)
	}

	for _, r := range got.Raws.AppendTo(nil) {
		if r.Kind != "Communication" {
			continue
		}

		if r.Step != 0 || r.Side != "device" {
			t.Errorf("%+v", r)
		}

		calls = append(calls, fmt.Sprintf("%d %s %s +%d %d %d peer %d", r.Rank, r.Op, r.Group, r.StartNs/1000-1748030377000000, r.DurNs/1000, r.Bytes, r.Peer))
	}

	return calls, got
}

// Logs in the form v4.3, verbose, of two processes whose clocks differ by 5 s, made by the plugin's
// documents and source: no file of a real job was to be had.
func TestInspector(t *testing.T) {
	calls, got := inspectedBy(t, "testdata/inspector")
	const group = "0x7f8c496ae9f661"
	want := []string{
		"0 allreduce " + group + " +100 9900 1048576 peer -1", "0 allreduce " + group + " +20100 9900 1048576 peer -1", "0 allreduce " + group + " +40100 9900 1048576 peer -1",
		"0 send " + group + " +748125 77 65536 peer 1",
		"1 recv " + group + " +748125 77 65536 peer 0",
		"1 allreduce " + group + " +5000100 9900 1048576 peer -1", "1 allreduce " + group + " +5023100 6900 1048576 peer -1", "1 allreduce " + group + " +5043100 6900 1048576 peer -1",
	}
	if strings.Join(calls, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s\nwant\n%s", strings.Join(calls, "\n"), strings.Join(want, "\n"))
	}

	for i, r := range got.Rows.Ranks {
		if int(r.Rank) != i || r.WorldSize != 2 || r.Node != []string{"node-0", "node-1"}[i] || r.PID == 0 {
			t.Errorf("%+v", r)
		}
	}

	for what, list := range map[string][]Problem{"4 operations are not in it": got.Notes, "no times of 1 operations": got.Notes, "no rank of the job": got.Notes} {
		if words := strings.Join(Sentences(list), "\n"); !strings.Contains(words, what) {
			t.Errorf("it does not say %q: %s", what, words)
		}
	}
}

// operation is one line of v4.0 to v4.2, in which each says whose it is.
func operation(comm string, rank, ranks int, dump, us int64) string {
	return fmt.Sprintf(`{"header":{"id":%q,"comm_name":"unknown","rank":%d,"n_ranks":%d,"nnodes":1},"metadata":{"inspector_output_format_version":"v4.2","dump_timestamp_us":%d,"hostname":"h","pid":7},`+
		`"coll_perf":{"coll":"ReduceScatter","coll_sn":1,"coll_msg_size_bytes":16384,"coll_exec_time_us":%d}}`+"\n", comm, rank, ranks, 1748030377000000+dump, us)
}

func TestInspectorForms(t *testing.T) {
	for _, c := range []struct {
		name, text, want, said string
	}{
		{"without times they stand end to end", operation("a", 3, 8, 1000, 10) + operation("b", 1, 2, 1000, 20) + operation("a", 3, 8, 900, 5),
			"3 reducescatter a +865 10 16384 peer -1, 3 reducescatter b +875 20 16384 peer -1, 3 reducescatter a +895 5 16384 peer -1", "end to end"},
		{"a process of two GPUs", operation("a", 0, 2, 100, 10) + operation("a", 1, 2, 100, 30) + operation("b", 0, 1, 100, 1),
			"0 reducescatter a +90 10 16384 peer -1, 1 reducescatter a +70 30 16384 peer -1", "1 operations of other communicators are left out: the process has 2 ranks"},
		{"an object without a communicator", `{"coll_perf":{"coll":"AllReduce","coll_exec_time_us":3}}` + "\n" + operation("a", 0, 2, 100, 10),
			"0 reducescatter a +90 10 16384 peer -1", "1 objects tell no communicator"},
		{"cut", operation("a", 0, 2, 100, 10) + operation("a", 0, 2, 100, 10)[:99],
			"0 reducescatter a +90 10 16384 peer -1", "cut: it ends in the middle"},
	} {
		t.Run(c.name, func(t *testing.T) {
			calls, got := inspectedBy(t, folderOf(t, map[string]string{"h-pid7.log": c.text}))
			if words := strings.Join(calls, ", "); words != c.want {
				t.Errorf("%s, want %s", words, c.want)
			}

			if words := strings.Join(append(Sentences(got.Unread), Sentences(got.Notes)...), "\n"); !strings.Contains(words, c.said) {
				t.Errorf("it does not say %q: %s", c.said, words)
			}
		})
	}
}
