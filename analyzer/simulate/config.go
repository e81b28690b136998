package simulate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"gopkg.in/yaml.v3"
)

// Config is one synthetic job. The zero value of a field means what its comment
// says; Validate fills the defaults in. Shares are shares of the nominal step
// time (Model.Seconds); standard deviations of factors are of their logarithm.
type Config struct {
	Job      string `yaml:"job"`      // job name; "" = "sim-<scenario>-<seed>"
	Scenario string `yaml:"scenario"` // a name for people; no effect
	Seed     uint64 `yaml:"seed"`     // same Config and Seed = same job; only the names of segments are drawn anew
	Steps    int    `yaml:"steps"`    // steps executed, redone ones included; 0 = 300
	// FirstStep is the number of the first step; it is a window into a running
	// job when it is not 0, and then nothing warms up.
	FirstStep int `yaml:"first_step"`
	// StartUnix is the true time of the start, s since the Unix epoch; 0 = a fixed day in 2025.
	StartUnix int64 `yaml:"start_unix"`

	Shape      Shape      `yaml:"shape"`
	Model      Model      `yaml:"model"`
	Work       Work       `yaml:"work"`
	Noise      Noise      `yaml:"noise"`
	Network    Network    `yaml:"network"`
	Loader     Loader     `yaml:"loader"`
	Checkpoint Checkpoint `yaml:"checkpoint"`
	Pause      Pause      `yaml:"pause"`
	Devices    []Device   `yaml:"devices"`
	Clock      Clock      `yaml:"clock"`
	Record     Recording  `yaml:"record"`
	Loss       Loss       `yaml:"loss"`
	Restarts   []Restart  `yaml:"restarts"`
	Faults     []Fault    `yaml:"faults"`
	Expect     Expect     `yaml:"expect"`

	// Replay takes compute times from a recorded job instead of Model and Work.
	Replay *Trace `yaml:"-"`
	// Trace is the name of that job, which must be given again with the scenario.
	Trace string `yaml:"trace,omitempty"`
}

// Shape is the parallel layout. World size = TP·CP·DP·PP.
type Shape struct {
	TP int `yaml:"tp"` // ranks that share a layer; 0 = 1
	CP int `yaml:"cp"` // ranks that share a sequence; 0 = 1
	DP int `yaml:"dp"` // replicas; 0 = 1
	PP int `yaml:"pp"` // pipeline stages; 0 = 1
	EP int `yaml:"ep"` // replicas that exchange tokens between experts; divides DP; 0 = 1
	// Order is the order of the dimensions in a rank's number, fastest first:
	// "tp-cp-dp-pp" (the default) or "tp-cp-pp-dp". Megatron-LM has the first one, and
	// the second with --use-tp-pp-dp-mapping.
	Order        string `yaml:"order"`
	MicroBatches int    `yaml:"micro_batches"` // a step and replica; 0 = 1 without pipeline, else 2·PP
	// Chunks is the number of parts of the model on each stage: 2 and more is the
	// interleaved schedule, for which PP divides the micro-batches; 0 = 1.
	Chunks       int `yaml:"chunks"`
	RanksPerNode int `yaml:"ranks_per_node"`
}

// World returns the number of ranks; a size of 0 counts as 1.
func (s Shape) World() int { return max(1, s.TP) * max(1, s.CP) * max(1, s.DP) * max(1, s.PP) }

// hosts returns the number of hosts that the ranks need.
func (s Shape) hosts() int { return (s.World() + s.RanksPerNode - 1) / s.RanksPerNode }

// passes is how many forward passes a rank makes in a step, and how many backward ones.
func (s Shape) passes() int { return s.MicroBatches * s.Chunks }

