// Command eval measures the detector: 22 scenarios of labelled jobs (synthetic,
// and recorded ones replayed with an injected fault), 31 families of jobs that those
// don't have, 30,000 healthy and confounded node-hours, and the rules of other tools on the same cases.
//
//	go run ./benchmarks/eval                       # the suite; writes benchmarks/eval/RESULTS.md
//	go run ./benchmarks/eval -n 10 -hours 0        # a look
//	go run ./benchmarks/eval -only small,elastic   # these families of jobs alone
//	go run ./benchmarks/eval -scenario compute-1.10 -seed 7 -v    # one case, verdict and truth
//
// Invariant: a seed is drawn at run time unless it is given, is printed, and gives
// the same cases again. Nothing here is tuned to a case: what falls short is
// printed as such, with the command that shows it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/laggard-dev/laggard/analyzer/simulate"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintf(os.Stderr, "eval: %v\n", err)
		os.Exit(1)
	}
}

// parse reads the command line.
func parse(args []string, words io.Writer) (*suite, error) {
	f := &suite{}
	set := flag.NewFlagSet("eval", flag.ContinueOnError)
	set.SetOutput(words)
	set.IntVar(&f.n, "n", 100, "cases a scenario (negative ones more)")
	set.Uint64Var(&f.seed, "seed", 0, "seed of the first case of each scenario, the next ones count up; 0 = drawn and printed")
	set.StringVar(&f.scenario, "scenario", "", "only these scenarios, by name or row number, separated by commas")
	set.StringVar(&f.only, "only", "", "only these families of jobs, separated by commas, or all; -n is then the jobs of each, 15 unless given")
	set.IntVar(&f.parallel, "parallel", runtime.GOMAXPROCS(0), "cases at a time")
	set.IntVar(&f.world, "world", 0, "number of ranks; 0 = mostly 8 to 64, some 512 and 8,192")
	set.StringVar(&f.traceName, "trace", "", "with -v: replay this recorded job (AR-1, ST)")
	set.StringVar(&f.data, "data", "", "directory of the recorded jobs' archives; \"\" = where CONTRIBUTING.md says")
	set.Float64Var(&f.nodeHours, "hours", 30000, "healthy node-hours; 0 = none")
	set.IntVar(&f.through, "parity", 200, "cases that go through files and a store as well; 0 = none")
	set.StringVar(&f.results, "results", "", "write the results to this file; \"\" = benchmarks/eval/RESULTS.md for a full run, none otherwise")
	set.StringVar(&f.healthy, "healthy", "", "with -v: one job of these healthy hours")
	set.BoolVar(&f.verbose, "v", false, "one case: print truth and verdict")
	if err := set.Parse(args); err != nil {
		return nil, err
	}

	if err := f.choose(); err != nil {
		return nil, err
	}

	// A hundred jobs show whether a family reaches its 97 %, which thirty can't: a run of 1,000 cases a
	// scenario is not one of 1,000 jobs a family. Who asks for families alone gets the number that was given.
	f.jobs = min(f.n, 100)
	if f.only != "" {
		f.jobs, f.scenarios, f.nodeHours, f.through = familyJobs, nil, 0, 0
		set.Visit(func(x *flag.Flag) {
			if x.Name == "n" {
				f.jobs = f.n
			}
		})
	}

	f.keepSeed = f.seed != 0
	if !f.keepSeed {
		f.seed = uint64(time.Now().UnixNano()) & (1<<40 - 1) // short enough to be typed
	}

	var err error
	f.traces, err = traces(f.data)
	return f, err
}

// choose sets the scenarios and families to run.
func (s *suite) choose() (err error) {
	s.scenarios, s.families = simulate.Names(), simulate.Families()
	if s.only != "" && s.only != "all" {
		if s.families, err = chosen(s.only, s.families); err != nil {
			return err
		}
	}

	if s.scenario == "" {
		return nil
	}

	both, err := chosen(s.scenario, append(s.scenarios, s.families...))
	s.scenarios, s.families = nil, nil
	for _, n := range both {
		if (task{scenario: n}).family() {
			s.families = append(s.families, n)
		} else {
			s.scenarios = append(s.scenarios, n)
		}
	}

	return err
}

// chosen resolves names and row numbers. A row may hold several scenarios.
func chosen(list string, all []string) ([]string, error) {
	var out []string
	for _, w := range strings.Split(list, ",") {
		found := false
		for _, n := range all {
			row, _ := simulate.Row(n)
			if n == w || fmt.Sprint(row) == w {
				out, found = append(out, n), true
			}
		}

		if !found {
			return nil, fmt.Errorf("scenario %q is unknown: want a row number or one of %s", w, strings.Join(all, ", "))
		}
	}

	return out, nil
}

