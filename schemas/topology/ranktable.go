package topology

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// RankTableFile is the rank table that Ascend jobs mount: MindCluster writes it, and HCCL,
// CANN's collective library, reads it.
const RankTableFile = "hccl.json"

// rankServer is a server by one or more of its names; tables differ in which they have.
type rankServer struct {
	Name    string `json:"server_name"`
	Host    string `json:"host_name"`
	ID      string `json:"server_id"`
	IP      string `json:"host_ip"`
	SN      string `json:"server_sn"`
	Devices []struct {
		Rank json.RawMessage `json:"rank_id"`
	} `json:"device"`
}

// node returns the name that a cluster most likely has for the server.
func (s *rankServer) node() string { return cmp.Or(s.Name, s.Host, s.ID, s.IP, s.SN) }

// readRankTable reads an hccl.json: which rank runs on which server. A server is named
// by its host name where the table has it, else by its id, address or serial number.
func readRankTable(path string) (*File, error) {
	b, err := readFile(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("read rank table: %w", err)
	}

	return parseRankTable(path, b)
}

// parseRankTable is readRankTable for the content of a file; name stands in errors.
func parseRankTable(name string, b []byte) (*File, error) {
	// A table has one of two forms: server_list (version 1.0 and later) or group_list (before).
	var t struct {
		Status  string       `json:"status"`
		Servers []rankServer `json:"server_list"`
		Groups  []struct {
			Instances []struct {
				Rank json.RawMessage `json:"rank_id"`
				rankServer
			} `json:"instance_list"`
		} `json:"group_list"`
	}
	if err := json.Unmarshal(b, &t); err != nil {
		return nil, fmt.Errorf("rank table %s: %w", name, describe(b, err))
	}

	if t.Status != "" && t.Status != "completed" {
		return nil, fmt.Errorf("rank table %s: status is %q; it is usable once that is completed", name, t.Status)
	}

	f := &File{Nodes: map[string][]int{}}
	var wrong error // the first rank_id that is none
	add := func(s rankServer, number json.RawMessage) {
		rank, err := rankNumber(number)
		wrong = cmp.Or(wrong, err)
		f.Nodes[s.node()] = append(f.Nodes[s.node()], rank)
	}
	for _, s := range t.Servers {
		for _, d := range s.Devices {
			add(s, d.Rank)
		}
	}

	for _, g := range t.Groups {
		for _, i := range g.Instances {
			add(i.rankServer, i.Rank)
		}
	}

	if wrong != nil {
		return nil, fmt.Errorf("rank table %s: %w", name, wrong)
	}

	if ranks, ok := f.Nodes[""]; ok {
		return nil, fmt.Errorf("rank table %s: the server of rank %d has no name in host_name, server_id, host_ip or server_sn", name, ranks[0])
	}

	if len(f.Nodes) == 0 {
		return nil, fmt.Errorf("rank table %s: neither server_list nor group_list names a rank", name)
	}

	if err := f.validate(); err != nil {
		return nil, fmt.Errorf("rank table %s: %w", name, err)
	}

	return f, nil
}

// rankNumber reads a rank_id, which tables of most versions write as a string; a missing
// one is 0.
func rankNumber(b json.RawMessage) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}

	v, err := strconv.Atoi(strings.Trim(string(b), `"`))
	if err != nil {
		return 0, fmt.Errorf("%.40s is no rank number", b)
	}

	return v, nil
}
