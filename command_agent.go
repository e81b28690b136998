package main

import (
	"cmp"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/laggard-dev/laggard/ageing"
	"github.com/laggard-dev/laggard/collector/recorder"
	"github.com/laggard-dev/laggard/collector/switchboard/endpoint"
	"github.com/laggard-dev/laggard/writer/agent"
)

// agentOptions are the agent's settings, and those of them that are words as they are
// typed.
type agentOptions struct {
	shipping
	agent.Options
	cap, segmentSize, switchServer string
	listen                         []string
}

// defaultDir is TaskD's profiling directory (schemas/TASKD.md section 1).
const defaultDir = "/user/cluster-info/profiling"

// agentCommand is the sidecar's: one a pod, or one a node. writer/agent has what it does.
func agentCommand() *cobra.Command {
	o := &agentOptions{}
	c := &cobra.Command{
		Use:   "agent",
		Short: "the sidecar: drain, write, age, ship; switch; /metrics, /healthz, /readyz",
		Long: `agent drains the rings of this machine's training processes into segment files, keeps these under a disk cap, and ships them to a store, each
record once. It also ships directories that another program writes (TaskD). SIGTERM: it drains until the recorders are gone or the grace is nearly
over, ships, and leaves.`,
		Example: `  laggard agent --store clickhouse://laggard@ch:9000/laggard
  laggard agent --dir /data/profiling --store parquet:/data/laggard --cap 5000MB --until-idle 5s`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}

			return agent.Run(c.Context(), o.Options)
		},
	}
	o.register(c)
	return c
}

// register adds the flags. Defaults suit a pod of MindCluster's, where nothing is set but --store.
func (o *agentOptions) register(c *cobra.Command) {
	o.shipping.flags(c, "64MiB")
	f := c.Flags()
	f.StringVar(&o.RingDir, "ring-dir", recorder.DefaultRunDir, "where the recorders make their rings")
	environment(f, "ring-dir", "LAGGARD_RUN")
	f.StringVar(&o.Dir, "dir", defaultDir, "the profiling directory: <dir>/<job>/<rank>/<unix seconds>")
	f.StringVar(&o.Store, "store", "", "parquet:DIR or clickhouse://user@host:9000/db; empty keeps files only")
	f.StringVar(&o.Node, "node", "", "this node's name, also of ranks whose files TaskD writes on its own disk (default: the host name)")
	environment(f, "node", "NODE_NAME")
	f.StringVar(&o.Pod, "pod", "", "this pod's name")
	environment(f, "pod", "POD_NAME")
	f.StringVar(&o.cap, "cap", "5000MB", "most bytes of the profiling directory (MB is 10^6, MiB is 2^20)")
	f.StringVar(&o.segmentSize, "segment-size", "10MiB", "most bytes of one segment file")
	f.DurationVar(&o.Flush, "flush", time.Second, "longest time a finished row waits before it is shipped")
	f.StringVar(&o.Format, "format", "laggard", "lines of the segments: laggard or taskd")
	f.StringVar(&o.SwitchFile, "switch-file", "", "TaskD's profilingSwitch file to obey")
	f.StringVar(&o.switchServer, "switch-server", "", "another agent's --listen address whose switch is followed (rank 0's agent)")
	f.StringVar(&o.JobName, "job-name", "", "namespace/name of the job, as callers of the switch name it; its recorders call it by that name, or by its uid (MINDX_TASK_ID)")
	environment(f, "job-name", "LAGGARD_JOB_NAME")
	f.StringSliceVar(&o.listen, "listen", []string{endpoint.Default}, "where the switch listens (gRPC): unix (switch.sock in --ring-dir; this user, root and --trust-uid may call), unix:PATH, or HOST:PORT, which any user here may call unless a certificate or token is asked for; may be repeated, empty turns it off")
	o.Endpoint.Flags(f)
	f.StringVar(&o.Metrics, "metrics", "127.0.0.1:9612", "HTTP address of /metrics, /healthz, /readyz; empty turns it off")
	f.DurationVar(&o.UntilIdle, "until-idle", 0, "leave when every recorder has been gone for so long and all is shipped; 0 stays")
	f.DurationVar(&o.Grace, "grace", 25*time.Second, "time from SIGTERM until the agent leaves")
	f.BoolVar(&o.Compress, "compress", false, "compress closed segments to .zst")
}

// check reads the settings that are words.
func (o *agentOptions) check() error {
	var err error
	if o.Intake, err = o.shipping.options(o.Store); err != nil {
		return err
	}

	if o.Cap, err = ageing.ParseSize(o.cap); err != nil || o.Cap <= 0 {
		return usage("--cap %s: want a size such as 5000MB or 5GiB", o.cap)
	}

	if o.SegmentBytes, err = ageing.ParseSize(o.segmentSize); err != nil || o.SegmentBytes <= 0 {
		return usage("--segment-size %s: want a size such as 10MiB", o.segmentSize)
	}

	if err := oneOf("--format %s", o.Format, "laggard", "taskd"); err != nil {
		return err
	}

	// Kubernetes gives NODE_NAME by the downward API; a machine without it has its host name.
	if o.Node == "" {
		if o.Node, err = os.Hostname(); err != nil {
			return fmt.Errorf("find this node's name: %w; name it with --node", err)
		}
	}

	if o.switchServer != "" && o.SwitchFile != "" {
		return usage("--switch-server and --switch-file exclude each other: one place says what is recorded")
	}

	if o.switchServer != "" && o.JobName == "" {
		return usage("--switch-server needs --job-name: the switch belongs to a job")
	}

	// As the recorders call it: by the uid that MindCluster gives, else by a name of the user's.
	o.Job = cmp.Or(os.Getenv("MINDX_TASK_ID"), os.Getenv("LAGGARD_JOB"), o.JobName)
	if err := o.switchAddresses(); err != nil {
		return usage("%v", err)
	}

	o.TrustUIDs, o.Logger = o.uids(), newLogger()
	// Less would end the agent before the last rows are shipped; Kubernetes kills after 30 seconds.
	if o.Grace < time.Second {
		return usage("--grace %s: a second at least", o.Grace)
	}

	return nil
}

// switchAddresses reads where the switch listens, and whose is followed.
func (o *agentOptions) switchAddresses() (err error) {
	o.Endpoint.RingDir, o.Endpoint.TrustUIDs = o.RingDir, o.trustUIDs
	for _, text := range o.listen {
		at, err := o.Endpoint.Parse(text)
		if err != nil {
			return fmt.Errorf("--listen: %w", err)
		}

		o.Listen = append(o.Listen, at)
	}

	if o.switchServer != "" {
		if o.SwitchServer, err = o.Endpoint.Parse(o.switchServer); err != nil {
			return fmt.Errorf("--switch-server: %w", err)
		}
	}

	return o.Endpoint.Check()
}
