// Package topology says which rank runs where and with whom: nodes, and
// parallel groups with their dimension.
//
// Invariant: a File is plain data in the schema of --topology; every other
// source of the same knowledge (segment identity lines, parallel_group.json,
// hccl.json rank tables) is turned into one.
package topology

// File is a topology file.
type File struct {
	WorldSize int              `json:"world_size"`
	Nodes     map[string][]int `json:"nodes,omitempty"` // node → global ranks; a rank in none belongs to node-<rank>
	Groups    []Group          `json:"groups,omitempty"`
}

// Group is one parallel group.
type Group struct {
	Name  string `json:"name"`
	Dim   string `json:"dim"`   // tp, pp, dp, cp, ep ("exp" reads as ep); others define no role
	Ranks []int  `json:"ranks"` // in a pp group the order is the stage order
}
