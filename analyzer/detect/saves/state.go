package saves

import "github.com/laggard-dev/laggard/analyzer/detect/state"

// State is what a later step asks of earlier ones.
func (s *Watch) State() state.Fields {
	return state.Fields{
		"ranks": &s.ranks.Climb, "ranks_past": state.Grows(&s.ranks.Past), "ranks_next": state.Counts(&s.ranks.Next), "ranks_held": state.Grows(&s.ranks.Held),
		"nodes": state.Grows(&s.nodes.Climb), "nodes_past": state.Grows(&s.nodes.Past), "nodes_next": state.Counts(&s.nodes.Next), "nodes_held": state.Grows(&s.nodes.Held),
		"run": &s.run, "over": &s.over, "after": &s.after, "proof": &s.proof, "past": &s.past, "past_n": &s.pastN,
		"since": &s.since, "third": &s.third, "last": &s.last, "rise": &s.rise, "cost": &s.cost, "sigma": &s.sigma,
		"recent": &s.recent, "saves": state.Counts(&s.saves), "savers": &s.savers, "every": &s.every,
		"last_save": &s.lastSave, "level": state.Grows(&s.level), "storage_run": &s.storageRun,
		"storage_since": &s.storageSince, "leader": &s.leader, "leads": &s.leads, "began": &s.began, "accounts": &s.accounts,
	}
}
