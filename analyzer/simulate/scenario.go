package simulate

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// scenario is one variant of the 22 injections of the suite, or a family of jobs.
type scenario struct {
	row     int // in the table of the suite
	name    string
	replays bool   // on a recorded job it makes sense, too
	what    string // a line of `laggard simulate --list`, and of the suite's table
	make    func(d *draw)
}

// A recorded job has its own shape and its own work: scenarios that are about either can
// only be drawn.
const (
	onTraces  = true
	drawnOnly = false
)

// scenarios is the suite, in the order of its table.
var scenarios = []scenario{
	{1, "healthy", onTraces, "nothing wrong, every confounder at once", func(d *draw) { d.healthy(anyShape) }},
	{2, "compute-1.05", onTraces, "compute x1.05", func(d *draw) { d.comparable(); d.compute(1.05) }},
	{3, "compute-1.10", onTraces, "compute x1.10", func(d *draw) { d.comparable(); d.compute(1.10) }},
	{4, "compute-1.2", onTraces, "compute x1.2", func(d *draw) { d.comparable(); d.compute(1.2) }},
	{4, "compute-1.5", onTraces, "compute x1.5", func(d *draw) { d.comparable(); d.compute(1.5) }},
	{4, "compute-2", onTraces, "compute x2", func(d *draw) { d.comparable(); d.compute(2) }},
	{5, "backward-1.2", onTraces, "backward only x1.2", (*draw).backward},
	{6, "thermal-ramp", onTraces, "thermal ramp to x1.25 in 60 steps", (*draw).thermal},
	{7, "two-culprits", onTraces, "two culprits in one role, x1.2", (*draw).two},
	{8, "slow-link", onTraces, "slow link in one DP group, its transfers take 25 % of a step more", (*draw).link},
	{9, "dataloader", onTraces, "dataloader stall 15 % of step on one node", (*draw).loader},
	{10, "checkpoint", onTraces, "checkpoint 2.5x on one node", (*draw).saver},
	{11, "host-delay", onTraces, "host delay 15 %", (*draw).hostDelay},
	{12, "transient", onTraces, "transient x1.3 for 12 steps", (*draw).transient},
	{13, "intermittent", onTraces, "intermittent, 5 % of steps", (*draw).intermittent},
	{14, "sequence-length", drawnOnly, "sequence-length noise shared by replicas", (*draw).sequence},
	{15, "stage-imbalance", drawnOnly, "first or last stage heavy", (*draw).stages},
	{16, "gc-pauses", onTraces, "GC pauses in 3 % of rank-steps", (*draw).garbage},
	{17, "clock-skew", onTraces, "clock skew ±5 s per host, drift 50 ppm, x1.10 or healthy", (*draw).clock},
	{18, "missing-10", onTraces, "10 % of rank-steps missing, x1.10 or healthy", func(d *draw) { d.missing(0.1, 0) }},
	{18, "missing-30", onTraces, "30 % of rank-steps missing, x1.10 or healthy", func(d *draw) { d.missing(0.3, 0) }},
	{18, "absent-10", onTraces, "10 % of ranks absent, x1.10 or healthy", func(d *draw) { d.missing(0, 0.1) }},
	{19, "restart", drawnOnly, "restart with ranks re-mapped, world 64 to 56", (*draw).restart},
	{20, "slow-from-start", onTraces, "slow from step 1", (*draw).fromStart},
	{21, "job-slow", onTraces, "the whole job 20 % slower", (*draw).job},
	{22, "pure-dp", drawnOnly, "pure DP, 12 % sequence noise, no token counts, x1.10", (*draw).pureDP},
	{0, "few-peers", drawnOnly, "not in the bar: x1.10 where a role has 2 or 3 members", (*draw).fewPeers},
}

// lastRow is the last row of the table; families have numbers of their own.
const lastRow = 22

// Names returns the names of all scenarios, in the order of the suite's table.
func Names() []string { return names(scenarios) }

