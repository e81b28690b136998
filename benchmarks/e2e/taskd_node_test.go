package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/schemas/topology"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// TestTaskdNode: TaskD's files say no node. The agents of its nodes do, each for the
// files on its own disk, whatever a rank table calls the servers; device and local rank
// come from the device lines. The verdict names the cluster's node, and watch would have
// MindCluster take the job off it.
func TestTaskdNode(t *testing.T) {
	t.Parallel()
	server := chtest.Start(t)
	store := server.Store(server.Database())
	whole := t.TempDir()
	if r := laggard(t, "simulate", "--scenario", "compute-1.5", "--seed", "3", "--ranks", "8", "--steps", "160", "--format", "taskd", whole); r.code != 0 {
		t.Fatalf("simulate: %+v", r)
	}

	want := decided(t, verdict.ExitDegraded, whole)
	nodes, err := topology.Load(filepath.Join(whole, topology.FileName))
	if err != nil {
		t.Fatal(err)
	}

	table := `{"status":"completed","server_list":[`
	for i, node := range slices.Sorted(maps.Keys(nodes.Nodes)) {
		table += fmt.Sprintf(`{"host_ip":"10.0.0.%d","server_sn":"SN%d","device":[`, i, i)
		for _, rank := range nodes.Nodes[node] {
			table += fmt.Sprintf(`{"rank_id":"%d"},`, rank)
		}

		table = strings.TrimSuffix(table, ",") + "]},"
	}

	table = strings.TrimSuffix(table, ",") + "]}"
	var sites []*site
	agents := map[*running]int{} // how many steps each stores
	for node, ranks := range nodes.Nodes {
		s := newSite(t, store)
		sites = append(sites, s)
		for local, rank := range ranks {
			from, to := filepath.Join(whole, want.Job, strconv.Itoa(rank)), filepath.Join(s.dir, want.Job, strconv.Itoa(rank))
			if err := os.CopyFS(to, os.DirFS(from)); err != nil {
				t.Fatal(err)
			}

			segments, err := filepath.Glob(filepath.Join(to, "1*"))
			if err != nil || len(segments) != 1 {
				t.Fatal(segments, err)
			}

			rewrite(t, segments[0], func(b []byte) []byte { // each has its NPU
				return bytes.ReplaceAll(b, []byte(`"Ds":{"DeviceId":0,`), fmt.Appendf(nil, `"Ds":{"DeviceId":%d,`, local))
			})
		}

		if err := os.WriteFile(filepath.Join(s.dir, want.Job, topology.RankTableFile), []byte(table), 0o644); err != nil {
			t.Fatal(err)
		}

		agents[s.agent("--node", "worker-"+strings.TrimPrefix(node, "node-"))] = 159 * len(ranks)
	}

	for a, steps := range agents {
		a.until("all steps but the last stored", func(m map[string]float64) bool {
			return m[`laggard_rows_stored_total{table="steps"}`] == float64(steps)
		})
		if err := a.command.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}

		a.wait()
	}

	for _, k := range answerOf(t, store, "").Ranks {
		node := "worker-" + strings.TrimPrefix(nodes.NodeOf(int(k.Rank)), "node-")
		local := slices.Index(nodes.Nodes[nodes.NodeOf(int(k.Rank))], int(k.Rank))
		if k.Node != node || k.Device != fmt.Sprintf("npu:%d", local) || int(k.LocalRank) != local {
			t.Errorf("rank %d: node %s, device %s, local rank %d; want %s, npu:%d", k.Rank, k.Node, k.Device, k.LocalRank, node, local)
		}
	}

	got := decided(t, verdict.ExitDegraded, store)
	if len(got.Nodes) != 1 || got.Nodes[0].Node != "worker-"+strings.TrimPrefix(want.Nodes[0].Node, "node-") || !slices.Equal(got.Nodes[0].Ranks, want.Nodes[0].Ranks) {
		t.Fatalf("verdict %+v, want that of %+v", got.Nodes, want.Nodes)
	}

	slow := got.Nodes[0].Node
	for _, s := range sites { // the files themselves, with and without --node
		for _, k := range answerOf(t, s.dir, "worker-9").Ranks {
			if k.Node != "worker-9" {
				t.Errorf("rank %d read from files: node %s", k.Rank, k.Node)
			}
		}

		for _, k := range answerOf(t, s.dir, "").Ranks {
			if !strings.HasPrefix(k.Node, "10.0.0.") {
				t.Errorf("rank %d read from files: node %s", k.Rank, k.Node)
			}
		}
	}

	w := sites[0].start("watch", store, "--state", t.TempDir(), "--kubernetes", "--act", "reschedule", "--metrics", "", "--every", "100ms", "--lag", "1m", "--forget", "999999h")
	w.says(`(would .*tell ClusterD that node ` + regexp.QuoteMeta(slow) + ` is not well)`)
}