// Model is the step of a quiet job: what every rank would need without noise.
type Model struct {
	Seconds       float64   `yaml:"seconds"`        // of a quiet step, waits and transfers included; 0 = 2
	BackwardRatio float64   `yaml:"backward_ratio"` // backward / forward; 0 = 2: gradients of inputs and of weights, each as much work
	Stages        []float64 `yaml:"stages"`         // work of each pipeline stage; nil = all 1
	Optimizer     float64   `yaml:"optimizer"`      // share; 0 = 0.02, negative = none
	HostGap       float64   `yaml:"host_gap"`       // share between operations that no range covers; 0 = 0.01, negative = none
	TPShare       float64   `yaml:"tp_share"`       // transfer of TP and CP in a step; 0 = 0.04
	PPShare       float64   `yaml:"pp_share"`       // transfer of all sends of a rank; 0 = 0.01
	DPShare       float64   `yaml:"dp_share"`       // transfer of the gradients; 0 = 0.06
	Buckets       int       `yaml:"buckets"`        // gradient collectives of a step; 0 = 4
	Overlap       bool      `yaml:"overlap"`        // gradients go while the last backward runs
	Sharded       bool      `yaml:"sharded"`        // reduce-scatter, and an all-gather of the parameters, as ZeRO does
	// NoGlobalSync leaves out the collective over all ranks (gradient norm) that
	// ends a step where there is more than data parallelism.
	NoGlobalSync bool `yaml:"no_global_sync"`
	// Recompute runs each forward again within its backward, and records it: activation
	// checkpointing, which saves memory.
	Recompute bool `yaml:"recompute"`
}

// Work is what differs between replicas and experts from step to step, and is
// nobody's fault.
type Work struct {
	// SequenceSD is the spread of the sequence factor of one replica and step,
	// which all stages and TP ranks of the replica share.
	SequenceSD float64 `yaml:"sequence_sd"`
	// MicroBatchSD is the same for single micro-batches.
	MicroBatchSD float64 `yaml:"micro_batch_sd"`
	// SequenceRho is the step-to-step correlation of the sequence factor.
	SequenceRho float64 `yaml:"sequence_rho"`
	// Replicas is a constant factor of the work of each replica, and of its tokens; nil = all 1.
	Replicas []float64 `yaml:"replicas,omitempty"`
	// Elasticity is how strongly each stage follows the factor; nil = all 1.
	Elasticity []float64 `yaml:"elasticity"`
	Quadratic  float64   `yaml:"quadratic"` // share of work that grows with the square of the tokens: attention
	ExpertSD   float64   `yaml:"expert_sd"` // spread of the load of experts (EP > 1)
	ExpertRho  float64   `yaml:"expert_rho"`
	// RoutingSD is the spread of the load of whole experts: each has its position in
	// the EP group and is as popular in all groups of the stage.
	RoutingSD float64 `yaml:"routing_sd"`
	Phases    []Phase `yaml:"phases"`
	Tokens    int64   `yaml:"tokens"` // mean tokens of a rank and step as recorded; 0 = not recorded
}

// Phase is steps that have another amount of work on all ranks alike: validation,
// a change of the batch, warm-up, a curriculum.
type Phase struct {
	From   int     `yaml:"from"` // index of the executed step it begins with
	To     int     `yaml:"to"`   // first one it is over; 0 = never
	Factor float64 `yaml:"factor"`
	Ramp   int     `yaml:"ramp"` // steps until it has its full size
	// Every repeats it within From…To: the first Steps of each Every; 0 = all the time.
	Every int `yaml:"every"`
	Steps int `yaml:"steps"`
}

// Noise is what makes equal devices unequal.
type Noise struct {
	OpSD   float64 `yaml:"op_sd"`   // white, each operation
	StepSD float64 `yaml:"step_sd"` // white, each rank and step
	// WaveSD and WaveRho are an AR(1) process of each rank.
	WaveSD  float64 `yaml:"wave_sd"`
	WaveRho float64 `yaml:"wave_rho"`
	// DriftSD is a slow wandering of each node, with a memory of DriftSteps (0 = 1000).
	DriftSD    float64 `yaml:"drift_sd"`
	DriftSteps float64 `yaml:"drift_steps"`
	DeviceSD   float64 `yaml:"device_sd"` // persistent spread between devices
	// HeavyShare of the rank-steps draw a Pareto excess with tail index HeavyIndex
	// (0 = 2.5: above 2 the variance is finite) and scale HeavyScale, at most 9 times the work.
	HeavyShare float64 `yaml:"heavy_share"`
	HeavyScale float64 `yaml:"heavy_scale"`
	HeavyIndex float64 `yaml:"heavy_index"`
	// GCShare of the rank-steps pause for GCPause (a share) at a random operation.
	GCShare float64 `yaml:"gc_share"`
	GCPause float64 `yaml:"gc_pause"`
	// The first WarmSteps steps of a process need up to WarmFactor times as long
	// (compilation, allocator), differently on each rank.
	WarmSteps  int     `yaml:"warm_steps"`
	WarmFactor float64 `yaml:"warm_factor"`
}

