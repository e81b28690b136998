package parquet

// Rank is row.Rank with the encodings of its Parquet file.
type Rank struct {
	Job         string     `parquet:"job,dict"`
	Rank        uint32     `parquet:"rank"`
	Incarnation uint64     `parquet:"incarnation"`
	WorldSize   uint32     `parquet:"world_size"`
	LocalRank   uint16     `parquet:"local_rank"`
	Node        string     `parquet:"node,dict"`
	Device      string     `parquet:"device,dict"`
	Pod         string     `parquet:"pod,dict"`
	PID         uint32     `parquet:"pid"`
	BootID      string     `parquet:"boot_id,dict"`
	StartedNs   int64      `parquet:"started_ns,delta"`
	EndedNs     int64      `parquet:"ended_ns"`
	Groups      []string   `parquet:"groups,list"`
	GroupRanks  [][]uint32 `parquet:"group_ranks,list"`
	Writer      string     `parquet:"writer,dict"`
	Version     uint32     `parquet:"version"`
	Off         []string   `parquet:"off,list"`
}

// Step is row.Step with the encodings of its Parquet file.
type Step struct {
	Job             string `parquet:"job,dict"`
	Rank            uint32 `parquet:"rank"`
	Incarnation     uint64 `parquet:"incarnation"`
	Node            string `parquet:"node,dict"`
	Step            uint64 `parquet:"step,delta"`
	Repeat          uint16 `parquet:"repeat"`
	StartNs         int64  `parquet:"start_ns,delta"`
	StepNs          int64  `parquet:"step_ns"`
	FPNs            int64  `parquet:"fp_ns"`
	FPCount         uint32 `parquet:"fp_count"`
	CommNs          int64  `parquet:"comm_ns"`
	ExposedNs       int64  `parquet:"exposed_ns"`
	CommTPNs        int64  `parquet:"comm_tp_ns"`
	CommPPNs        int64  `parquet:"comm_pp_ns"`
	CommDPNs        int64  `parquet:"comm_dp_ns"`
	CommCPNs        int64  `parquet:"comm_cp_ns"`
	CommEPNs        int64  `parquet:"comm_ep_ns"`
	CommOtherNs     int64  `parquet:"comm_other_ns"`
	DataLoaderNs    int64  `parquet:"dataloader_ns"`
	CheckpointNs    int64  `parquet:"checkpoint_ns"`
	CheckpointCount uint32 `parquet:"checkpoint_count"`
	SelfNs          int64  `parquet:"self_ns"`
	HostFPNs        int64  `parquet:"host_fp_ns"`
	Tokens          int64  `parquet:"tokens"`
	Flags           uint32 `parquet:"flags"`
	BackwardNs      int64  `parquet:"backward_ns"`
}

// Communication is row.Communication with the encodings of its Parquet file.
type Communication struct {
	Job         string `parquet:"job,dict"`
	Rank        uint32 `parquet:"rank"`
	Incarnation uint64 `parquet:"incarnation"`
	Node        string `parquet:"node,dict"`
	StepFrom    uint64 `parquet:"step_from,delta"`
	StepTo      uint64 `parquet:"step_to,delta"`
	Repeat      uint16 `parquet:"repeat"`
	StartNs     int64  `parquet:"start_ns,delta"`
	Group       string `parquet:"group,dict"`
	Dim         string `parquet:"dim,dict"`
	Op          string `parquet:"op,dict"`
	Steps       uint32 `parquet:"steps"`
	Calls       uint32 `parquet:"calls"`
	TotalNs     int64  `parquet:"total_ns"`
	MinNs       int64  `parquet:"min_ns"`
	MaxNs       int64  `parquet:"max_ns"`
	Bytes       int64  `parquet:"bytes"`
}

// Record is row.Record with the encodings of its Parquet file.
type Record struct {
	Job         string `parquet:"job,dict"`
	Rank        uint32 `parquet:"rank"`
	Incarnation uint64 `parquet:"incarnation"`
	Node        string `parquet:"node,dict"`
	Kind        string `parquet:"kind,dict"`
	Step        int64  `parquet:"step,delta"`
	Repeat      uint16 `parquet:"repeat"`
	StartNs     int64  `parquet:"start_ns,delta"`
	DurNs       int64  `parquet:"dur_ns"`
	Side        string `parquet:"side,dict"`
	HostStartNs int64  `parquet:"host_start_ns,delta"`
	HostDurNs   int64  `parquet:"host_dur_ns"`
	ExposedNs   int64  `parquet:"exposed_ns"`
	Ring        uint32 `parquet:"ring"`
	Seq         uint64 `parquet:"seq,delta"`
	Thread      uint64 `parquet:"thread"`
	Op          string `parquet:"op,dict"`
	OpRaw       string `parquet:"op_raw,dict"`
	Group       string `parquet:"group,dict"`
	Peer        int32  `parquet:"peer"`
	Count       int64  `parquet:"count"`
	Dtype       string `parquet:"dtype,dict"`
	Bytes       int64  `parquet:"bytes"`
	Tokens      int64  `parquet:"tokens"`
	Path        string `parquet:"path,dict"`
	Open        uint16 `parquet:"open"`
	Segment     uint64 `parquet:"segment"`
	Offset      uint64 `parquet:"offset,delta"`
}

// Verdict is row.Verdict with the encodings of its Parquet file.
type Verdict struct {
	Job       string `parquet:"job,dict"`
	AtNs      int64  `parquet:"at_ns,delta"`
	Step      uint64 `parquet:"step,delta"`
	Node      string `parquet:"node,dict"`
	Finding   string `parquet:"finding,dict"`
	Group     string `parquet:"group,dict"`
	State     string `parquet:"state,dict"`
	Cause     string `parquet:"cause,dict"`
	Detail    string `parquet:"detail"`
	Body      string `parquet:"body"`
	ImpactPPM uint32 `parquet:"impact_ppm"`
}

// Ledger is row.Ledger with the encodings of its Parquet file.
type Ledger struct {
	Job         string `parquet:"job,dict"`
	Rank        uint32 `parquet:"rank"`
	Incarnation uint64 `parquet:"incarnation"`
	Segment     uint64 `parquet:"segment"`
	Name        string `parquet:"name,dict"`
	Batch       string `parquet:"batch,dict"`
	Table       string `parquet:"table,dict"`
	State       string `parquet:"state,dict"`
	Reason      string `parquet:"reason,dict"`
	Kind        string `parquet:"kind,dict"`
	Records     uint64 `parquet:"records"`
	Bytes       uint64 `parquet:"bytes"`
	FirstOffset uint64 `parquet:"first_offset"`
	LastOffset  uint64 `parquet:"last_offset"`
	AtNs        int64  `parquet:"at_ns,delta"`
}
