package topology

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// RankTableFile is the rank table that Ascend jobs mount: MindCluster writes it, and HCCL,
// CANN's collective library, reads it.
const RankTableFile = "hccl.json"

// readRankTable reads an hccl.json: which rank runs on which server. A server is named
// by its host name where the table has it, else by its id, address or serial number.
func readRankTable(path string) (*File, error) {
	return load("rank table", path, maxFile, parseRankTable)
}

// parseRankTable is readRankTable for the content of a file.
func parseRankTable(b []byte) (*File, error) {
	// Tables differ in which of a server's names they have. A rank's id is a number in some and a text in others.
	type server struct {
		Name    string `json:"server_name"`
		Host    string `json:"host_name"`
		ID      string `json:"server_id"`
		IP      string `json:"host_ip"`
		SN      string `json:"server_sn"`
		Devices []struct {
			Rank json.RawMessage `json:"rank_id"`
		} `json:"device"`
	}

	// A table has one of two forms: server_list (version 1.0 and later) or group_list (before).
	var t struct {
		Status  string   `json:"status"`
		Servers []server `json:"server_list"`
		Groups  []struct {
			Instances []struct {
				Rank json.RawMessage `json:"rank_id"`
				server
			} `json:"instance_list"`
		} `json:"group_list"`
	}
	if err := json.Unmarshal(b, &t); err != nil {
		return nil, describe(b, err)
	}

	if t.Status != "" && t.Status != "completed" {
		return nil, fmt.Errorf("status is %q; it is usable once that is completed", t.Status)
	}

	f := &File{Nodes: map[string][]int{}}
	var wrong error // the first rank_id that is none
	add := func(s server, number json.RawMessage) {
		rank, err := rankNumber(number)
		wrong = cmp.Or(wrong, err)
		node := cmp.Or(s.Name, s.Host, s.ID, s.IP, s.SN) // the name that a cluster most likely has for it
		f.Nodes[node] = append(f.Nodes[node], rank)
	}
	for _, s := range t.Servers {
		for _, d := range s.Devices {
			add(s, d.Rank)
		}
	}

	for _, g := range t.Groups {
		for _, i := range g.Instances {
			add(i.server, i.Rank)
		}
	}

	if wrong != nil {
		return nil, wrong
	}

	if ranks, ok := f.Nodes[""]; ok {
		return nil, fmt.Errorf("the server of rank %d has no name in host_name, server_id, host_ip or server_sn", ranks[0])
	}

	if len(f.Nodes) == 0 {
		return nil, errors.New("neither server_list nor group_list names a rank")
	}

	return f, f.validate()
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
