package detect

import (
	"slices"
	"testing"

	"github.com/laggard-dev/laggard/analyzer/detect/threshold"
	"github.com/laggard-dev/laggard/analyzer/feed"
	"github.com/laggard-dev/laggard/analyzer/simulate"
	"github.com/laggard-dev/laggard/schemas/verdict"
)

// TestHard_ExactlyThese are jobs of the evaluation's families that were judged wrongly: a
// passing time of some steps was called intermittent; a slowdown of 3 % was forgotten while
// it lasted, for a step of 2.5 % counted as well and its forward passes had been long for
// as long as was remembered; a stage on one node was accused that was compared with one
// whose rank comes and goes; two healthy jobs were undecided, for one replica is later
// than the others on average; of two nodes with a slow rank each since the same step nobody
// was named; a node that saved twice as slowly eight times in a row was not found; who waits
// inside its forward pass for a mate that comes late was named; so was one of three that all
// were suspects, and two stages of a replica whose ranks are partly absent; and a host's delay
// seemed to be work that the next stage had as well; so did the end of a burst to the mate of
// who is slow in bursts.
func TestHard_ExactlyThese(t *testing.T) {
	for _, tt := range []struct {
		name string
		seed uint64
	}{
		{"transients", 31415906}, {"long", 31415901}, {"long", 31415916}, {"long", 1013},
		{"bursts-regular", 27182801}, {"interleaved", 27182822}, {"recomputation", 31415930},
		{"two-culprits", 27182816}, {"two-culprits", 27182822}, {"two-culprits", 27182834}, {"slow-saver", 16180316},
		{"slow-saver", 5001167}, // all of a node save slowly, each of them no more than this storage's noise
		{"slow-saver", 5002153}, {"slow-saver", 5002262}, {"slow-saver", 5002339}, {"slow-saver", 5003661},
		{"bursts-regular", 1795894738}, // forward passes that hold exchanges don't hide that own time comes in bursts
		{"slow-saver", 5002175},        // one rank of a node meets heavy tails three times
		{"recomputation", 77000134}, {"bursts-regular", 77000133}, {"absent-10", 27182806}, {"host-delay", 77100013},
		{"bursts-regular", 57721580},
		{"routing", 31622789}, // a stage on one node gets more for its experts
		{"long", 24681445},    // one rank of a node is no other model of hardware
		{"long", 577215676},   // a device drifts less from its own past than two devices differ
		{"long", 577215688},
		{"mixed-hardware", 98765457}, // a node of an old model is what it was when its replica gets slow
		{"light", 31622780},          // without Communication: who waits for a mate that waits for the stage before
		{"few-replicas", 98765487},   // a slow rank with little to do takes no longer than usual
		{"few-replicas", 1618132},    // a later stage of the culprit's replica computes no longer than its peers
		{"warm-up", 1618089},         // nor is the other stage of the culprit's replica faster than all
		{"few-replicas", 31416042},   // half a role waits inside its forward passes: it is no measure of the others
		{"routing", 57721618},        // and what it lacks for its own work is nobody's slowness
		{"restart", 31622865},        // nor after a restart
		{"restart", 55566783},        // and who was faster than its peers may be as they are
		{"bursts-regular", 86420968}, // nor noise that hides bursts
		{"light", 98765481},          // pauses that stand out of one rank's noise stand out of its peers' as well
		{"bursts-regular", 27644442}, // who has little to do waits inside its forward pass as others do
		{"mixed-hardware", 27644445}, // whose forward passes are longer than a mate's in lockstep began them earlier
		{"curriculum", 27644550},     // forward passes that were long before do not say that own time is no wait
		{"transients", 27644599},     // steps of noise before a transient do not make it a condition
		{"mixed-hardware", 86028137}, // that its replica's other stages are newer is no little work
		{"elastic", 27644568},
		{"elastic", 86028133},
		{"elastic", 5000000409}, // those that wait for the culprit show its stage's work as it does, without idle time
		{"elastic", 271828263},
		{"routing", 264575131},        // who waited for the culprit has recovered from nothing
		{"few-replicas", 173205172},   // the wild first steps tell little of how stages go together
		{"mixed-hardware", 223606841}, // half of the nodes are as slow as they always were, in own time alone
		{"mixed-hardware", 577215785}, // so are whole replicas
		{"mixed-hardware", 777000871}, // also where the others are the middle
		{"routing", 577215751},        // who waited for the culprit tells of its expert by its own time
		{"routing", 271828261},        // whose stages told too much of its work does not tell its expert's load
		{"routing", 5000000065},
		{"routing", 692820340},           // the stages' work is told apart from popular experts
		{"routing", 5000000204},          // forward passes that are long through exchanges of experts are no bursts
		{"congestion", 900464},           // a congested wire makes forward passes long, and nobody slow
		{"congestion", 8900520},          // gusts are not the jitter that tells gusts
		{"slow-link", 8316228106},        // nor is a link that is far slower than in any gust
		{"mixed-hardware", 207707988863}, // a past a little less than half as slow is no onset where healthy units wander as far
		{"mixed-hardware", 6610119},      // of two models, the one of a stage shows beside the other of the next, in own time alone
		{"node-network", 8810093},        // a stage's forward passes hold waits for the one of a tensor group whose input comes last
		{"compound", 5550109},            // of one model are those that always were so, whenever each was told
		{"whole-host", 5550066},          // ranks of which a slow replica is the only peer are not slow by what its stages do not share
		{"mixed-hardware", 602214175},    // newer stages beside a rank that is slow from the start are no little work
		{"mixed-hardware", 27644635},
		{"mixed-hardware", 6000000145}, // the newer of a stage half of each are half as fast as the one old is slow
		{"culprits", 900151},           // members that take turns in coming last make no link slow
		{"congestion", 3316624878},     // nor does the longest of a job's gusts
		{"compound", 20261183},
		{"compound", 1795914359},  // a rank among well ones of its node is no kind of hardware
		{"compound", 1795914284},  // nor is who was always a little slower slow since before the culprit
		{"compound", 1795900294},  // who waits with all of its node for measured work has no more of its own
		{"compound", 5551173},     // one that is later by less, and became slow some steps later
		{"gc-pauses", 1795900314}, // pauses on newer hardware are pauses, too
		{"interleaved", 2236068107},
		{"congestion", 710000006}, // who waits for a mate on a congested wire has more own time
		{"congestion", 314159293},
		{"congestion", 6000000170},
		{"compound", 555000237}, // so has who may wait for one that is slow since the same moment, where no groups are told
		{"compound", 555000262},
		{"compound", 424377},
		{"elasticity", 730000033}, // who works with a slow rank is not slow again and again
		{"compound", 740000033},
		{"compound", 666000291},
		{"compound", 271879},    // nor who pauses a little more often than most
		{"compound", 740000100}, // nor who had a few of the passing times that all have
		{"compound", 720000016},
		{"compound", 7350255},
		{"compound", 750000070},
		{"compound", 7450096}, // who is slow in a group that meets many times a step makes its wire no slow link
		{"compound", 20261176},
		{"compound", 910000084}, // nor has who was a hundredth slower recovered from anything
		{"routing", 20261174},
		{"mixed-hardware", 4123105641},
		{"bursts-5", 750000069}, // small slow steps of all ranks hide no large ones
		{"routing", 692820851},  // what is over, and was little beside the noise, nobody can check
		{"congestion", 990000093},
		{"whole-host", 740000079},
		{"compound", 91065},
		{"compound", 20261240},            // passing times that two nodes have at once are nobody's where no groups are told
		{"compound", 271828214},           // who is slow does not learn its fault as its past when a mate gets slower
		{"slow-link", 624790632244},       // a stage on one node may wait for another's link
		{"culprits", 620000051},           // who was accused first does not recover when a mate of its pipeline gets slower
		{"slow-from-start", 141421356327}, // well ranks beside it say that it is no other model of hardware
		{"healthy", 173205080904},         // steps that were as long again and again have not become longer
		{"absent-10", 20261252},           // whom its own groups wait for is late, whoever else is not recorded
		{"sequence-length", 173205080833}, // of 22 % noise chance makes more than of 12 %
		{"compound", 20635873078},         // forward passes that are hardly longer say nothing where no groups are told
		{"intermittent", 4669201613},      // of two nodes one comes and goes
		{"compound", 1828459089},          // nor is anybody slow by nothing
		{"compound", 271828230},           // own time may be a wait where no groups are told, also the third time
		{"transients", 5772156729},        // a replica is no whole any more when its stages turn out to share nothing
		{"congestion", 4669201658},        // nor does it compute for longer whose forward passes hold exchanges
		{"whole-host", 1795869633},        // a node that has two of a role's three ranks is slow against its past
		{"compound", 5550047},             // who waits for a slow rank waits inside its forward passes as well
		{"few-replicas", 1802869686},      // what a slow stage alone tells of a replica's work is little
		{"culprits", 1795872575},          // who was accused while it waited is explained by who was slow by then
		{"absent-10", 1795874328},         // nor are slow steps among others as long as they would be without those
		{"congestion", 1795874328},        // who waited for a congested wire is not named when that is over
		{"healthy", 1795872798},           // a run of long steps that chance makes somewhere is no change
		{"compound", 1795874336},          // an older device that gets slow was not slow before
		{"recomputation", 1795883199},     // whose own time is long for it waits is not named for a little more of forward passes
		{"routing", 5772156702},           // of several nodes that are late together none is late by itself
		{"compound", 1795919557},          // what a rank usually waits in its forward passes is told beside pauses in a fifth of the steps
		{"mixed-hardware", 1795919609},    // one rank of an old node whose first steps were quick by chance did not become slow
		{"curriculum", 1795934895},        // with the work grows what members of a group are late by in turns
		{"uneven-replica", 1796000004},    // both stages of a replica that take as much longer have more work
		{"uneven-replica", 1796000045},    // also where most of it is taken out of what the tests see
		{"uneven-replica", 90222},         // and where noise lets one of its ranks look half as long
		{"standing-pair", 1796000002},     // where all ranks meet in one communicator nobody works with some of them
		{"standing-link", 1796000006},     // groups of other stages that move as much tell of one that always was slow
	} {
		exactly(t, tt.name, tt.seed, func(*simulate.Config) {})
	}

	for _, tt := range []struct {
		name string
		seed uint64
	}{
		{"compound", 240506531},    // a few long steps among ordinary ones are no passing time
		{"compound", 240506540},    // the older of the nodes that pause together pauses no more often
		{"absent-mates", 74828023}, // one rank of a replica tells no more of it than of itself
	} {
		exactly(t, tt.name, tt.seed, func(c *simulate.Config) {
			c.Faults, c.Expect, c.Steps, c.Model.Seconds = nil, simulate.Expect{}, 1440, 10
		})
	}

	for _, seed := range []uint64{9001, 10309, 10313, 20569} { // heavy tails of storage that meet on one node
		exactly(t, "slow-saver", seed, func(c *simulate.Config) { c.Faults, c.Expect, c.Steps = nil, simulate.Expect{}, 1000 })
	}

	// What was a hundredth, and is no longer, nobody can check.
	v, truth := judged(t, "slow-from-start", 20261287, 512, func(*simulate.Config) {})
	if got := accused(v); !slices.Equal(got, truth.SlowNodes) {
		t.Errorf("%v accused, want %v", got, truth.SlowNodes)
	}
}

