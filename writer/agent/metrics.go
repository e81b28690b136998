package agent

import (
	"time"

	"github.com/laggard-dev/laggard/schemas/record"
)

// Emit sends a metric, by its name under laggard_ and what it says, with the names of its labels and then their
// values. Names and labels are what dashboards and alerts refer to.
type Emit = func(name, help string, v float64, label ...string)

// metrics turns the parts' counters into metrics when they are asked for: the parts know nothing of them.
func (a *agent) metrics(counter, gauge Emit) {
	a.drainMetrics(counter, gauge)
	a.ageingMetrics(counter, gauge)
	if a.follower != nil {
		a.followerMetrics(counter, gauge)
	}
}

// drainMetrics reports what came out of the rings, and what was lost before it did, by reason.
func (a *agent) drainMetrics(counter, gauge Emit) {
	s := a.drain.Stats()
	for k := range s.Drained {
		kind := record.Kind(k).String()
		counter("records_drained_total", "Records taken from rings into segments.", float64(s.Drained[k]), "kind", kind)
		counter("records_open_total", "Ranges that never ended (a hang or a kill).", float64(s.Open[k]), "kind", kind)
	}

	for reason, n := range s.Dropped {
		counter("records_dropped_total", "Records that were emitted and did not arrive, by reason.", float64(n), "reason", reason)
	}

	counter("segment_write_errors_total", "Errors of segment files (disk full, I/O).", float64(s.WriteErrors))
	counter("rings_damaged_total", "Rings and process files that became too short to read.", float64(s.Damaged))
	gauge("recorders", "Training processes whose rings are drained now.", float64(s.Processes))
	gauge("ring_folders_ignored", "Ring folders left alone now: of another version, damaged, not trusted.", float64(s.Ignored))
	for reason, n := range s.Refused {
		counter("ring_folders_refused_total", "Ring folders that were left alone, by reason.", float64(n), "reason", reason)
	}

	gauge("ring_folders_waiting", "Ring folders that wait for their turn: a user has more than are held at once, or descriptors are scarce.", float64(s.Waiting))
	gauge("ranks_claimed_twice", "Ranks that two living processes claim now.", float64(s.Claimed))
	gauge("rings", "Ring files of these processes.", float64(s.Rings))
	gauge("drain_lag_seconds", "Age of the oldest record of the last pass.", s.Lag.Seconds())
}

// ageingMetrics reports what was deleted under the disk cap, and what is there now.
func (a *agent) ageingMetrics(counter, gauge Emit) {
	s := a.ageing.Stats()
	counter("records_aged_total", "Records deleted under the disk cap before they were shipped.", float64(s.Records))
	for shipped, n := range map[string]int64{"true": s.Shipped, "false": s.Segments - s.Shipped} {
		counter("segments_aged_total", "Segments deleted under the disk cap, by whether they were shipped.", float64(n), "shipped", shipped)
	}

	counter("aged_bytes_total", "Bytes freed under the disk cap.", float64(s.Bytes))
	gauge("tree_bytes", "Bytes of the profiling directory at the last look.", float64(s.Tree))
	gauge("tree_over_cap_bytes", "Bytes over the cap with nothing left that may be deleted.", float64(s.Over))
}

// followerMetrics reports what is shipped, in doubt and behind, since the agent's start.
func (a *agent) followerMetrics(counter, gauge Emit) {
	s := a.follower.Stats()
	for table, t := range s.Tables {
		counter("rows_stored_total", "Rows stored, by table.", float64(t.Inserted), "table", table)
		counter("rows_found_total", "Rows that the store had already, by table.", float64(t.Found), "table", table)
		counter("rows_poisoned_total", "Rows that the store refused, kept as dead letters, by table.", float64(t.Poisoned), "table", table)
	}

	counter("batches_total", "Inserts that the store acknowledged.", float64(s.Batches))
	counter("store_retries_total", "Calls to the store that failed and were repeated.", float64(s.Retries))
	counter("store_doubts_total", "Inserts that were not acknowledged and had to be looked up.", float64(s.Doubts))
	gauge("store_uncopied_rounds", "Rounds of inserts that are stored in one replica, and wait for a second one before they are acknowledged.", float64(s.Uncopied))
	counter("store_single_copies_total", "Rounds of inserts that were acknowledged with one copy, for no second replica had them in time.", float64(s.Singles))
	failing := 0.0
	if s.Failing != "" {
		failing = time.Since(s.FailingAt).Seconds()
	}

	gauge("store_failing_seconds", "For how long the store has been failing; 0 when it is well.", failing)
	if !s.LastAck.IsZero() {
		gauge("store_last_ack_timestamp_seconds", "When the store last acknowledged an insert.", float64(s.LastAck.UnixNano())/1e9)
	}

	gauge("pending_rows", "Rows read and not yet acknowledged.", float64(s.PendingRows))
	st := a.follower.State()
	gauge("backlog_bytes", "Bytes on disk that were seen and not read yet.", float64(st.Rest))
	gauge("ranks_shipped", "Rank directories that this agent ships.", float64(st.Ranks))
	gauge("ranks_foreign", "Rank directories that another process ships.", float64(len(st.Leased)))
	counter("lines_read_total", "Lines read from segments.", float64(st.Lines))
	for reason, l := range st.Losses {
		counter("reading_losses_total", "Times that something on disk was lost before it was read, by reason.", float64(l.Events), "reason", reason)
	}

	for reason, n := range st.Altered {
		counter("records_altered_total", "Records stored otherwise than they came: with a word cut, without waiting for the end of their step, with groups without their members, or without their groups.", float64(n), "reason", reason)
	}
}
