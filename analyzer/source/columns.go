package source

import (
	"github.com/laggard-dev/laggard/schemas/clickhouse/native"
	"github.com/laggard-dev/laggard/schemas/row"
)

// column moves one column of a file or of a server's answer into rows of type T: set for
// integers, text for strings, list for lists, which only servers send so. missing is the
// value where the file is older than the column.
type column[T any] struct {
	name    string
	set     func(*T, int64)
	text    func(*T, string)
	list    func(*T, *native.Column, int)
	missing int64
}

const notRecorded = -1

// stepColumns are the columns of row.Step but the job.
var stepColumns = []column[row.Step]{
	{name: "rank", set: func(r *row.Step, v int64) { r.Rank = uint32(v) }},
	{name: "incarnation", set: func(r *row.Step, v int64) { r.Incarnation = uint64(v) }},
	{name: "node", text: func(r *row.Step, v string) { r.Node = v }},
	{name: "step", set: func(r *row.Step, v int64) { r.Step = uint64(v) }},
	{name: "repeat", set: func(r *row.Step, v int64) { r.Repeat = uint16(v) }},
	{name: "start_ns", set: func(r *row.Step, v int64) { r.StartNs = v }},
	{name: "step_ns", set: func(r *row.Step, v int64) { r.StepNs = v }, missing: notRecorded},
	{name: "fp_ns", set: func(r *row.Step, v int64) { r.FPNs = v }, missing: notRecorded},
	{name: "fp_count", set: func(r *row.Step, v int64) { r.FPCount = uint32(v) }},
	{name: "comm_ns", set: func(r *row.Step, v int64) { r.CommNs = v }, missing: notRecorded},
	{name: "exposed_ns", set: func(r *row.Step, v int64) { r.ExposedNs = v }, missing: notRecorded},
	{name: "comm_tp_ns", set: func(r *row.Step, v int64) { r.CommTPNs = v }, missing: notRecorded},
	{name: "comm_pp_ns", set: func(r *row.Step, v int64) { r.CommPPNs = v }, missing: notRecorded},
	{name: "comm_dp_ns", set: func(r *row.Step, v int64) { r.CommDPNs = v }, missing: notRecorded},
	{name: "comm_cp_ns", set: func(r *row.Step, v int64) { r.CommCPNs = v }, missing: notRecorded},
	{name: "comm_ep_ns", set: func(r *row.Step, v int64) { r.CommEPNs = v }, missing: notRecorded},
	{name: "comm_other_ns", set: func(r *row.Step, v int64) { r.CommOtherNs = v }, missing: notRecorded},
	{name: "dataloader_ns", set: func(r *row.Step, v int64) { r.DataLoaderNs = v }, missing: notRecorded},
	{name: "checkpoint_ns", set: func(r *row.Step, v int64) { r.CheckpointNs = v }, missing: notRecorded},
	{name: "checkpoint_count", set: func(r *row.Step, v int64) { r.CheckpointCount = uint32(v) }},
	{name: "self_ns", set: func(r *row.Step, v int64) { r.SelfNs = v }, missing: notRecorded},
	{name: "host_fp_ns", set: func(r *row.Step, v int64) { r.HostFPNs = v }, missing: notRecorded},
	{name: "tokens", set: func(r *row.Step, v int64) { r.Tokens = v }, missing: notRecorded},
	{name: "flags", set: func(r *row.Step, v int64) { r.Flags = uint32(v) }},
	{name: "backward_ns", set: func(r *row.Step, v int64) { r.BackwardNs = v }, missing: notRecorded},
}

