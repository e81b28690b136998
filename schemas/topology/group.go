package topology

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/laggard-dev/laggard/schemas/record"
)

// ParallelGroupFile is what TaskD's dump_group_info writes into each rank's
// directory: its communicators, by HCCL name.
const ParallelGroupFile = "parallel_group.json"

// maxGroups bounds the groups of one rank, which are a dozen in a large job.
const maxGroups = 1 << 10

// taskdGroup is one value of parallel_group.json.
type taskdGroup struct {
	Name  string `json:"group_name"` // tp, pp, dp, cp, exp, mp, embd, default_group, …
	Rank  int    `json:"group_rank"`
	Ranks []int  `json:"global_ranks"`
}

// ParallelGroup reads a parallel_group.json: the groups that one rank is in,
// sorted by communicator name.
func ParallelGroup(path string) ([]record.Group, error) {
	return load("parallel groups", path, maxGroupFile, parseParallelGroup)
}

// parseParallelGroup is ParallelGroup for the content of a file.
func parseParallelGroup(b []byte) ([]record.Group, error) {
	var all map[string]taskdGroup
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, describe(b, err)
	}

	if len(all) > maxGroups {
		return nil, fmt.Errorf("%d groups of one rank, want %d at most", len(all), maxGroups)
	}

	groups := make([]record.Group, 0, len(all))
	for comm, g := range all {
		if comm == "" || g.Name == "" || len(g.Ranks) == 0 {
			return nil, fmt.Errorf("%q: want group_name and global_ranks; write the file again with dump_group_info", comm)
		}

		sorted := slices.Sorted(slices.Values(g.Ranks))
		for i, r := range sorted {
			if r < 0 || r >= maxWorld || i > 0 && r == sorted[i-1] {
				return nil, fmt.Errorf("%q.global_ranks: rank %d is out of bounds or listed twice", comm, r)
			}
		}

		if g.Rank < 0 || g.Rank >= len(g.Ranks) {
			return nil, fmt.Errorf("%q.group_rank: %d is no position in a group of %d", comm, g.Rank, len(g.Ranks))
		}

		groups = append(groups, record.Group{Dim: Dim(g.Name), Name: comm, Index: g.Rank, Size: len(g.Ranks), Ranks: g.Ranks})
	}

	slices.SortFunc(groups, func(a, b record.Group) int { return strings.Compare(a.Name, b.Name) })
	return groups, nil
}

// FormatParallelGroup is the text of a parallel_group.json that says what groups do, as
// TaskD's dump_group_info writes it.
func FormatParallelGroup(groups []record.Group) ([]byte, error) {
	table := map[string]taskdGroup{}
	for _, g := range groups {
		dim := g.Dim
		if dim == "ep" {
			dim = "exp" // TaskD's word
		}

		table[g.Name] = taskdGroup{dim, g.Index, g.Ranks}
	}

	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetIndent("", "    ")
	e.SetEscapeHTML(false) // as Python writes it
	err := e.Encode(table)
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), err
}

// heldMembers bounds the members of groups that GroupsOf holds for a rank: 128 KiB. It is asked for
// each rank that is followed, and in large jobs the largest groups are those of all ranks.
const heldMembers = 1 << 14

// GroupsOf returns what reads the parallel_group.json of a rank's directory. It may not be there yet:
// TaskD writes it some steps into a job, and again in the process that takes another's place. Each call returns
// what the file says now: the same slice while it says the same. A file that is half written, or gone, changes
// nothing (what is wrong with it, DiscoverAll says). Of the largest groups the size alone is held. The
// function is not safe for concurrent use.
func GroupsOf(rankDir string) func() []record.Group {
	path := filepath.Join(rankDir, ParallelGroupFile)
	var seen fs.FileInfo
	var groups []record.Group
	return func() []record.Group {
		now, err := os.Lstat(path)
		if err != nil || seen != nil && os.SameFile(now, seen) && now.Size() == seen.Size() && now.ModTime().Equal(seen.ModTime()) {
			return groups
		}

		seen = now
		said, err := ParallelGroup(path)
		fit(said)
		if err == nil && !slices.EqualFunc(said, groups, sameGroup) {
			groups = said
		}

		return groups
	}
}

