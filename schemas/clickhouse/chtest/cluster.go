package chtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// ClusterName is what the servers call their cluster.
const ClusterName = "training"

// Cluster is shards of replicas that agree by one ZooKeeper.
type Cluster struct {
	t      testing.TB
	Keeper *Keeper
	Shards [][]*Server
	place  func(n int) (host string, wrap []string)
}

// small lets a server of a test live in some hundred megabytes, beside three others on
// two cores; a query whose server is gone is given up after seconds.
const small = "<background_pool_size>4</background_pool_size><background_schedule_pool_size>4</background_schedule_pool_size>" +
	"<max_memory_usage>1500000000</max_memory_usage><max_threads>2</max_threads>" +
	"<connect_timeout_with_failover_ms>1000</connect_timeout_with_failover_ms><insert_distributed_sync>1</insert_distributed_sync>"

// StartCluster starts ZooKeeper and shards × replicas servers on loopback.
func StartCluster(t testing.TB, shards, replicas int) *Cluster {
	return StartClusterAt(t, shards, replicas, func(int) (string, []string) { return "127.0.0.1", nil })
}

// StartClusterAt starts a cluster whose n-th process (0 is ZooKeeper) has the address and is
// run by the command that place says.
func StartClusterAt(t testing.TB, shards, replicas int, place func(n int) (string, []string)) *Cluster {
	t.Helper()
	c := &Cluster{t: t, place: place}
	host, wrap := place(0)
	c.Keeper = startKeeper(t, host, wrap)
	for range shards {
		c.grow(replicas)
	}

	c.configure()
	// Servers that make the queue of ON CLUSTER statements at once hinder each other: the
	// one that comes second never looks at it (18.16). The first one makes it alone.
	all := c.All()
	all[0].Up()
	Eventually(t, "the queue of ON CLUSTER statements", time.Minute, func() error {
		out, err := all[0].Client(nil, "SELECT count() FROM system.zookeeper WHERE path = '/clickhouse/task_queue' AND name = 'ddl'")
		if err == nil && out != "1" {
			err = fmt.Errorf("%s nodes", out)
		}

		return err
	})
	for _, s := range all[1:] {
		s.Launch()
	}

	for _, s := range all[1:] {
		s.Await()
	}

	return c
}

// All returns the servers, shard by shard.
func (c *Cluster) All() []*Server {
	var all []*Server
	for _, replicas := range c.Shards {
		all = append(all, replicas...)
	}

	return all
}

// AddShard starts a further shard and tells all servers of it.
func (c *Cluster) AddShard(replicas int) {
	c.t.Helper()
	old := c.All()
	c.grow(replicas)
	c.configure()
	for _, s := range c.Shards[len(c.Shards)-1] {
		s.Up()
	}

	for _, s := range old { // they read their configuration again within seconds
		Eventually(c.t, "the servers know the new shard", time.Minute, func() error {
			q := "SELECT uniqExact(shard_num) FROM system.clusters WHERE cluster = '" + ClusterName + "'"
			if n := s.Count(q); n != uint64(len(c.Shards)) {
				return fmt.Errorf("%s knows %d shards", s.Addr(), n)
			}

			return nil
		})
	}
}

// grow makes the servers of one more shard, without starting them.
func (c *Cluster) grow(replicas int) {
	c.t.Helper()
	var shard []*Server
	for range replicas {
		s := newServer(c.t, Options{Profile: small})
		s.host, s.wrap = c.place(1 + len(c.All()) + len(shard))
		shard = append(shard, s)
	}

	c.Shards = append(c.Shards, shard)
}

// configure writes every server's configuration.
func (c *Cluster) configure() {
	c.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "\n<remote_servers><%s>", ClusterName)
	for _, replicas := range c.Shards {
		b.WriteString("<shard><internal_replication>true</internal_replication>")
		for _, s := range replicas {
			fmt.Fprintf(&b, "<replica><host>%s</host><port>%d</port></replica>", s.host, s.port)
		}

		b.WriteString("</shard>")
	}

	fmt.Fprintf(&b, "</%s></remote_servers>\n<zookeeper><node><host>%s</host><port>%d</port></node><session_timeout_ms>3000</session_timeout_ms></zookeeper>\n",
		ClusterName, c.Keeper.host, c.Keeper.port)
	b.WriteString("<distributed_ddl><path>/clickhouse/task_queue/ddl</path></distributed_ddl>")
	for i, replicas := range c.Shards {
		for k, s := range replicas {
			s.extra = fmt.Sprintf("%s\n<macros><cluster>%s</cluster><shard>%02d</shard><replica>r%d</replica></macros>", b.String(), ClusterName, i+1, k+1)
			s.configure()
		}
	}
}

// Store is the store URL of a database with the replicas of one shard.
func (c *Cluster) Store(shard int, database string) string {
	var hosts []string
	for _, s := range c.Shards[shard] {
		hosts = append(hosts, s.Addr())
	}

	return "clickhouse://" + strings.Join(hosts, ",") + "/" + database
}

// Wipe kills a server, takes its data away, has Keeper forget its tables of a database, as
// the operator of a lost disk does, and starts it again.
func (c *Cluster) Wipe(s *Server, database string) {
	c.t.Helper()
	s.Kill()
	for _, dir := range []string{"data", "tmp"} {
		if err := os.RemoveAll(filepath.Join(s.dir, dir)); err != nil {
			c.t.Fatal(err)
		}
	}

	for i, replicas := range c.Shards {
		if k := slices.Index(replicas, s); k >= 0 {
			c.Keeper.forget(fmt.Sprintf("/clickhouse/tables/%02d/%s", i+1, database), fmt.Sprintf("r%d", k+1))
		}
	}

	s.Up()
}
