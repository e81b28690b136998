package tail

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/laggard-dev/laggard/writer/segment"
)

// foreignOwner is the reason of a Loss: a file of somebody who is not trusted, which is not
// read.
const foreignOwner = "foreign-owner"

// list lists the segments of the directory whose owners are trusted: ourselves, root,
// the owner of the job's directory and Options.TrustUIDs. Of the others it is told
// once what they hold.
func (s *Stream) list() ([]segment.Info, error) {
	infos, err := segment.List(s.Dir.Path)
	if err != nil {
		return nil, err
	}

	owner, known := uint32(0), false
	return slices.DeleteFunc(infos, func(i segment.Info) bool {
		if i.UID == 0 || i.UID == uint32(os.Geteuid()) || slices.Contains(s.tree.o.TrustUIDs, i.UID) {
			return false
		}

		if !known { // the usual case does not come here
			owner, _ = segment.Owner(filepath.Dir(s.Dir.Path)) // root where it is not to be known
			known = true
		}

		if i.UID == owner {
			return false
		}

		s.refuse(i)
		return true
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
	s.lose(&file{name: segment.Plain(i.Name)}, Loss{Reason: foreignOwner, Bytes: i.Size})
}