func names(of []scenario) (all []string) {
	for _, s := range of {
		all = append(all, s.name)
	}

	return all
}

// Row returns the number of a scenario in the suite's table, and what it injects.
func Row(name string) (number int, what string) {
	s := find(name)
	return s.row, s.what
}

// find returns the scenario or family of a name, an empty one for none.
func find(name string) scenario {
	for _, s := range slices.Concat(scenarios, families) {
		if s.name == name {
			return s
		}
	}

	return scenario{}
}

// Scenario returns a job of the named kind: shape, noise, confounders, place and
// onset of the fault are drawn from the seed. Mostly 8 to 64 ranks, now and then
// 512 or 8,192. An unknown name is an error that lists the known ones.
func Scenario(name string, seed uint64) (Config, error) {
	world := 0
	// Playing takes time in proportion to the ranks: large jobs are few, and none is of a family.
	switch u := source(seed, forScenario).Float64(); {
	case find(name).row > lastRow:
	case u < 0.004:
		world = 8192
	case u < 0.04:
		world = 512
	}

	return Sized(name, seed, world)
}

// Sized is Scenario with exactly world ranks, 2 to 10,000; 0 = drawn. A number of
// ranks that has no shape for the scenario (a prime number has no pipeline beyond 64
// stages) is an error.
func Sized(name string, seed uint64, world int) (Config, error) {
	if world != 0 && (world < 2 || world > mostRanks) {
		return Config{}, fmt.Errorf("scenario %s: want 2 to %d ranks, not %d", name, mostRanks, world)
	}

	s := find(name)
	if s.make == nil {
		return Config{}, fmt.Errorf("scenario %q is unknown: want one of %s, %s", name, strings.Join(Names(), ", "), strings.Join(Families(), ", "))
	}

	d := &draw{world: world}
	if err := d.from(s, seed); err != nil {
		return Config{}, err
	}

	if err := d.c.Validate(); err != nil {
		return Config{}, fmt.Errorf("scenario %s, seed %d: %w", name, seed, err)
	}

	return d.c, nil
}

// from draws a scenario from a seed.
func (d *draw) from(s scenario, seed uint64) (err error) {
	defer func() {
		x := recover()
		cause, _ := x.(error)

		switch {
		case errors.Is(cause, errSize) && d.trace != nil:
			err = fmt.Errorf("scenario %s: no copies of %s side by side fit it", s.name, d.trace.Name)
		case errors.Is(cause, errSize):
			err = fmt.Errorf("scenario %s: no shape of %d ranks fits it: try a number that more divides, as %d", s.name, d.world, (d.world+7)/8*8)
		case x != nil:
			panic(x)
		}
	}()
	// With the row in the source, one seed gives each row of the table another job.
	d.Rand = rand.New(rand.NewPCG(seed, forScenario+uint64(s.row)<<16))
	d.c.Seed, d.c.Scenario = seed, s.name
	s.make(d)
	return nil
}

// mostRanks bounds the jobs that scenarios draw.
const mostRanks = 10_000

// errSize is what draw panics with when no shape has the size that was asked for:
// scenarios draw deep inside each other.
var errSize = errors.New("no shape of that size")

// healthy draws an ordinary job of a shape that fits the needs.
func (d *draw) healthy(needs ...need) {
	d.shape(needs...)
	d.ordinary()
}

// comparable draws one in which a device has enough peers to be told from them.
func (d *draw) comparable() { d.healthy(peers, anyShape) }

// compute makes one device, or now and then a whole host, slow for good.
func (d *draw) compute(factor float64) {
	d.c.Faults = append(d.c.Faults, d.device(Fault{Kind: Compute, Factor: factor, From: d.onset()}))
}

func (d *draw) backward() {
	d.comparable()
	d.c.Record.Backward = d.chance(0.3)
	d.c.Faults = []Fault{d.device(Fault{Kind: Backward, Factor: 1.2, From: d.onset()})}
}

