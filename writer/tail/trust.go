package tail

import (
	"fmt"
	"slices"

	"github.com/laggard-dev/laggard/writer/segment"
)

// foreignOwner is the reason of a loss: a file of somebody who is not trusted, which is not
// read.
const foreignOwner = "foreign-owner"

// list lists the segments of the directory whose owners are trusted (segment.Trusts). Of the
// others it is told once what they hold.
func (s *Stream) list() ([]segment.Info, error) {
	infos, err := segment.List(s.Dir.Path)
	if err != nil {
		return nil, err
	}

	trusts := segment.Trusts(s.Dir.Path, s.tree.o.TrustUIDs)
	return slices.DeleteFunc(infos, func(i segment.Info) bool {
		if !trusts(i.UID) {
			s.refuse(i)
		}

		return !trusts(i.UID)
	}), nil
}

// refuse counts a file that is not read, the first time that it is met.
func (s *Stream) refuse(i segment.Info) {
	if s.refused[i.Number] {
		return
	}

	if s.refused == nil {
		s.refused = map[int64]bool{}
	}

	s.refused[i.Number] = true
	s.tree.o.Logger.Warn("file of another user is not read", "dir", s.Dir.Path, "segment", i.Name, "uid", i.UID, "advice", fmt.Sprintf("--trust-uid %d", i.UID))
	s.lose(&file{name: segment.Plain(i.Name), number: i.Number}, foreignOwner, i.Size, 0)
}
