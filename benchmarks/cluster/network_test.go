//go:build cluster

package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
)

// inNetwork runs the calling test once more in a network namespace of its own and returns
// true there; to the test that called it first it tells how that went, and returns false.
func inNetwork(t *testing.T) bool {
	t.Helper()
	const inside = "LAGGARD_TEST_NETWORK"
	if os.Getenv(inside) != "" {
		return true
	}

	cmd := exec.Command("unshare", "-n", os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	cmd.Env = append(os.Environ(), inside+"=1")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("in a network of its own: %v", err)
	}

	return false
}

// startSeparate is chtest.StartCluster within inNetwork: each process has a network namespace of
// its own, joined by a bridge.
func startSeparate(t *testing.T, shards, replicas int) *chtest.Cluster {
	t.Helper()
	run(t, "ip link set lo up", "ip link add br0 type bridge", "ip addr add 10.9.0.1/24 dev br0", "ip link set br0 up")
	return chtest.StartClusterAt(t, shards, replicas, func(n int) (string, []string) {
		name, host := fmt.Sprintf("laggard-%d-%d", os.Getpid(), n), fmt.Sprintf("10.9.0.%d", n+2)
		run(t, "ip netns add "+name)
		t.Cleanup(func() { run(t, "ip netns del "+name) })
		run(t, fmt.Sprintf("ip link add v%d type veth peer name eth0 netns %s", n, name), fmt.Sprintf("ip link set v%d master br0 up", n),
			fmt.Sprintf("ip -n %s addr add %s/24 dev eth0", name, host), "ip -n "+name+" link set eth0 up", "ip -n "+name+" link set lo up")
		return host, []string{"ip", "netns", "exec", name}
	})
}

// part parts all servers of startSeparate from each other, or joins them again; ZooKeeper and the
// test reach each of them.
func part(t *testing.T, c *chtest.Cluster, on bool) {
	t.Helper()
	for n := range c.All() {
		run(t, fmt.Sprintf("bridge link set dev v%d isolated %s", n+1, map[bool]string{true: "on", false: "off"}[on]))
	}
}

// run runs commands.
func run(t *testing.T, lines ...string) {
	t.Helper()
	for _, line := range lines {
		words := strings.Fields(line)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
	}
}
