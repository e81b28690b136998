package intake

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"

	"github.com/laggard-dev/laggard/schemas/record"
	"github.com/laggard-dev/laggard/writer/segment"
	"github.com/laggard-dev/laggard/writer/ship"
)

// byShard returns the rank directories that go to each shard of the store, by path; nil
// where there is nothing to choose. A rank goes where the agent of its node puts it: so
// the one finds what the other has stored where it looks first.
func byShard(ctx context.Context, root string, sink ship.Sink, o Options) (map[string]map[string]bool, error) {
	remote, ok := sink.(ship.Remote)
	if !ok {
		return nil, nil
	}

	e := newEngine(root, nil, o, nil)
	streams, err := e.tree.Scan()
	if err != nil && len(streams) == 0 {
		return nil, nil // the pass says it
	}

	e.gather(streams)
	shards := map[string]map[string]bool{}
	for _, s := range streams {
		name, err := remote.ShardOf(ctx, s.Dir.Job, nodeOf(s.Dir.Path, e.rollup(s.Dir).Node))
		if err != nil || name == "" {
			return nil, errors.Join(err, e.close())
		}

		if shards[name] == nil {
			shards[name] = map[string]bool{}
		}

		shards[name][s.Dir.Path] = true
	}

	return shards, e.close()
}

// nodeOf returns the node that the oldest segment of a rank names, else what is known
// beside it.
func nodeOf(dir, otherwise string) string {
	infos, err := segment.List(dir)
	if err != nil || len(infos) == 0 {
		return otherwise
	}

	f, err := segment.OpenReader(filepath.Join(dir, infos[0].Name))
	if err != nil { // the pass says it
		return otherwise
	}
	defer f.Close()
	var p record.Parser
	line, _, err := f.Next()
	if err != nil {
		return otherwise
	}

	if t, err := p.Parse(line); err != nil || t != record.LineMeta {
		return otherwise
	}

	return cmp.Or(p.Meta.Node, otherwise)
}