// TestAbsent_WhoMayWaitForOneOfThem: a rank's forward passes are long now and then, for it waits in them for a mate
// that is not recorded, and its own time is no longer: it is not named. Who is late itself is.
func TestAbsent_WhoMayWaitForOneOfThem(t *testing.T) {
	v, truth := judged(t, "absent-10", 20261299, 512, func(*simulate.Config) {})
	for _, n := range v.Nodes {
		if n.State == verdict.Degraded && !slices.Contains(truth.SlowNodes, n.Node) {
			t.Errorf("%s accused: %s", n.Node, n.Detail)
		}
	}

	if !slices.ContainsFunc(v.Nodes, func(n verdict.Node) bool { return slices.Contains(truth.SlowNodes, n.Node) }) {
		t.Errorf("%v not named", truth.SlowNodes)
	}
}

// TestHard_StaysAccused: a rank's own time, which holds waits, is as long as ever, and proves in some windows alone that
// others wait for it. It stays accused from look to look, and is slow, not slow again and again.
func TestHard_StaysAccused(t *testing.T) {
	for _, tt := range []struct {
		name string
		seed uint64
	}{
		{"slow-from-start", 141421356243}, {"slow-from-start", 141421356274}, {"compute-1.10", 506},
		{"compute-1.10", 522}, {"host-delay", 505},
	} {
		cfg, err := simulate.Sized(tt.name, tt.seed, 0)
		if err != nil {
			t.Fatal(err)
		}

		var h feed.History
		truth, err := simulate.Run(cfg, h.Add)
		if err != nil {
			t.Fatal(err)
		}

		f, err := h.Frame(nil)
		if err != nil {
			t.Fatal(err)
		}

		var e *Engine
		named := false
		for _, c := range f.Columns {
			if e == nil {
				e = New(Default(), c.Layout)
			}

			if e.Observe(c); e.analysed%threshold.EvaluateEvery != 0 {
				continue
			}

			v := e.Verdict()
			now := slices.Equal(accused(v), truth.SlowNodes) && v.Nodes[0].State == verdict.Degraded
			if named && !now {
				t.Errorf("%s, seed %d, step %d: %+v", tt.name, tt.seed, c.Step, v.Nodes)
				break
			}

			named = now
		}

		if !named {
			t.Errorf("%s, seed %d: %v not named", tt.name, tt.seed, truth.SlowNodes)
		}
	}
}
