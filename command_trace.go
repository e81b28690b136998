package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"laggard/collector/recorder"
	"laggard/collector/switchboard"
	"laggard/collector/trace"
	"laggard/schemas/tracepb"
)

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
}

func (t *traceCall) flags(c *cobra.Command) {
	c.Flags().StringVar(&t.job, "job", "", "the job; <namespace>/<job> or the job alone")
	c.Flags().StringVar(&t.address, "agent", "127.0.0.1:9611", "the agent's switch address (its --listen)")
}

// callTimeout bounds one call to an agent.
const callTimeout = 10 * time.Second

// do calls the agent.
func (t *traceCall) do(ctx context.Context, f func(context.Context, tracepb.TrainingDataTraceClient, string) error) error {
	if t.job == "" {
		return usage("--job is missing: the switch belongs to a job")
	}
	name := t.job
	if !strings.Contains(name, "/") {
		name = "default/" + name
	}
	conn, err := grpc.NewClient(t.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("call agent %s: %w", t.address, err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := f(ctx, tracepb.NewTrainingDataTraceClient(conn), name); err != nil {
		return fmt.Errorf("call agent %s: %w; is `laggard agent` running with --listen there?", t.address, err)
	}
	return nil
}

func traceSetCommand(word string) *cobra.Command {
	var t traceCall
	var words string
	c := &cobra.Command{
		Use:     word,
		Short:   "turn recording " + word,
		Example: fmt.Sprintf("  laggard trace %s --job j1\n  laggard trace on --job j1 --words Step,FP,SaveCheckpoint,DataLoader", word),
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
			return t.do(c.Context(), func(ctx context.Context, client tracepb.TrainingDataTraceClient, name string) error {
				r, err := client.ModifyTrainingDataTraceSwitch(ctx, &tracepb.DataTypeReq{JobNsName: name, ProfilingSwitch: profilingSwitch(state.Words())})
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
	if word == "on" {
		c.Flags().StringVar(&words, "words", "on", "what is on: on (everything), or of CommunicationOperator,Step,SaveCheckpoint,FP,DataLoader")
	}
	return c
}

func profilingSwitch(w trace.Words) *tracepb.ProfilingSwitch {
	return &tracepb.ProfilingSwitch{
		CommunicationOperator: w.CommunicationOperator, Step: w.Step, SaveCheckpoint: w.SaveCheckpoint, FP: w.FP, DataLoader: w.DataLoader,
	}
}

func traceStatusCommand() *cobra.Command {
	var ringDir, output string
	c := &cobra.Command{
		Use:   "status",
		Short: "what each recorder on this machine was told, and what it follows",
		RunE: func(c *cobra.Command, _ []string) error {
			recorders, err := trace.Recorders(ringDir)
			if err != nil {
				return err
			}
			if output == "json" {
				e := json.NewEncoder(c.OutOrStdout())
				e.SetIndent("", " ")
				return e.Encode(recorders)
			}
			return traceTable(c.OutOrStdout(), ringDir, recorders)
		},
	}
	c.Flags().StringVar(&ringDir, "ring-dir", recorder.DefaultRunDir, "where the recorders make their rings")
	environment(c.Flags(), "ring-dir", "LAGGARD_RUN")
	c.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return c
}

func traceTable(w io.Writer, ringDir string, recorders []trace.Recorder) error {
	if len(recorders) == 0 {
		_, err := fmt.Fprintf(w, "no recorder under %s\n", ringDir)
		return err
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "JOB\tRANK\tPID\tWANTED\tFOLLOWED\tSINCE")
	for _, r := range recorders {
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%s\n", r.Job, r.Rank, r.PID, r.Wanted, r.Followed, time.Unix(0, r.FollowedAt).UTC().Format(time.RFC3339))
	}
	return t.Flush()
}
