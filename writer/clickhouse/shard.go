package clickhouse

import (
	"context"
	"slices"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/laggard-dev/laggard/schemas/record"
)

// shard is one shard of a cluster: the replicas that hold the same rows.
type shard struct {
	name     string // cluster and number
	replicas []string
}

// Shard implements ship.Sharded.
func (s *Sink) Shard() string { return s.shard }

// KeepShard implements ship.Sharded.
func (s *Sink) KeepShard(name string) { s.shard = name }

// choose chooses the shard of a cluster that the address names, once: the one that was kept
// where it still exists, else by rendezvous of Options.Job and Node. Who has the same chooses
// the same shard on any machine, and a shard that is added takes its share from all others.
func (s *Sink) choose(ctx context.Context) error {
	if s.address.Cluster == "" || s.chosen {
		return nil
	}

	entry := s.entry[s.tries%len(s.entry)]
	s.tries++
	first := s.at(entry)
	defer first.drop()
	var shards []shard
	err := first.call(ctx, "ask for the shards of cluster "+s.address.Cluster, func(ctx context.Context, conn clickhouse.Conn) error {
		hosts, err := clusterHosts(ctx, conn, s.address.Cluster)
		shards = hosts
		return err
	})
	if err != nil {
		return err
	}

	at := slices.IndexFunc(shards, func(one shard) bool { return one.name == s.shard })
	if at < 0 {
		at = rendezvous(shards, s.o.Job, s.o.Node)
	}

	s.shard, s.chosen = shards[at].name, true
	s.address.Hosts, s.address.Host = shards[at].replicas, shards[at].replicas[0]
	s.o.Logger.Info("shard chosen", "shard", s.shard, "replicas", strings.Join(s.address.Hosts, ", "))
	return nil
}

// rendezvous returns the shard whose hash with job and node is the highest.
func rendezvous(shards []shard, job, node string) int {
	best, most := 0, uint64(0)
	for i, one := range shards {
		// FNV changes its low bits most by what it reads last; the mixing is splitmix64's.
		h := uint64(record.HashID(one.name, job, node))
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		if h ^= h >> 31; h >= most {
			best, most = i, h
		}
	}

	return best
}