// traces loads the recorded jobs, with the backward pass recorded, from where CONTRIBUTING.md says or
// another folder. Where they are not there nothing is replayed.
func traces(dir string) ([]*simulate.Trace, error) {
	if dir == "" {
		dir = filepath.Join(root, "..", "shared", "data")
		if _, err := os.Stat(dir); err != nil {
			return nil, nil //nolint:nilerr // they need not be there
		}
	}

	var out []*simulate.Trace
	for _, name := range []string{"AR-1-full.tar.gz", "ST-full.tar.gz"} {
		t, err := simulate.LoadTrace(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}

		out = append(out, t)
	}

	return out, nil
}

// root is the checkout, in which this program runs, its tests in this package's folder: recorded
// jobs lie beside it, results in it.
var root = func() string {
	if _, err := os.Stat("go.mod"); err == nil {
		return "."
	}

	return filepath.Join("..", "..")
}()

// command runs what the arguments ask for: one case, families, or the suite. Results go to out,
// progress to words.
func command(ctx context.Context, args []string, out, words io.Writer) error {
	f, err := parse(args, words)
	if err != nil {
		return err
	}

	if f.verbose {
		return f.show(out)
	}

	if len(f.traces) == 0 {
		fmt.Fprintln(words, "NOTE: the recorded jobs (CONTRIBUTING.md) are not here: no case replays one")
	}

	fmt.Fprintf(words, "seed %d\n", f.seed)
	began := time.Now()
	r := report{suite: f, began: began}
	of := *f
	of.n, of.world = f.jobs, 0
	if f.n > 0 && len(f.scenarios) > 0 {
		if r.tallies, err = f.run(ctx, f.scenarios, counter(words, "cases")); err != nil {
			return err
		}
	}

	if f.n > 0 {
		if r.families, err = of.run(ctx, f.families, counter(words, "jobs of families")); err != nil {
			return err
		}
	}

	if f.nodeHours > 0 {
		r.hours, err = runHealthy(ctx, f.nodeHours, healthySteps, f.seed, f.parallel, f.traces, counter(words, "healthy node-hours"))
		if err != nil {
			return err
		}
	}

	if f.through > 0 {
		if r.parity, err = runParity(ctx, f.through, f.seed, f.parallel, nil, counter(words, "cases through files and store")); err != nil {
			return err
		}
	}

	r.took = time.Since(began)
	return r.finish(out)
}

// show runs one case and prints what should and what did come out.
func (s *suite) show(out io.Writer) error {
	var o *outcome
	var err error
	if s.healthy != "" {
		i := slices.IndexFunc(noises, func(w noiseKind) bool { return w.name == s.healthy })
		if i < 0 {
			return fmt.Errorf("healthy hours %q are unknown", s.healthy)
		}

		o, err = healthyJob(noises[i], s.seed, healthySteps, s.traces)
	} else {
		names := append(s.scenarios, s.families...)
		if len(names) != 1 || !s.keepSeed {
			return errors.New("-v shows one case: give -scenario and -seed")
		}

		t := task{scenario: names[0], seed: s.seed, world: s.world}
		for _, x := range s.traces {
			if s.traceName != "" && strings.HasPrefix(x.Name, s.traceName) {
				t.trace = x
			}
		}

		if cfg, err := t.config(); err == nil {
			y, _ := cfg.YAML()
			fmt.Fprintf(out, "# the job\n%s", y)
		}

		o, err = t.judged()
	}

	if err != nil {
		return err
	}

	for _, x := range []struct {
		name string
		v    any
	}{{"truth", o.truth}, {"verdict", o.verdict}} {
		b, err := json.MarshalIndent(x.v, "", " ")
		if err != nil {
			return err
		}

		fmt.Fprintf(out, "# %s\n%s\n", x.name, b)
	}

	fmt.Fprintf(out, "# judgement: %s\n", strings.Join(append(o.reasons(), ""), "; "))
	return nil
}

// counter prints progress now and then.
func counter(w io.Writer, what string) func(done, total int) {
	last := time.Now()
	return func(done, total int) {
		if done == total || time.Since(last) > 5*time.Second {
			last = time.Now()
			fmt.Fprintf(w, "%d of %d %s\n", done, total, what)
		}
	}
}
