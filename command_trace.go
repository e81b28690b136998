package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/laggard-dev/laggard/collector/recorder"
	"github.com/laggard-dev/laggard/collector/switchboard"
	"github.com/laggard-dev/laggard/collector/switchboard/endpoint"
	"github.com/laggard-dev/laggard/collector/trace"
	"github.com/laggard-dev/laggard/schemas/tracepb"
)

// traceCommand turns recording on and off while the job runs, and tells what is on.
func traceCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "trace",
		Short: "the switch: what the recorders record, by job",
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(traceSetCommand("on"), traceSetCommand("off"), traceStatusCommand())
	return c
}

// traceCall is a call to an agent's switch.
type traceCall struct {
	job, address string
	endpoint     endpoint.Options
}

// flags registers where the switch is and who asks.
func (t *traceCall) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&t.job, "job", "", "the job; <namespace>/<job> or the job alone")
	f.StringVar(&t.address, "agent", endpoint.Default, "the agent's switch address (its --listen): unix (switch.sock in --ring-dir), unix:PATH, or HOST:PORT")
	f.StringVar(&t.endpoint.RingDir, "ring-dir", recorder.DefaultRunDir, "where the recorders make their rings")
	environment(f, "ring-dir", "LAGGARD_RUN")
	t.endpoint.CallerFlags(f)
}

// callTimeout bounds one call to an agent.
const callTimeout = 10 * time.Second

