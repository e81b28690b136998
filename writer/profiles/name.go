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
	return cmp.Or(cmp.Compare(padded(a), padded(b)), cmp.Compare(a, b))
}

// padded is a name with zeros before its numbers, so that those of up to 20 digits are of one length.
func padded(name string) string {
	return digits.ReplaceAllStringFunc(name, func(n string) string { return strings.Repeat("0", max(0, 20-len(n))) + n })
}
