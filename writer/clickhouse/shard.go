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

// Shard implements ship.Remote.
func (s *Sink) Shard() string { return s.shard }

// KeepShard implements ship.Remote. What is known is of the shard before.
func (s *Sink) KeepShard(name string) {
	s.drop()
	s.stranger()
	clear(s.inserted)
	s.failures, s.shard, s.chosen = 0, name, false
}

// ShardOf implements ship.Remote.
func (s *Sink) ShardOf(ctx context.Context, job, node string) (string, error) {
	if s.address.Cluster == "" {
		return "", nil
	}

	var err error
	for range s.entry { // one that answers is enough
		if err = s.ask(ctx); err == nil || ctx.Err() != nil {
			break
		}
	}

	if err != nil {
		return "", err
	}

	return s.shards[rendezvous(s.shards, job, node)].name, nil
}

// choose chooses the shard of a cluster that the address names, once: the one that was kept
// where it still exists, else by rendezvous of Options.Job and Node. Who has the same chooses
// the same shard on any machine, and a shard that is added takes its share from all others.
func (s *Sink) choose(ctx context.Context) error {
	if s.address.Cluster == "" || s.chosen {
		return nil
	}

	if err := s.ask(ctx); err != nil {
		return err
	}

	at := slices.IndexFunc(s.shards, func(one shard) bool { return one.name == s.shard })
	if at < 0 {
		at = rendezvous(s.shards, s.o.Job, s.o.Node)
	}

	s.shard, s.chosen = s.shards[at].name, true
	s.address.Hosts, s.address.Host = s.shards[at].replicas, s.shards[at].replicas[0]
	s.o.Logger.Info("shard chosen", "shard", s.shard, "replicas", strings.Join(s.address.Hosts, ", "))
	return nil
}

// ask asks one of the servers that the address names for the shards of the cluster, once.
func (s *Sink) ask(ctx context.Context) error {
	if s.shards != nil {
		return nil
	}

	entry := s.entry[s.tries%len(s.entry)]
	s.tries++
	first := s.at(entry)
	defer first.drop()
	return first.call(ctx, "ask for the shards of cluster "+s.address.Cluster, func(ctx context.Context, conn clickhouse.Conn) error {
		var err error
		s.shards, err = clusterHosts(ctx, conn, s.address.Cluster)
		return err
	})
}

// rendezvous returns the shard whose hash with job and node is the highest.
func rendezvous(shards []shard, job, node string) int {
	best, most := 0, uint64(0)
	for i, one := range shards {
		if h := record.HashID(one.name, job, node).Mixed(); h >= most {
			best, most = i, h
		}
	}

	return best
}
