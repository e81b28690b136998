package fleet

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/laggard-dev/laggard/analyzer/source"
	"github.com/laggard-dev/laggard/analyzer/watch"
	"github.com/laggard-dev/laggard/schemas/clickhouse/chtest"
	"github.com/laggard-dev/laggard/writer/clickhouse"
)

// jobs are many jobs in one store, of 64 ranks each, in eight nodes; rank 11 of every tenth
// is slow from its step 20 on.
type jobs struct {
	*chtest.Server
	database string
	began    int64 // of step 0, ns
}

const ranksOfJob = 64

// add adds steps from…to of the jobs first…last, with their identities at step 0.
func (j *jobs) add(first, last, from, to int) {
	steps, n := to-from, (last-first)*(to-from)*ranksOfJob
	self := fmt.Sprintf("toInt64(900000000 * (1 + (intHash64(number + %d) %% 1000) / 50000) * if(n %% 10 = 0 AND r = 11 AND s >= 20, 1.4, 1))", from*7919)
	j.Exec(fmt.Sprintf("INSERT INTO %s.steps (job, rank, incarnation, node, step, repeat, start_ns, step_ns, fp_ns, fp_count, comm_ns, exposed_ns, comm_tp_ns, comm_pp_ns, "+
		"comm_dp_ns, comm_cp_ns, comm_ep_ns, comm_other_ns, dataloader_ns, checkpoint_ns, checkpoint_count, self_ns, host_fp_ns, tokens, flags, backward_ns) "+
		"SELECT job, r, r + 1, node, s, 0, %d + s * 5000000000, 4900000000, intDiv(self, 3), 8, 4900000000 - self, 4900000000 - self, -1, -1, 4900000000 - self, -1, -1, 0, 1000000, -1, 0, self, -1, -1, 0, -1 FROM "+
		"(SELECT toUInt32(%d + intDiv(number, %d)) AS n, toUInt32(number %% %d) AS r, toUInt64(%d + intDiv(number, %d) %% %d) AS s, concat('job-', toString(n)) AS job, "+
		"concat('node-', toString(n), '-', toString(intDiv(r, 8))) AS node, %s AS self FROM numbers(%d))",
		j.database, j.began, first, steps*ranksOfJob, ranksOfJob, from, ranksOfJob, steps, self, n))
	if from > 0 {
		return
	}

	j.Exec(fmt.Sprintf("INSERT INTO %s.ranks (job, rank, incarnation, world_size, node, started_ns, groups, group_ranks, version) "+
		"SELECT concat('job-', toString(n)), r, r + 1, %d, concat('node-', toString(n), '-', toString(intDiv(r, 8))), %d, [concat('dp:dp-0:', toString(r), ':%d')], [range(%d)], 1 FROM "+
		"(SELECT toUInt32(%d + intDiv(number, %d)) AS n, toUInt32(number %% %d) AS r FROM numbers(%d))",
		j.database, ranksOfJob, j.began-1, ranksOfJob, ranksOfJob, first, ranksOfJob, ranksOfJob, (last-first)*ranksOfJob))
}

// BenchmarkWatch follows 1,000 jobs × 64 ranks in one store: the first look, a look at
// nothing new, looks at two more steps of every job, and at jobs that have come while as
// many have gone. It reports seconds and processor seconds of each look, and the memory.
func BenchmarkWatch(b *testing.B) {
	const running, history = 1000, 40
	server := chtest.Start(b)
	j := &jobs{Server: server, database: server.Database(), began: time.Now().Add(-20 * time.Minute).UnixNano()}
	sink, err := clickhouse.Open(server.Store(j.database), clickhouse.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer sink.Close()
	if err := sink.Create(b.Context()); err != nil {
		b.Fatal(err)
	}

	j.add(0, running, 0, history)
	for b.Loop() {
		live, err := source.OpenLive(server.Store(j.database), source.Options{})
		if err != nil {
			b.Fatal(err)
		}

		before := heap()
		w, err := watch.New(watch.Options{Source: live})
		if err != nil {
			b.Fatal(err)
		}

		look := func(what string) {
			began, used := time.Now(), processor()
			if err := w.Look(b.Context()); err != nil {
				b.Fatal(err)
			}

			b.ReportMetric(time.Since(began).Seconds(), what+"-s")
			b.ReportMetric((processor() - used).Seconds(), what+"-cpu-s")
		}
		look("first")
		look("quiet")
		j.add(0, running, history, history+2)
		look("steps")
		j.add(running, running+100, 0, history) // and 100 go on no more
		j.add(100, running, history+2, history+4)
		look("coming")
		b.ReportMetric(float64(heap()-before)/(1<<20), "MiB")
		status, slow := w.Status(), 0
		for _, job := range status.Jobs {
			if job.Verdict != nil && len(job.Verdict.Nodes) > 0 {
				slow++
			}
		}

		if len(status.Jobs) != running+100 || slow != (running+100)/10 {
			b.Errorf("%d jobs, %d with a culprit", len(status.Jobs), slow)
		}

		if err := w.Close(); err != nil {
			b.Fatal(err)
		}

		if err := live.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// heap returns the bytes in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

// processor returns the time that this process has used.
func processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}

	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
