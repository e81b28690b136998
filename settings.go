package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"gopkg.in/yaml.v3"

	"github.com/laggard-dev/laggard/schemas/spelling"
)

// Settings come from four places: flags > environment > YAML file > defaults.
// A flag --ring-dir is LAGGARD_RING_DIR in the environment, or the shorter or
// older name that it was registered with, and ring-dir in the file named by
// --config (LAGGARD_CONFIG). An unknown key in the file is an error.

// environmentAnnotation is where a flag keeps its further names in the environment: the flag
// library has no field for them.
const environmentAnnotation = "environment"

// environment gives a flag another name in the environment.
func environment(flags *pflag.FlagSet, flag, name string) {
	flags.Lookup(flag).Usage += " (environment " + name + ")"
	_ = flags.SetAnnotation(flag, environmentAnnotation, []string{name}) // its error is of a flag that is not there
}

// withSettings adds --config to a command and fills flags that the command line
// left out before the command runs.
func withSettings(c *cobra.Command) *cobra.Command {
	for _, sub := range c.Commands() {
		withSettings(sub)
	}

	if c.RunE == nil {
		return c
	}

	if c.Args == nil {
		c.Args = positional()
	}

	file := c.Flags().String("config", os.Getenv("LAGGARD_CONFIG"), "YAML file with settings: keys are the flags' names (environment LAGGARD_CONFIG)")
	// Filled when it runs, not when it is made: the command line is parsed between the two.
	inner := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := fill(c.Flags(), *file); err != nil {
			return err
		}

		return inner(c, args)
	}
	return c
}

// fill sets each flag that the command line left out from the environment, else
// from the file.
func fill(flags *pflag.FlagSet, file string) error {
	values, err := readSettings(flags, file)
	if err != nil {
		return err
	}

	var first error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || first != nil || f.Name == "config" || f.Name == "help" {
			return
		}

		from, value, ok := fromEnvironment(f)
		if !ok {
			if value, ok = values[f.Name]; !ok {
				return
			}

			from = fmt.Sprintf("%s in %s", f.Name, file)
		}

		if err := flags.Set(f.Name, value); err != nil {
			first = usage("%s: %v", from, err)
		}
	})
	return first
}

// fromEnvironment returns the first name in the environment that holds a value for a flag: those it
// was registered with come before its own.
func fromEnvironment(f *pflag.Flag) (name, value string, ok bool) {
	own := "LAGGARD_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
	for _, n := range append(slices.Clip(f.Annotations[environmentAnnotation]), own) {
		if v := os.Getenv(n); v != "" {
			return n, v, true
		}
	}

	return "", "", false
}

// readSettings reads the YAML file into flag name → value. No file is no settings.
func readSettings(flags *pflag.FlagSet, file string) (map[string]string, error) {
	if file == "" {
		return nil, nil
	}

	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}

	var raw map[string]any
	if err := yaml.Unmarshal(b, &raw); err != nil {
		return nil, usage("settings %s: %v", file, err)
	}

	values := map[string]string{}
	for key, v := range raw {
		if flags.Lookup(key) == nil || key == "config" || key == "help" {
			return nil, usage("settings %s: unknown key %q%s", file, key, didYouMean(key, settingNames(flags)))
		}

		// A flag takes one value; a list in YAML would be its Go syntax.
		switch v.(type) {
		case map[string]any, []any, nil:
			return nil, usage("settings %s: %s wants one value", file, key)
		}

		values[key] = fmt.Sprint(v)
	}

	return values, nil
}

// flagNames returns the flags as they are typed.
func flagNames(c *cobra.Command) []string {
	names := settingNames(c.Flags())
	for i := range names {
		names[i] = "--" + names[i]
	}

	return names
}

// settingNames returns the flags as the file names them, for the hint at a misspelt key.
func settingNames(flags *pflag.FlagSet) []string {
	var names []string
	flags.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	slices.Sort(names)
	return names
}

// oneOf refuses a word that is none of those known. refused says what it is, with a verb
// for the word.
func oneOf(refused, word string, known ...string) error {
	if slices.Contains(known, word) {
		return nil
	}

	return usage(refused+"%s", word, didYouMean(word, known))
}

// didYouMean returns "; did you mean X?" with the nearest of the known words, or
// the list of them when none is near.
func didYouMean(word string, known []string) string {
	if best := spelling.Nearest(word, known); best != "" {
		return fmt.Sprintf("; did you mean %s?", best)
	}

	return "; known: " + strings.Join(known, ", ")
}
