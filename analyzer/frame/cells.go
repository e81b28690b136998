package frame

import "github.com/laggard-dev/laggard/schemas/row"

// Cells makes the cells of a step's column out of one rank's row, NaN where nothing
// was recorded. Of a step in which Communication was switched only the times without
// it count.
func Cells(s *row.Step, v *[MetricCount]float32) {
	*v = [MetricCount]float32{
		Step: seconds(s.StepNs), FP: seconds(s.FPNs), Backward: seconds(s.BackwardNs),
		DataLoader: seconds(s.DataLoaderNs), Checkpoint: seconds(s.CheckpointNs), Tokens: NaN,
		Comm: NaN, Exposed: NaN, TP: NaN, PP: NaN, DP: NaN, CP: NaN, EP: NaN, Other: NaN, Self: NaN,
	}
	if s.Tokens > 0 {
		v[Tokens] = float32(s.Tokens)
	}

	if s.Flags&row.FlagSwitched != 0 {
		return
	}

	v[Comm], v[Exposed], v[Self] = seconds(s.CommNs), seconds(s.ExposedNs), seconds(selfNs(s))
	v[TP], v[PP], v[DP] = seconds(s.CommTPNs), seconds(s.CommPPNs), seconds(s.CommDPNs)
	v[CP], v[EP], v[Other] = seconds(s.CommCPNs), seconds(s.CommEPNs), seconds(s.CommOtherNs)
}

// seconds is a duration of a row, NaN when it was not recorded.
func seconds(ns int64) float32 {
	if ns < 0 {
		return NaN
	}

	return float32(float64(ns) / 1e9)
}

// selfNs is the row's self time, made from its parts where it has none.
func selfNs(s *row.Step) int64 {
	if s.SelfNs >= 0 {
		return s.SelfNs
	}

	if s.ExposedNs < 0 || s.CommNs < 0 {
		return -1
	}

	return max(0, s.StepNs-s.ExposedNs-max(0, s.DataLoaderNs)-max(0, s.CheckpointNs))
}