// do calls the agent.
func (t *traceCall) do(ctx context.Context, f func(context.Context, grpc.ClientConnInterface, string) error) error {
	if t.job == "" {
		return usage("--job is missing: the switch belongs to a job")
	}

	name := t.job
	if !strings.Contains(name, "/") {
		name = "default/" + name
	}

	at, err := t.endpoint.Parse(t.address)
	if err != nil {
		return usage("--agent: %v", err)
	}

	if err := t.endpoint.Check(); err != nil {
		return usage("%v", err)
	}

	conn, err := t.endpoint.Dial(at)
	if err != nil {
		return fmt.Errorf("call agent %s: %w", at, err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := f(ctx, conn, name); err != nil {
		// A refused connection mostly means that no agent listens there; other errors are the agent's own words.
		if s := status.Convert(err); s.Code() == codes.Unavailable && !strings.HasPrefix(at, "unix:") {
			return fmt.Errorf("call agent %s: %s; is `laggard agent` running with --listen there?", at, s.Message())
		} else if s.Code() != codes.Unknown {
			return fmt.Errorf("call agent %s: %s", at, s.Message())
		}

		return fmt.Errorf("call agent %s: %w", at, err)
	}

	return nil
}

// traceSetCommand is `trace on` or `trace off`.
func traceSetCommand(word string) *cobra.Command {
	var t traceCall
	var words, server string
	var configMap bool
	c := &cobra.Command{
		Use:     word,
		Short:   "turn recording " + word,
		Example: fmt.Sprintf("  laggard trace %s --job j1\n  laggard trace on --job j1 --words Step,FP,SaveCheckpoint,DataLoader\n  laggard trace %s --job research/j1 --configmap", word, word),
		RunE: func(c *cobra.Command, _ []string) error {
			state := trace.State{}
			if word == "on" {
				var err error
				if state, err = trace.Parse(words); err != nil {
					return usage("--words: %v", err)
				}
			} else if words != "" {
				return usage("--words goes with trace on; trace off turns everything off (to keep the four light kinds: trace on --words Step)")
			}

			if configMap {
				return t.configMap(c.Context(), c.OutOrStdout(), server, state)
			}

			return t.do(c.Context(), func(ctx context.Context, conn grpc.ClientConnInterface, name string) error {
				r, err := tracepb.NewTrainingDataTraceClient(conn).ModifyTrainingDataTraceSwitch(ctx, &tracepb.DataTypeReq{JobNsName: name, ProfilingSwitch: switchboard.Switch(state.Words())})
				if err != nil {
					return err
				}

				if r.GetCode() != switchboard.OK {
					return fmt.Errorf("code %d: %s", r.GetCode(), r.GetMessage())
				}

				fmt.Fprintln(c.OutOrStdout(), r.GetMessage())
				return nil
			})
		},
	}
	t.flags(c)
	c.Flags().BoolVar(&configMap, "configmap", false, "make or change MindCluster's ConfigMap data-trace-<job> in the job's namespace, which reaches all of its nodes, and call no agent")
	c.Flags().StringVar(&server, "kubernetes-server", "", "with --configmap: URL of the API server, e.g. of `kubectl proxy` (default: the pod's)")
	if word == "on" {
		c.Flags().StringVar(&words, "words", "on", "what is on: on (everything), or of CommunicationOperator,Step,SaveCheckpoint,FP,DataLoader")
	}

	return c
}

// configMap switches by the cluster instead of an agent.
func (t *traceCall) configMap(ctx context.Context, w io.Writer, server string, state trace.State) error {
	namespace, job, found := strings.Cut(t.job, "/")
	if !found {
		namespace, job = "default", t.job
	}

	if job == "" || namespace == "" {
		return usage("--job %q: want <namespace>/<job>", t.job)
	}

	api, err := clusterAPI(server, false)
	if err != nil {
		return fmt.Errorf("--configmap: %w", err)
	}

	name, err := api.SetSwitch(ctx, namespace, job, state.Words())
	if err != nil {
		return fmt.Errorf("switch job %s by its ConfigMap: %w", t.job, err)
	}

	fmt.Fprintf(w, "%s/%s: %s (ConfigMap %s)\n", namespace, job, state, name)
	return nil
}

// traceStatusCommand shows what is wanted beside what each recorder follows.
func traceStatusCommand() *cobra.Command {
	var t traceCall
	var output string
	c := &cobra.Command{
		Use:   "status",
		Short: "what each recorder was told, and what it follows: on this machine, with --job on all nodes",
		Long: `status lists the recorders of this machine. With --job it asks the agent that serves the job's switch (rank 0's) for those of
every node whose agent subscribes to it.`,
		Example: "  laggard trace status\n  laggard trace status --job ns/j1 --agent rank0-host:9611",
		RunE: func(c *cobra.Command, _ []string) error {
			recorders, err := t.recorders(c.Context())
			if err != nil {
				return err
			}

			if output == "json" {
				return writeJSON(c.OutOrStdout(), " ", recorders)
			}

			return traceTable(c.OutOrStdout(), recorders)
		},
	}
	t.flags(c)
	c.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return c
}

// recorders returns those of a run directory, or with a job those that its agent
// knows of.
func (t *traceCall) recorders(ctx context.Context) (recorders []trace.Recorder, err error) {
	if t.job == "" {
		return trace.Recorders(t.endpoint.RingDir)
	}

	err = t.do(ctx, func(ctx context.Context, conn grpc.ClientConnInterface, name string) error {
		recorders, err = switchboard.Followers(ctx, conn, name)
		return err
	})
	return recorders, err
}

// traceTable prints a line a recorder: what it was told to record, what it records, and since when.
func traceTable(w io.Writer, recorders []trace.Recorder) error {
	if len(recorders) == 0 {
		_, err := fmt.Fprintln(w, "no recorder: has a trainer begun its first range, is LAGGARD_RUN (or --job) the right one?")
		return err
	}

	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "JOB\tRANK\tNODE\tPID\tWANTED\tFOLLOWED\tSINCE")
	for _, r := range recorders {
		fmt.Fprintf(t, "%s\t%d\t%s\t%d\t%s\t%s\t%s\n", r.Job, r.Rank, cmp.Or(r.Node, "-"), r.PID, r.Wanted, r.Followed, time.Unix(0, r.FollowedAt).UTC().Format(time.RFC3339))
	}

	return t.Flush()
}
