package simulate

// unknownGroup reports whether nothing tells what rank i's group in a slot is for: no identity,
// and no topology file, which knows the names of the last attempt's groups.
func (j *job) unknownGroup(i, slot int) bool {
	return j.cfg.Record.NoGroups && !j.inTopology[groupName{i, j.lay.groups[j.lay.groupOf(i, slot)].name}]
}

// groupName is a group by its name, as one rank knows it.
type groupName struct {
	rank int
	name string
}

// topologyGroups are the groups that the topology file tells.
func topologyGroups(cfg *Config) map[groupName]bool {
	out := map[groupName]bool{}
	if f := Topology(*cfg); f != nil {
		for _, g := range f.Groups {
			for _, rank := range g.Ranks {
				out[groupName{rank, g.Name}] = true
			}
		}
	}

	return out
}
