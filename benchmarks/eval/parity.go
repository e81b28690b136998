package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/analyzer/source"
	"github.com/laggard-dev/laggard/schemas/verdict"
	"github.com/laggard-dev/laggard/writer/clickhouse"
	"github.com/laggard-dev/laggard/writer/intake"
)

// parity is the account of cases that also went the product's whole way: files →
// rollup → Parquet → analyzer, and files → analyzer. All three verdicts must be
// the same, to the last digit.
type parity struct {
	cases  int
	rows   int
	differ []string
}

// String says it in words.
func (p *parity) String() string {
	s := fmt.Sprintf("%d of %d cases give the same verdict straight from rows, from files, and from a Parquet store that `ingest` made of the files (%d rows of steps).",
		p.cases-len(p.differ), p.cases, p.rows)
	for _, d := range p.differ {
		s += "\n- " + d
	}

	return s + "\n"
}

// parityRecords bounds the ranges of a case that goes through files: some 70 MB of lines.
var parityRecords = 250_000

// runParity runs n cases, the scenarios in turn from one that the seed chooses. further, nil for
// none, stores the files of case k beside the Parquet store, and names where.
func runParity(ctx context.Context, n int, seed uint64, parallel int, further func(ctx context.Context, k int, job string) (string, error), progress func(done, total int)) (*parity, error) {
	p := &parity{cases: n, differ: make([]string, n)}
	rows := make([]int, n)
	names := append(simulate.Names(), simulate.Families()...)
	err := each(ctx, n, parallel, progress, func(k int) (err error) {
		t := task{scenario: names[(seed+uint64(k))%uint64(len(names))], seed: seed + uint64(k)}
		cfg, err := t.fitting()
		if err != nil {
			return err
		}

		t.seed = cfg.Seed
		var diff string
		if rows[k], diff, err = compare(ctx, cfg, k, further); err != nil {
			return fmt.Errorf("%v through files and store: %w", t, err)
		}

		if diff != "" {
			p.differ[k] = fmt.Sprintf("%v: %s", t, diff)
		}

		return nil
	})
	for _, n := range rows {
		p.rows += n
	}

	p.differ = slices.DeleteFunc(p.differ, func(s string) bool { return s == "" })
	return p, err
}

// fitting draws the case's job, at one of the next seeds where it is too large, and
// cuts short what is too large all the same. A step of a rank has its passes, the collectives
// in them, the gradients' buckets, and a few ranges more.
func (t task) fitting() (simulate.Config, error) {
	for tries := 0; ; tries++ {
		cfg, err := t.config()
		if err != nil {
			return cfg, err
		}

		s := cfg.Shape
		passes := 2 * s.MicroBatches * s.Chunks * (1 + count(s.PP > 1)*2 + count(s.TP > 1)*2 + count(s.CP > 1) + count(s.EP > 1))
		most := parityRecords / (s.World() * (passes + 4 + cfg.Model.Buckets))
		if cfg.Steps <= most {
			return cfg, nil
		}

		if tries == 5 {
			cfg.Steps = max(40, most)
			for k := range cfg.Restarts {
				cfg.Restarts[k].At = cfg.Steps / 2
			}

			return cfg, nil
		}

		t.seed += 1 << 20
	}
}

// compare returns in what the verdicts on the job of case k differ, "" when they are equal.
func compare(ctx context.Context, cfg simulate.Config, k int, further func(ctx context.Context, k int, job string) (string, error)) (rows int, diff string, err error) {
	all, _, err := simulate.Rows(cfg)
	if err != nil {
		return 0, "", err
	}

	var history feed.History
	history.Add(&all)
	_, direct, err := judge(&history, simulate.Topology(cfg))
	if err != nil {
		return 0, "", err
	}

	dir, err := os.MkdirTemp("", "eval-")
	if err != nil {
		return 0, "", fmt.Errorf("make directory: %w", err)
	}

	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	job := filepath.Join(dir, "job")
	if _, err := simulate.Write(job, cfg); err != nil {
		return 0, "", err
	}

	specs := []string{job, "parquet:" + filepath.Join(dir, "store")}
	if err := fill(ctx, specs[1], job); err != nil {
		return 0, "", err
	}

	if further != nil {
		spec, err := further(ctx, k, job)
		if err != nil {
			return 0, "", err
		}

		specs = append(specs, spec)
	}

	o := source.Options{Workers: 1}
	if simulate.Topology(cfg) != nil { // a store holds none
		o.Topology = filepath.Join(job, "topology.json")
	}

	for _, spec := range specs {
		v, rows, err := fromSource(ctx, spec, o)
		if err != nil {
			return 0, "", err
		}

		if rows != len(all.Steps) {
			return len(all.Steps), fmt.Sprintf("%s: %d rows of steps instead of %d", source.Redact(spec), rows, len(all.Steps)), nil
		}

		if diff := difference(direct, v); diff != "" {
			return len(all.Steps), fmt.Sprintf("%s: %s", filepath.Base(spec), diff), nil
		}
	}

	return len(all.Steps), "", nil
}

// fill stores a job's files.
func fill(ctx context.Context, spec, job string) error {
	sink, err := intake.OpenStore(spec, clickhouse.Options{})
	if err != nil {
		return err
	}

	_, err = intake.Once(ctx, job, sink, intake.Options{})
	return errors.Join(err, sink.Close())
}

// fromSource returns the verdict on the job of a source, and how many rows of steps it gave.
func fromSource(ctx context.Context, spec string, o source.Options) (v *verdict.Verdict, rows int, err error) {
	src, err := source.Open(ctx, spec, o)
	if err != nil {
		return nil, 0, err
	}

	defer func() { err = errors.Join(err, src.Close()) }()
	var b feed.History
	info, err := src.Load(ctx, "", b.Add, o)
	if err != nil {
		return nil, 0, err
	}

	_, v, err = judge(&b, info.Topology)
	return v, info.Steps, err
}

// difference says in what two verdicts differ, "" in nothing: the names of where they came from differ by
// design.
func difference(want, got *verdict.Verdict) string {
	return cmp.Diff(want, got, cmpopts.IgnoreFields(verdict.Verdict{}, "Source", "Roles"))
}