func (d *draw) thermal() {
	d.comparable()
	d.compute(1.25)
	d.c.Faults[0].Ramp = 60
}

// two makes two devices of one stage slow, on different hosts where there are. Of six
// replicas two are still a minority.
func (d *draw) two() {
	d.healthy(replicas(6), replicas(2))
	l := newLayout(d.c.Shape, nil)
	stage := d.IntN(d.c.Shape.PP)
	first := l.stages[stage][d.IntN(len(l.stages[stage]))]
	second := first
	for l.at[second].d == l.at[first].d || l.at[second].host == l.at[first].host && d.chance(0.7) {
		second = l.stages[stage][d.IntN(len(l.stages[stage]))]
	}

	onset := d.onset()
	for k, r := range []int{first, second} {
		d.onRank(r, d.between(1.15, 1.3), onset+20*k*d.IntN(2))
	}
}

// link slows one of several data-parallel groups between hosts: a single one has no like
// group that it could be compared with.
func (d *draw) link() {
	d.healthy(links(2), links(1))
	groups := newLayout(d.c.Shape, nil).wideNames((*group).gradients)
	d.c.Faults = []Fault{{Kind: Link, Group: groups[d.IntN(len(groups))], Share: 0.25, From: d.onset()}}
}

func (d *draw) loader() {
	d.healthy(some((*layout).loaders), anyShape)
	d.c.Faults = []Fault{{Kind: DataLoader, Node: d.host((*layout).loaders), Share: 0.15, From: d.onset()}}
}

// saver makes saving slow on one host of several that save. Of twelve saves four come
// before the fault.
func (d *draw) saver() {
	d.healthy(some((*layout).minority), anyShape)
	d.c.Checkpoint = Checkpoint{Every: 25 + d.IntN(20), Ranks: "all", Share: d.between(0.3, 1.5), SD: d.between(0.03, 0.12)}
	d.c.Steps = 12 * d.c.Checkpoint.Every
	d.c.Faults = []Fault{{Kind: SaveSlow, Node: d.host((*layout).minority), Factor: 2.5, From: 4 * d.c.Checkpoint.Every}}
}

func (d *draw) hostDelay() {
	d.healthy(some((*layout).minority), anyShape)
	d.c.Faults = []Fault{{Kind: Host, Node: d.host((*layout).minority), Share: 0.15, From: d.onset()}}
}

func (d *draw) transient() {
	d.comparable()
	d.compute(1.3)
	f := &d.c.Faults[0]
	f.To = f.From + 12
	d.c.Expect = Expect{Event: true, Exit: []int{verdict.ExitHealthy}}
}

// intermittent comes in bursts that take 5 % of the steps, one in five times in
// single steps that take 7 %.
func (d *draw) intermittent() {
	d.comparable()
	d.c.Steps = 700
	d.compute(d.between(1.4, 2))
	f := &d.c.Faults[0]
	f.BurstShare, f.BurstSteps = 0.05, 5+d.IntN(6)
	if d.chance(0.2) {
		f.BurstShare, f.BurstSteps = 0.07, 1
	}

	d.c.Expect.Exit = []int{verdict.ExitHealthy, verdict.ExitDegraded}
}

// sequence has sequences so uneven that the job itself is at fault, not a node.
func (d *draw) sequence() {
	d.healthy(replicas(4), replicas(2))
	d.c.Work = Work{
		SequenceSD: d.between(0.1, 0.22), MicroBatchSD: d.between(0, 0.15), Quadratic: d.between(0, 0.2),
		SequenceRho: d.between(0, 0.2), Elasticity: d.stretch(),
	}
	if d.chance(0.25) {
		d.c.Work.Tokens = 4096
	}

	d.c.Expect.Findings = []string{verdict.WorkloadImbalance}
}