// fit takes the members away of the largest groups, as many as are beyond heldMembers.
func fit(groups []record.Group) {
	bySize := make([]*record.Group, len(groups))
	for i := range groups {
		bySize[i] = &groups[i]
	}

	slices.SortStableFunc(bySize, func(a, b *record.Group) int { return cmp.Compare(a.Size, b.Size) })
	held := 0
	for _, g := range bySize {
		if held += len(g.Ranks); held > heldMembers {
			g.Ranks = nil
			continue
		}

		g.Ranks = slices.Clone(g.Ranks) // the parser's may have room for twice as many
	}
}

// sameGroup reports whether two groups say the same: a file that was written again is mostly the one before.
func sameGroup(a, b record.Group) bool {
	return a.Dim == b.Dim && a.Name == b.Name && a.Index == b.Index && a.Size == b.Size && slices.Equal(a.Ranks, b.Ranks)
}

// fromGroups makes a topology of the groups that ranks know to be in, with their
// communicators' names. Groups whose ranks are not listed are left out, equal ones
// (same dimension, same ranks) appear once, under the first name in order.
func fromGroups(groups []record.Group) *File {
	f := &File{}
	for _, g := range groups {
		if g.Name == "" || g.Dim == "" || len(g.Ranks) == 0 || slices.Min(g.Ranks) < 0 || slices.Max(g.Ranks) >= maxWorld {
			continue
		}

		f.WorldSize = max(f.WorldSize, slices.Max(g.Ranks)+1)
		if d := Dim(g.Dim); d != "default_group" {
			f.Groups = append(f.Groups, Group{Name: g.Name, Dim: d, Ranks: g.Ranks})
		}
	}

	slices.SortFunc(f.Groups, func(a, b Group) int {
		return cmp.Or(strings.Compare(a.Dim, b.Dim), slices.Compare(a.Ranks, b.Ranks), strings.Compare(a.Name, b.Name))
	})
	f.Groups = slices.CompactFunc(f.Groups, func(a, b Group) bool { return a.Dim == b.Dim && slices.Equal(a.Ranks, b.Ranks) })
	f.uniqueNames()
	return f
}

// uniqueNames makes names differ: two jobs' halves may have used one communicator
// name for different ranks.
func (f *File) uniqueNames() {
	seen := map[string]int{}
	for i := range f.Groups {
		g := &f.Groups[i]
		n := seen[g.Name]
		seen[g.Name]++
		if n > 0 {
			g.Name += "#" + strconv.Itoa(n+1)
		}
	}
}

// FormatGroup returns a group as row.Rank.Groups holds it: dim:name:index:size.
func FormatGroup(g record.Group) string {
	return g.Dim + ":" + g.Name + ":" + strconv.Itoa(g.Index) + ":" + strconv.Itoa(g.Size)
}

// SplitGroup takes what FormatGroup made apart, all but the size. A communicator's name may hold
// colons (an IPv6 address). The index is -1 where the text is no group's: what it begins with is
// returned all the same.
func SplitGroup(text string) (dim, name string, index int) {
	dim, name, _ = strings.Cut(text, ":")
	end := strings.LastIndexByte(name, ':')
	if end < 0 {
		return dim, name, -1
	}

	// From the end, for the name may be anybody's.
	_, wrong := strconv.Atoi(name[end+1:])
	name = name[:end]
	if end = strings.LastIndexByte(name, ':'); end < 0 {
		return dim, name, -1
	}

	index, err := strconv.Atoi(name[end+1:])
	if err != nil || wrong != nil {
		index = -1
	}

	return dim, name[:end], index
}
