package agent

import (
	"log/slog"
	"time"

	"github.com/laggard-dev/laggard/collector/switchboard/endpoint"
	"github.com/laggard-dev/laggard/writer/intake"
)

// Options are an agent's settings, checked.
type Options struct {
	RingDir string // where recorders make their rings
	Dir     string // the profiling directory: <dir>/<job>/<rank>/<unix seconds>
	Store   string // parquet:DIR or clickhouse://…; "" keeps files only
	// Node and Pod are stored where a recorder's identity names none.
	Node, Pod string
	// Cap is the most bytes of Dir, SegmentBytes of one segment file.
	Cap, SegmentBytes int64
	Format            string // of the segments' lines: laggard or taskd
	Compress          bool   // closed segments to .zst
	// TrustUIDs are users whose rings and files are taken, beside our own, root and the
	// owner of a job's directory.
	TrustUIDs []uint32
	// Intake says what is stored of the lines, and within which memory; Flush is the
	// longest time that a finished row waits.
	Intake intake.Options
	Flush  time.Duration
	// SwitchFile is TaskD's profilingSwitch file to obey, SwitchServer another agent
	// whose switch of the job JobName is followed; zero values: none.
	SwitchFile   string
	SwitchServer string
	JobName      string // namespace/name
	// Job is the job of the recorders where that is known at the start, "" else: with Node it
	// chooses the shard of a cluster.
	Job string
	// Listen is where the switch listens, as Endpoint says; Metrics the HTTP address of
	// /metrics, /healthz and /readyz, "" none.
	Listen   []string
	Endpoint endpoint.Options
	Metrics  string
	// UntilIdle is how long every recorder has been gone when the agent leaves, 0 it
	// stays; Grace the time from SIGTERM until it has left.
	UntilIdle, Grace time.Duration
	Logger           *slog.Logger
}
