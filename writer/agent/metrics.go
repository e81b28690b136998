package agent

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laggard-dev/laggard/schemas/record"
)

// description is a metric's name, under laggard_, and what its labels are.
func description(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("laggard_"+name, help, labels, nil)
}

// The metrics, by name.
var (
	drainedTotal     = description("records_drained_total", "Records taken from rings into segments.", "kind")
	openTotal        = description("records_open_total", "Ranges that never ended (a hang or a kill).", "kind")
	droppedTotal     = description("records_dropped_total", "Records that were emitted and did not arrive, by reason.", "reason")
	agedTotal        = description("records_aged_total", "Records deleted under the disk cap before they were shipped.")
	recorders        = description("recorders", "Training processes whose rings are drained now.")
	foldersIgnored   = description("ring_folders_ignored", "Ring folders left alone now: of another version, damaged, not trusted.")
	foldersRefused   = description("ring_folders_refused_total", "Ring folders that were left alone, by reason.", "reason")
	foldersWaiting   = description("ring_folders_waiting", "Ring folders that wait for their turn: a user has more than are held at once, or descriptors are scarce.")
	ranksClaimed     = description("ranks_claimed_twice", "Ranks that two living processes claim now.")
	ringsGauge       = description("rings", "Ring files of these processes.")
	drainLag         = description("drain_lag_seconds", "Age of the oldest record of the last pass.")
	writeErrors      = description("segment_write_errors_total", "Errors of segment files (disk full, I/O).")
	damagedTotal     = description("rings_damaged_total", "Rings and process files that became too short to read.")
	segmentsAged     = description("segments_aged_total", "Segments deleted under the disk cap, by whether they were shipped.", "shipped")
	agedBytes        = description("aged_bytes_total", "Bytes freed under the disk cap.")
	treeBytes        = description("tree_bytes", "Bytes of the profiling directory at the last look.")
	overBytes        = description("tree_over_cap_bytes", "Bytes over the cap with nothing left that may be deleted.")
	rowsStored       = description("rows_stored_total", "Rows stored, by table.", "table")
	rowsFound        = description("rows_found_total", "Rows that the store had already, by table.", "table")
	rowsPoisoned     = description("rows_poisoned_total", "Rows that the store refused, kept as dead letters, by table.", "table")
	batchesTotal     = description("batches_total", "Inserts that the store acknowledged.")
	retriesTotal     = description("store_retries_total", "Calls to the store that failed and were repeated.")
	doubtsTotal      = description("store_doubts_total", "Inserts that were not acknowledged and had to be looked up.")
	roundsUncopied   = description("store_uncopied_rounds", "Rounds of inserts that are stored in one replica, and wait for a second one before they are acknowledged.")
	roundsSingle     = description("store_single_copies_total", "Rounds of inserts that were acknowledged with one copy, for no second replica had them in time.")
	storeFailing     = description("store_failing_seconds", "For how long the store has been failing; 0 when it is well.")
	lastAck          = description("store_last_ack_timestamp_seconds", "When the store last acknowledged an insert.")
	pendingRows      = description("pending_rows", "Rows read and not yet acknowledged.")
	backlogBytes     = description("backlog_bytes", "Bytes on disk that were seen and not read yet.")
	ranksShipped     = description("ranks_shipped", "Rank directories that this agent ships.")
	ranksForeign     = description("ranks_foreign", "Rank directories that another process ships.")
	linesTotal       = description("lines_read_total", "Lines read from segments.")
	lostWhileReading = description("reading_losses_total", "Times that something on disk was lost before it was read, by reason.", "reason")
	alteredTotal     = description("records_altered_total", "Records stored otherwise than they came: with a word cut, without waiting for the end of their step, with groups without their members, or without their groups.", "reason")
)

// metrics turns the parts' counters into Prometheus metrics when they are asked for: the
// parts know nothing of Prometheus. It is a prometheus.CollectorFunc.
func (a *agent) metrics(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	a.drainMetrics(counter, gauge)
	a.ageingMetrics(counter, gauge)
	if a.follower != nil {
		a.followerMetrics(counter, gauge)
	}
}

// emit sends a metric with the values of its labels.
type emit func(d *prometheus.Desc, v float64, labels ...string)

// drainMetrics reports what came out of the rings, and what was lost before it did, by reason.
func (a *agent) drainMetrics(counter, gauge emit) {
	s := a.drain.Stats()
	for k := range s.Drained {
		kind := record.Kind(k).String()
		counter(drainedTotal, float64(s.Drained[k]), kind)
		counter(openTotal, float64(s.Open[k]), kind)
	}

	for reason, n := range s.Dropped {
		counter(droppedTotal, float64(n), reason)
	}

	counter(writeErrors, float64(s.WriteErrors))
	counter(damagedTotal, float64(s.Damaged))
	gauge(recorders, float64(s.Processes))
	gauge(foldersIgnored, float64(s.Ignored))
	for reason, n := range s.Refused {
		counter(foldersRefused, float64(n), reason)
	}

	gauge(foldersWaiting, float64(s.Waiting))
	gauge(ranksClaimed, float64(s.Claimed))
	gauge(ringsGauge, float64(s.Rings))
	gauge(drainLag, s.Lag.Seconds())
}

// ageingMetrics reports what was deleted under the disk cap, and what is there now.
func (a *agent) ageingMetrics(counter, gauge emit) {
	s := a.ageing.Stats()
	counter(agedTotal, float64(s.Records))
	counter(segmentsAged, float64(s.Shipped), "true")
	counter(segmentsAged, float64(s.Segments-s.Shipped), "false")
	counter(agedBytes, float64(s.Bytes))
	gauge(treeBytes, float64(s.Tree))
	gauge(overBytes, float64(s.Over))
}

// followerMetrics reports what is shipped, in doubt and behind, since the agent's start.
func (a *agent) followerMetrics(counter, gauge emit) {
	s := a.follower.Stats()
	for table, t := range s.Tables {
		counter(rowsStored, float64(t.Inserted), table)
		counter(rowsFound, float64(t.Found), table)
		counter(rowsPoisoned, float64(t.Poisoned), table)
	}

	counter(batchesTotal, float64(s.Batches))
	counter(retriesTotal, float64(s.Retries))
	counter(doubtsTotal, float64(s.Doubts))
	gauge(roundsUncopied, float64(s.Uncopied))
	counter(roundsSingle, float64(s.Singles))
	failing := 0.0
	if s.Failing != "" {
		failing = time.Since(s.FailingAt).Seconds()
	}

	gauge(storeFailing, failing)
	if !s.LastAck.IsZero() {
		gauge(lastAck, float64(s.LastAck.UnixNano())/1e9)
	}

	gauge(pendingRows, float64(s.PendingRows))
	st := a.follower.State()
	gauge(backlogBytes, float64(st.Backlog))
	gauge(ranksShipped, float64(st.Ranks))
	gauge(ranksForeign, float64(st.Foreign))
	counter(linesTotal, float64(a.follower.Lines()))
	for reason, l := range st.Losses {
		counter(lostWhileReading, float64(l.Events), reason)
	}

	for reason, n := range st.Altered {
		counter(alteredTotal, float64(n), reason)
	}
}
