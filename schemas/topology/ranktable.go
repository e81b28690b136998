package topology

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// RankTableFile is the rank table that Ascend jobs mount.
const RankTableFile = "hccl.json"

// rankTable is an hccl.json, in its two forms: server_list (version 1.0 and
// later) and group_list (before).
type rankTable struct {
	Status  string       `json:"status"`
	Servers []rankServer `json:"server_list"`
	Groups  []struct {
		Instances []struct {
			Rank   number `json:"rank_id"`
			Server string `json:"server_id"`
		} `json:"instance_list"`
	} `json:"group_list"`
}

type rankServer struct {
	ID      string `json:"server_id"`
	Name    string `json:"server_name"`
	Host    string `json:"host_name"`
	Devices []struct {
		Rank number `json:"rank_id"`
	} `json:"device"`
}

// number is an integer that may be written as a string.
type number int

// UnmarshalJSON implements json.Unmarshaler.
func (n *number) UnmarshalJSON(b []byte) error {
	v, err := strconv.Atoi(strings.Trim(string(b), `"`))
	if err != nil {
		return fmt.Errorf("%.40s is no rank number", b)
	}
	*n = number(v)
	return nil
}

// RankTable reads an hccl.json: which rank runs on which server. A server is named
// by its host name where the table has it, else by its server_id.
func RankTable(path string) (*File, error) {
	b, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("read rank table: %w", err)
	}
	return ParseRankTable(path, b)
}

// ParseRankTable is RankTable for the content of a file; name stands in errors.
func ParseRankTable(name string, b []byte) (*File, error) {
	var t rankTable
	if err := json.Unmarshal(b, &t); err != nil {
		return nil, fmt.Errorf("rank table %s: %w", name, describe(b, err))
	}
	if t.Status != "" && t.Status != "completed" {
		return nil, fmt.Errorf("rank table %s: status is %q; it is usable once that is completed", name, t.Status)
	}
	f := &File{Nodes: map[string][]int{}}
	for _, s := range t.Servers {
		node := s.ID
		for _, n := range [...]string{s.Host, s.Name} {
			if n != "" {
				node = n
			}
		}
		for _, d := range s.Devices {
			f.Nodes[node] = append(f.Nodes[node], int(d.Rank))
		}
	}
	for _, g := range t.Groups {
		for _, i := range g.Instances {
			f.Nodes[i.Server] = append(f.Nodes[i.Server], int(i.Rank))
		}
	}
	if len(f.Nodes) == 0 {
		return nil, fmt.Errorf("rank table %s: neither server_list nor group_list names a rank", name)
	}
	if err := f.Validate(); err != nil {
		return nil, fmt.Errorf("rank table %s: %w", name, err)
	}
	return f, nil
}
