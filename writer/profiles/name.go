package profiles

import (
	"cmp"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// What the names of files tell, where their content doesn't: whose profile it is.

// exported is how PyTorch's tensorboard_trace_handler names a file: <worker>.<ms or ns since
// 1970>.pt.trace.json, the worker being <host>_<pid> unless the script names it.
var exported = regexp.MustCompile(`^(.+?)\.(\d{13}|\d{19})\.pt\.trace\.json(?:\.gz)?$`)

// workerOf returns what the files of one process have in common in their names.
func workerOf(name string) string {
	if m := exported.FindStringSubmatch(path.Base(name)); m != nil {
		return path.Join(path.Dir(name), m[1])
	}

	return name
}

var (
	// rankWord is a rank in a name: rank0, rank-0, dp0_pp0_tp3_rank3.
	rankWord = regexp.MustCompile(`(?i)rank[-_.]?(\d{1,6})`)
	// placeWord is what often stands for one: worker0_step_12, device_3, npu3.
	placeWord = regexp.MustCompile(`(?i)(?:worker|device|npu|gpu)[-_.]?(\d{1,6})`)
	// hostAndPID is a worker that the script does not name: job-worker-3_4711.
	hostAndPID = regexp.MustCompile(`^(.+)_(\d+)$`)
	// counted is a worker that a script names, with a count of its own: worker0_step_12.
	counted = regexp.MustCompile(`(?i)^(?:worker|device|npu|gpu)[-_.]?\d|(?:step|iter|iteration|epoch)[-_]?\d+$`)
)

// hostOf returns host and process of a file that tensorboard_trace_handler named for them. A host may
// be called worker-3, for pods are.
func hostOf(name string) (host string, pid int) {
	m := exported.FindStringSubmatch(path.Base(name))
	if m == nil || rankWord.MatchString(m[1]) || counted.MatchString(m[1]) {
		return "", 0
	}

	w := hostAndPID.FindStringSubmatch(m[1])
	if w == nil {
		return "", 0
	}

	pid, _ = strconv.Atoi(w[2])
	return w[1], pid
}

// rankOfName returns the rank that a file, or a folder it lies in, is named for; unknownRank
// where none is.
func rankOfName(name string) int {
	for ; name != "." && name != "/" && name != ""; name = path.Dir(name) {
		m := rankWord.FindStringSubmatch(path.Base(name))
		if host, _ := hostOf(name); m == nil && host == "" {
			m = placeWord.FindStringSubmatch(path.Base(name))
		}

		if m != nil {
			n, _ := strconv.Atoi(m[1]) // six digits
			return n
		}
	}

	return unknownRank
}

// byName says where the number of a rank comes from, and what to do, if that is its file's name.
func byName(r *rankOutput) string {
	if !r.named {
		return ""
	}

	return "; they tell no rank, so it is taken from their names: call them rank<N>.json, counted over all hosts"
}

// compareNames orders names as people count: trace_2 before trace_10.
func compareNames(a, b string) int {
	whole := cmp.Compare(a, b)
	for a != "" && b != "" {
		x, y := leading(a), leading(b)
		if x == "" || y == "" {
			if a[0] != b[0] {
				return cmp.Compare(a[0], b[0])
			}

			a, b = a[1:], b[1:]
			continue
		}

		m, n := strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		if c := cmp.Or(cmp.Compare(len(m), len(n)), cmp.Compare(m, n)); c != 0 {
			return c
		}

		a, b = a[len(x):], b[len(y):]
	}

	return cmp.Or(cmp.Compare(len(a), len(b)), whole)
}

// leading returns the digits that a name begins with.
func leading(s string) string {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}

	return s[:i]
}