// Network is how transfers vary.
type Network struct {
	JitterSD float64 `yaml:"jitter_sd"` // of each collective's transfer
	// An episode of congestion begins with probability Congestion in each step,
	// hits CongestionNodes (share) of the nodes at once, lasts CongestionSteps
	// steps in the mean and multiplies inter-node transfers by CongestionFactor.
	Congestion       float64 `yaml:"congestion"`
	CongestionNodes  float64 `yaml:"congestion_nodes"`
	CongestionSteps  float64 `yaml:"congestion_steps"`
	CongestionFactor float64 `yaml:"congestion_factor"`
	// CongestionMobile lets each episode hit one node only, another each time.
	CongestionMobile bool `yaml:"congestion_mobile"`
}

// Loader is the data loader.
type Loader struct {
	Ranks string  `yaml:"ranks"` // "first" (first stage, TP rank 0; the default), "all", "none"
	Share float64 `yaml:"share"` // blocking time a step; 0 = 0.005
	SD    float64 `yaml:"sd"`    // 0 = 0.2
}

// Checkpoint is the saving.
type Checkpoint struct {
	Every int     `yaml:"every"` // steps; 0 = never
	Ranks string  `yaml:"ranks"` // "replica0" (the default) or "all"
	Share float64 `yaml:"share"` // time of one save; 0 = 0.5
	SD    float64 `yaml:"sd"`    // 0 = 0.1
	// HeavyShare of the saves take a Pareto factor of tail index HeavyIndex (0 = 2), at most 20.
	HeavyShare float64 `yaml:"heavy_share"`
	HeavyIndex float64 `yaml:"heavy_index"`
}

// Pause is an evaluation or the like between steps, in no step's range, or
// inside a step when Inside is set.
type Pause struct {
	Every  int     `yaml:"every"` // steps; 0 = never
	Share  float64 `yaml:"share"`
	Inside bool    `yaml:"inside"`
}

// Device is a kind of accelerator on some nodes. Nodes that no kind names have nominal ones.
type Device struct {
	Name   string  `yaml:"name"`
	Factor float64 `yaml:"factor"` // time for the same work; 1 = nominal
	Nodes  []int   `yaml:"nodes"`  // indexes of hosts
}

// Clock is the error of the hosts' clocks.
type Clock struct {
	Skew     float64 `yaml:"skew"`      // s: each host is off by up to ± this
	DriftPPM float64 `yaml:"drift_ppm"` // each host's clock is fast or slow by up to this
}

// Recording is what the job records of itself.
type Recording struct {
	// Off are the kinds that are switched off: FP, Communication, DataLoader, SaveCheckpoint.
	Off      []string `yaml:"off"`
	Backward bool     `yaml:"backward"`  // ranges named backward
	HostOnly bool     `yaml:"host_only"` // a CPU job: no device side
	// Enqueued, with HostOnly, is a device's job that records the host side alone: a
	// forward range is as long as its operations take to enqueue.
	Enqueued bool `yaml:"enqueued"`
	// UnrecordedWait is the part of a receive's wait that no range covers, on the last
	// stage: some trainers post a receive only when its data is there.
	UnrecordedWait float64 `yaml:"unrecorded_wait"`
	NoGroups       bool    `yaml:"no_groups"` // identities name no groups
	NoTopology     bool    `yaml:"no_topology"`
	LastTopology   bool    `yaml:"last_topology"` // of a job that restarts: the file has the last attempt's groups
	Format         string  `yaml:"format"`        // files: "laggard" (the default) or "taskd"
	SegmentLimit   int64   `yaml:"segment_limit"` // bytes; 0 = the writer's default
}