// stages makes the last stage heavy, as the output layer and the loss do, or the first.
func (d *draw) stages() {
	d.healthy(stages(4), stages(2))
	d.c.Model.Stages = d.perStage(0.99, 1.01)
	heavy := d.c.Shape.PP - 1
	if d.chance(0.3) {
		heavy = 0
	}

	d.c.Model.Stages[heavy] = d.between(1.3, 2.1)
	d.c.Expect.Findings = []string{verdict.StageImbalance}
}

func (d *draw) garbage() {
	d.healthy(anyShape)
	d.c.Noise.GCShare, d.c.Noise.GCPause = 0.03, 0.10
}

// half puts a fault into every other case.
func (d *draw) half() {
	if d.chance(0.5) {
		d.compute(1.10)
	}
}

func (d *draw) clock() {
	d.comparable()
	d.half()
	d.c.Clock = Clock{Skew: 5, DriftPPM: 50}
}

// missing leaves out a share of the rank-steps, or of the ranks. "Undecided" is right, too:
// what is missing may be what tells.
func (d *draw) missing(steps, ranks float64) {
	d.comparable()
	d.half()
	d.c.Loss = Loss{RankSteps: steps, Ranks: ranks, Keep: true, Run: 1}
	if steps > 0 && d.chance(0.5) {
		d.c.Loss.Run = d.between(2, 8)
	}

	if len(d.c.Faults) == 0 {
		d.c.Expect.Exit = []int{verdict.ExitHealthy, verdict.ExitUndecided}
	} else {
		d.c.Expect.Exit = []int{verdict.ExitDegraded, verdict.ExitUndecided}
	}
}

// restart drops a healthy host of eight and puts the ranks on the others anew;
// the slow host stays.
func (d *draw) restart() {
	shapes := []Shape{
		{TP: 2, DP: 8, PP: 4, MicroBatches: 8}, {DP: 8, PP: 8}, {TP: 8, DP: 8}, {TP: 4, DP: 8, PP: 2, MicroBatches: 4},
	}
	s := shapes[d.IntN(len(shapes))]
	s.RanksPerNode = 8
	d.fixed(s, elastic)
	hosts := d.c.Shape.hosts()
	slow := d.IntN(hosts)
	gone := (slow + 1 + d.IntN(hosts-1)) % hosts
	at := 110 + d.IntN(60)
	d.c.Steps = at + 150 + d.IntN(80)
	f := Fault{Kind: Compute, Node: slow, Factor: d.between(1.15, 1.5), From: at - 20 - d.IntN(70)}
	if l := newLayout(d.c.Shape, nil); !l.minority(slow) || d.chance(0.75) {
		f.Locals = []int{d.IntN(d.c.Shape.RanksPerNode)}
	}

	d.c.Faults = []Fault{f}
	d.c.Restarts = []Restart{{At: at, Redo: d.IntN(15), Drop: []int{gone}, Shuffle: true}}
}

// fromStart leaves the culprit no healthy past to be compared with.
func (d *draw) fromStart() {
	d.comparable()
	d.compute([]float64{1.1, 1.2, 1.5, 2}[d.IntN(4)])
	d.c.Faults[0].From = 0
}

func (d *draw) job() {
	d.healthy(anyShape)
	d.c.Faults = []Fault{{Kind: Job, Factor: 1.2, From: d.onset()}}
}

func (d *draw) fewPeers() {
	d.healthy(few, anyShape)
	d.onRank(d.IntN(d.c.Shape.World()), 1.1, d.onset()+60)
}

// pureDP hides the fault in noise that is larger than itself: no pipeline tells what a
// replica's sequences explain, and no token counts do. The mean of many steps does.
func (d *draw) pureDP() {
	d.healthy(func(l *layout) bool { return flat(l) && l.n >= 8 }, flat)
	d.c.Work = Work{SequenceSD: 0.12}
	d.c.FirstStep = 1000
	d.compute(1.10)
	d.c.Faults[0].Locals = []int{d.IntN(d.c.Shape.RanksPerNode)}
	d.c.Faults[0].From = 60 + d.IntN(60)
	d.c.Steps = d.c.Faults[0].From + 140
}
