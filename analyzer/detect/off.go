package detect

import (
	"fmt"
	"slices"
	"time"

	"github.com/laggard-dev/laggard/analyzer/frame"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// maxOffs is how many stretches of recording off are told one by one.
const maxOffs = 4

// tellOff says in a verdict when recording was off. Where it is, nobody is found healthy
// by what was recorded before.
func tellOff(v *verdict.Verdict, off []frame.Off) {
	if n := len(off) - maxOffs; n > 0 {
		addFinding(v, verdict.Finding{Kind: verdict.RecordingOff, Detail: fmt.Sprintf(
			"recording was off %d times, from %s to %s; the last %d times follow", len(off), moment(off[0].FromNs), moment(off[n-1].ToNs), maxOffs)})
		off = off[n:]
	}

	for _, o := range off {
		f := verdict.Finding{Kind: verdict.RecordingOff, Detail: "recording has been off since " + moment(o.FromNs)}
		if o.ToNs != 0 {
			f.Detail = fmt.Sprintf("recording was off from %s to %s", moment(o.FromNs), moment(o.ToNs))
		}

		if !o.All {
			f.Ranks = o.Ranks
		}

		addFinding(v, f)
		if o.All && o.ToNs == 0 {
			v.Decided = v.Exit(0) == verdict.ExitDegraded
			v.Healthy = false
			// Why there is too little is known.
			v.Findings = slices.DeleteFunc(v.Findings, func(f verdict.Finding) bool { return f.Kind == verdict.LowCoverage })
		}
	}
}

func moment(ns int64) string { return time.Unix(0, ns).UTC().Format("2006-01-02 15:04:05 UTC") }
