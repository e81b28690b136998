package verdict

// WhatIf is what a replay of recorded ranges says of the job: what_if of `laggard explain
// --what-if -o json`. All slowdowns are quotients of simulated step times, 1 = nothing to gain.
type WhatIf struct {
	Steps    int     `json:"steps"`    // replayed
	Skipped  int     `json:"skipped"`  // steps whose communication didn't match (records are missing)
	Fidelity float64 `json:"fidelity"` // replayed / recorded step time

	Slowdown float64            `json:"slowdown"` // S: as it was / everybody alike
	ByKind   map[string]float64 `json:"by_kind"`  // S of an operation kind: only it as it was, the rest alike
	ByRank   map[int]float64    `json:"by_rank"`  // S of a worker: only it as it was
	// ByStage and ByReplica are S of a pipeline stage and of a replica.
	ByStage   map[int]float64 `json:"by_stage"`
	ByReplica map[int]float64 `json:"by_replica"`
	// Gain is the share of step time that the job saves when that rank works like
	// its stage's median, 0…1.
	Gain map[int]float64 `json:"gain"`
	// Repaired is the share of step time that the job saves when the ranks of a
	// repair work like their peers, by its name, Together when all of them do.
	Repaired map[string]float64 `json:"repaired,omitempty"`
	Together float64            `json:"together,omitempty"`
	// MW is the share of the slowdown that goes away when the slowest 3 % of the
	// workers (at least one) work alike, MS the same of the last stage.
	MW float64 `json:"m_w"`
	MS float64 `json:"m_s"`
}