// communicationColumns are the columns of row.Communication but the job.
var communicationColumns = []column[row.Communication]{
	{name: "rank", set: func(r *row.Communication, v int64) { r.Rank = uint32(v) }},
	{name: "incarnation", set: func(r *row.Communication, v int64) { r.Incarnation = uint64(v) }},
	{name: "node", text: func(r *row.Communication, v string) { r.Node = v }},
	{name: "step_from", set: func(r *row.Communication, v int64) { r.StepFrom = uint64(v) }},
	{name: "step_to", set: func(r *row.Communication, v int64) { r.StepTo = uint64(v) }},
	{name: "repeat", set: func(r *row.Communication, v int64) { r.Repeat = uint16(v) }},
	{name: "start_ns", set: func(r *row.Communication, v int64) { r.StartNs = v }},
	{name: "group", text: func(r *row.Communication, v string) { r.Group = v }},
	{name: "dim", text: func(r *row.Communication, v string) { r.Dim = v }},
	{name: "op", text: func(r *row.Communication, v string) { r.Op = v }},
	{name: "steps", set: func(r *row.Communication, v int64) { r.Steps = uint32(v) }},
	{name: "calls", set: func(r *row.Communication, v int64) { r.Calls = uint32(v) }},
	{name: "total_ns", set: func(r *row.Communication, v int64) { r.TotalNs = v }},
	{name: "min_ns", set: func(r *row.Communication, v int64) { r.MinNs = v }},
	{name: "max_ns", set: func(r *row.Communication, v int64) { r.MaxNs = v }},
	{name: "bytes", set: func(r *row.Communication, v int64) { r.Bytes = v }},
}

// rankColumns are the columns of row.Rank but the job. The ranks of groups are kept in groups.
func rankColumns(groups members) []column[row.Rank] {
	var ranks []uint32
	return []column[row.Rank]{
		{name: "rank", set: func(r *row.Rank, v int64) { r.Rank = uint32(v) }},
		{name: "incarnation", set: func(r *row.Rank, v int64) { r.Incarnation = uint64(v) }},
		{name: "world_size", set: func(r *row.Rank, v int64) { r.WorldSize = uint32(v) }},
		{name: "local_rank", set: func(r *row.Rank, v int64) { r.LocalRank = uint16(v) }},
		{name: "node", text: func(r *row.Rank, v string) { r.Node = v }},
		{name: "device", text: func(r *row.Rank, v string) { r.Device = v }},
		{name: "pod", text: func(r *row.Rank, v string) { r.Pod = v }},
		{name: "pid", set: func(r *row.Rank, v int64) { r.PID = uint32(v) }},
		{name: "boot_id", text: func(r *row.Rank, v string) { r.BootID = v }},
		{name: "started_ns", set: func(r *row.Rank, v int64) { r.StartedNs = v }},
		{name: "ended_ns", set: func(r *row.Rank, v int64) { r.EndedNs = v }},
		{name: "groups", list: func(r *row.Rank, c *native.Column, i int) { r.Groups = texts(c, i) }},
		{name: "group_ranks", list: func(r *row.Rank, c *native.Column, i int) {
			from, to := c.List(i)
			r.GroupRanks = make([][]uint32, 0, to-from)
			for k := from; k < to; k++ {
				first, end := c.Of.List(int(k))
				ranks = ranks[:0]
				for _, n := range c.Of.Of.Numbers[first:end] {
					ranks = append(ranks, uint32(n))
				}

				r.GroupRanks = append(r.GroupRanks, groups.kept(ranks))
			}
		}},
		{name: "writer", text: func(r *row.Rank, v string) { r.Writer = v }},
		{name: "version", set: func(r *row.Rank, v int64) { r.Version = uint32(v) }},
		{name: "off", list: func(r *row.Rank, c *native.Column, i int) { r.Off = texts(c, i) }},
	}
}

// assignJob names the job of a row, which is no column.
func assignJob[T any](r *T, job string) {
	switch r := any(r).(type) {
	case *row.Rank:
		r.Job = job
	case *row.Step:
		r.Job = job
	case *row.Communication:
		r.Job = job
	}
}

// texts is a copy of a row's list of texts.
func texts(c *native.Column, row int) []string {
	from, to := c.List(row)
	return append(make([]string, 0, to-from), c.Of.Texts[from:to]...)
}
