package simulate

// nameless reports whether nothing tells what rank i's group in a slot is for: no identity,
// and no topology file, which knows the names of the last attempt's groups.
func (j *job) nameless(i, slot int) bool {
	return j.cfg.Record.NoGroups && !j.told[knownGroup{i, j.lay.groups[j.r[i].groups[slot]].name}]
}

// knownGroup is a group by its name, as one rank knows it.
type knownGroup struct {
	rank int
	name string
}

// toldGroups are the groups that the topology file tells.
func toldGroups(cfg *Config) map[knownGroup]bool {
	out := map[knownGroup]bool{}
	if f := Topology(*cfg); f != nil {
		for _, g := range f.Groups {
			for _, rank := range g.Ranks {
				out[knownGroup{rank, g.Name}] = true
			}
		}
	}

	return out
}
