package ship

// Place is what rows are counted by: in the table records by segment and kind, in others by
// process.
type Place struct {
	Table string
	Rank  uint32
	Of    uint64 // a segment's id, or an incarnation
	Kind  string // "" in other tables than records
}

// Held is a number of rows, how many different ones are among them, how many of these
// complete windows that other rows began (row.IsComplement), and the calls that windows sum up.
type Held struct{ Rows, Distinct, Complements, Calls uint64 }
