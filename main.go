// Command laggard finds the node that slows a distributed training job down,
// says why, and says what it costs.
//
// This package is the face of it: a table of subcommands, one command_*.go file
// each. What they do lives in collector, writer, ageing and analyzer; the
// commands only compose.
//
// Invariant: data goes to stdout, words to stderr; an error names the object,
// the cause and what to do. Exit codes: 0 done (analyze: nothing degraded),
// 1 error, 2 usage, 3 degraded, 4 not enough data to decide.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/laggard-dev/laggard/schemas/verdict"
)

// version is set by the build.
var version = "dev"

// commands is the table of subcommands, in the order help lists them.
var commands = []func() *cobra.Command{
	demoCommand,
	agentCommand,
	ingestCommand,
	analyzeCommand,
	auditCommand,
	explainCommand,
	watchCommand,
	traceCommand,
	schemaCommand,
	simulateCommand,
	exportCommand,
	installCommand,
	demoWorkerCommand,
}

func main() {
	os.Exit(run(os.Args[1:]))
}

// run executes one command line and returns the exit code.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	root := rootCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}

	exit, ok := errors.AsType[exitError](err)
	if !ok {
		exit.code = verdict.ExitError
	}

	// A verdict's code is no error to print: the verdict was printed.
	if !ok || exit.words != "" {
		fmt.Fprintf(os.Stderr, "laggard: %v\n", err)
	}

	return exit.code
}

// rootCommand assembles the table.
func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "laggard",
		Short: "which node slows the training job, why, and what it costs",
		Example: `  laggard demo                                    the whole pipeline on this machine
  laggard analyze /user/cluster-info/profiling    a verdict from files
  laggard agent --store clickhouse://laggard@ch:9000/laggard`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(c *cobra.Command, args []string) error {
			return c.Help()
		},
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("unknown command %q%s", args[0], didYouMean(args[0], commandNames(c)))
			}

			return nil
		},
	}
	root.SetVersionTemplate("laggard {{.Version}}\n")
	// Cobra's completion works, and is no command of ours.
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(flagError)
	for _, c := range commands {
		root.AddCommand(withSettings(c()))
	}

	return root
}

// commandNames are those that help lists: the demo's worker is nobody's to call.
func commandNames(c *cobra.Command) []string {
	var names []string
	for _, s := range c.Commands() {
		if !s.Hidden {
			names = append(names, s.Name())
		}
	}

	return names
}

// exitError ends the program with a code of its own, and no message where there are no words: the
// message was the data.
type exitError struct {
	code  int
	words string
}

func (e exitError) Error() string { return e.words }

// usage is an error of a command line that can't be carried out as it stands.
func usage(format string, args ...any) error {
	return exitError{verdict.ExitUsage, fmt.Sprintf(format, args...)}
}

// flagError turns the flag library's error into a usage error with the nearest flag.
func flagError(c *cobra.Command, err error) error {
	message := err.Error()
	if name, ok := strings.CutPrefix(message, "unknown flag: --"); ok {
		return usage("unknown flag --%s of laggard %s%s", name, c.Name(), didYouMean("--"+name, flagNames(c)))
	}

	return usage("%s (see laggard %s --help)", message, c.Name())
}

// writeJSON writes a value as people read it.
func writeJSON(w io.Writer, indent string, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", indent)
	return e.Encode(v)
}

// positional returns an argument check with a message that says what is missing.
func positional(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usage("laggard %s: %s is missing (usage: laggard %s)", c.Name(), names[len(args)], c.Use)
		case len(args) > len(names):
			return usage("laggard %s: unexpected argument %q (usage: laggard %s)", c.Name(), args[len(names)], c.Use)
		}

		return nil
	}
}