// Loss is what does not arrive. The job itself runs as it would without.
type Loss struct {
	RankSteps float64 `yaml:"rank_steps"` // share of rank-steps that are missing
	Run       float64 `yaml:"run"`        // mean length of a run of missing steps; 0 = 1
	Ranks     float64 `yaml:"ranks"`      // share of ranks that never appear
	Keep      bool    `yaml:"keep"`       // never drop a rank with a fault as a whole
	Absent    []int   `yaml:"absent"`     // ranks that never appear
}

// Restart ends all processes and begins again.
type Restart struct {
	At      int   `yaml:"at"`      // index of the executed step before which it happens
	Redo    int   `yaml:"redo"`    // steps since the last checkpoint that are done again
	Drop    []int `yaml:"drop"`    // hosts that leave; the others may have room for fewer replicas
	Shuffle bool  `yaml:"shuffle"` // ranks land on other hosts
	// Layout is the new layout, of which TP, CP, PP, EP, Order, MicroBatches and
	// Chunks count; nil = as before.
	Layout *Shape `yaml:"layout,omitempty"`
}

// Kinds of faults.
const (
	Compute    = "compute"    // forward, backward and optimizer need Factor times as long
	Backward   = "backward"   // backward alone
	Host       = "host"       // Share of the step more between operations, in no range
	DataLoader = "dataloader" // Share of the step more in the loaders
	SaveSlow   = "checkpoint" // saving needs Factor times as long
	Link       = "link"       // one group's transfers take Share of the step more
	NIC        = "nic"        // all inter-node transfers of a node take Factor times as long
	Job        = "job"        // all ranks and transfers need Factor times as long
)

// Fault is something that is really wrong. It sits in hardware: a node or a
// device stays slow whatever ranks a restart puts there.
type Fault struct {
	Kind   string  `yaml:"kind"`
	Node   int     `yaml:"node"`   // index of the host
	Locals []int   `yaml:"locals"` // devices of the host; nil = all
	Group  string  `yaml:"group"`  // Link: name of the group
	Factor float64 `yaml:"factor"`
	Share  float64 `yaml:"share"`
	From   int     `yaml:"from"` // index of the executed step it begins with; 0 = from the start
	To     int     `yaml:"to"`   // first one it is gone; 0 = never
	Ramp   int     `yaml:"ramp"` // steps until it has its full size
	// Within From…To it comes in bursts of BurstSteps steps that take BurstShare of
	// the steps together, at drawn places; 0 = always there.
	BurstShare float64 `yaml:"burst_share"`
	BurstSteps int     `yaml:"burst_steps"`
	BurstMost  int     `yaml:"burst_most"`  // lengths are drawn from BurstSteps to this; 0 = all BurstSteps
	BurstEvery int     `yaml:"burst_every"` // one burst begins every so many steps, instead of BurstShare
}

// Expect is what the truth must say beyond what the faults imply.
type Expect struct {
	Findings []string `yaml:"findings"`
	Event    bool     `yaml:"event"` // the faults are events
	Exit     []int    `yaml:"exit"`
}

// Load reads a scenario file, YAML or JSON. Unknown keys are errors. t is the
// recorded job that it replays, nil for none.
func Load(path string, t *Trace) (Config, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read scenario: %w", err)
	}

	c, err := parse(b, t)
	if err != nil {
		return Config{}, fmt.Errorf("parse scenario %s: %w", path, err)
	}

	return c, nil
}

// parse decodes a scenario, YAML or JSON, which is a subset of YAML. An empty file is a job
// of nothing but defaults.
func parse(b []byte, t *Trace) (Config, error) {
	var c Config
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return Config{}, err
	}

	if t != nil {
		if err := c.onto(t); err != nil {
			return Config{}, err
		}
	}

	if err := c.Validate(); err != nil {
		return Config{}, err
	}

	return c, nil
}

// YAML returns the configuration as a scenario file.
func (c Config) YAML() ([]byte, error) { return yaml.Marshal(c) }
