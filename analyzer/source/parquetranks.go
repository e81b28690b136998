package source

import (
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"

	layout "laggard/schemas/parquet"
	"laggard/schemas/row"
)

// maxRanks bounds the rows of one file of ranks: 100 times the largest job known.
const maxRanks = 10_000_000

// readRanks reads a file of the table of ranks, value by value: it is small, and
// two of its columns are lists.
func readRanks(path, job string) (ranks []row.Rank, err error) {
	p, f, err := layout.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if p.NumRows() > maxRanks {
		return nil, fmt.Errorf("%d ranks, more than %d", p.NumRows(), maxRanks)
	}
	names := make([]string, 0, 20)
	for _, path := range p.Schema().Columns() {
		names = append(names, path[0])
	}
	buffer := make([]parquet.Row, 64)
	for _, g := range p.RowGroups() {
		rows := g.Rows()
		for {
			n, err := rows.ReadRows(buffer)
			for _, r := range buffer[:n] {
				ranks = append(ranks, rankOf(r, names, job))
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				return nil, errors.Join(err, rows.Close())
			}
		}
		if err := rows.Close(); err != nil {
			return nil, err
		}
	}
	return ranks, nil
}

// rankOf turns the values of one row into a rank; names has the top-level name
// of each leaf column.
func rankOf(values parquet.Row, names []string, job string) row.Rank {
	r := row.Rank{Job: job}
	for _, v := range values {
		if c := v.Column(); c >= 0 && c < len(names) && !v.IsNull() {
			setRank(&r, names[c], v)
		}
	}
	return r
}

func setRank(r *row.Rank, name string, v parquet.Value) {
	switch name {
	case "rank":
		r.Rank = uint32(number(v))
	case "incarnation":
		r.Incarnation = uint64(number(v))
	case "world_size":
		r.WorldSize = uint32(number(v))
	case "local_rank":
		r.LocalRank = uint16(number(v))
	case "node":
		r.Node = text(v)
	case "device":
		r.Device = text(v)
	case "pod":
		r.Pod = text(v)
	case "pid":
		r.PID = uint32(number(v))
	case "boot_id":
		r.BootID = text(v)
	case "started_ns":
		r.StartedNs = number(v)
	case "ended_ns":
		r.EndedNs = number(v)
	case "groups":
		r.Groups = append(r.Groups, text(v))
	case "group_ranks":
		if v.RepetitionLevel() < 2 { // a new group
			r.GroupRanks = append(r.GroupRanks, nil)
		}
		last := len(r.GroupRanks) - 1
		r.GroupRanks[last] = append(r.GroupRanks[last], uint32(number(v)))
	case "writer":
		r.Writer = text(v)
	case "version":
		r.Version = uint32(number(v))
	}
}

// number returns an integer column's value; a column of another type gives 0.
func number(v parquet.Value) int64 {
	switch v.Kind() {
	case parquet.Int64:
		return v.Int64()
	case parquet.Int32:
		return int64(v.Int32())
	}
	return 0
}

func text(v parquet.Value) string {
	if v.Kind() == parquet.ByteArray || v.Kind() == parquet.FixedLenByteArray {
		return string(v.ByteArray())
	}
	return ""
}
