package chtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
)

// Keeper is a running ZooKeeper, Debian's: what replicas agree by.
type Keeper struct{ process }

// zookeeperJar is where Debian's package zookeeper puts its program.
const zookeeperJar = "/usr/share/java/zookeeper.jar"

// startKeeper starts ZooKeeper on a host's address. wrap is a command that runs it, in a network of its own for instance.
func startKeeper(t testing.TB, host string, wrap []string) *Keeper {
	t.Helper()
	if _, err := os.Stat(zookeeperJar); err != nil {
		t.Fatalf("find ZooKeeper: %v; install Debian's package zookeeper, or run make cluster", err)
	}

	k := &Keeper{process{t: t, what: "ZooKeeper", dir: t.TempDir(), host: host, port: freePort(t), wrap: wrap}}
	t.Cleanup(k.Kill)
	k.Up()
	return k
}

// Up starts ZooKeeper, after Kill on the same data, and waits until it answers.
func (k *Keeper) Up() {
	k.t.Helper()
	// Sessions are of 3 s at most: a replica that was killed is given up soon.
	config := fmt.Sprintf("tickTime=500\ndataDir=%s/data\nclientPort=%d\nclientPortAddress=%s\nmaxClientCnxns=0\nadmin.enableServer=false\nmaxSessionTimeout=3000\n", k.dir, k.port, k.host)
	path := filepath.Join(k.dir, "zoo.cfg")
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		k.t.Fatal(err)
	}

	k.start(nil, "java", "-Xmx192m", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
		"-cp", k.dir+":"+zookeeperJar, "org.apache.zookeeper.server.ZooKeeperServerMain", path)
	k.Await()
}

// forget removes a replica from the tables below a path.
func (k *Keeper) forget(path, replica string) {
	k.t.Helper()
	var commands strings.Builder
	for _, table := range ddl.Tables {
		fmt.Fprintf(&commands, "deleteall %s/%s/replicas/%s\n", path, table, replica)
	}

	commands.WriteString("quit\n")
	cmd := k.command("java", "-cp", k.dir+":"+zookeeperJar, "org.apache.zookeeper.ZooKeeperMain", "-server", k.Addr())
	cmd.Stdin = strings.NewReader(commands.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		k.t.Fatalf("remove replica %s below %s: %v\n%s", replica, path, err, out)
	}
}

// Eventually calls f until it returns nil; after most the test fails with its error.
func Eventually(t testing.TB, what string, most time.Duration, f func() error) {
	t.Helper()
	deadline := time.NewTimer(most)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}

		select {
		case <-deadline.C:
			t.Fatalf("%s: not within %s: %v", what, most, err)
		case <-tick.C:
		}
	}
}
