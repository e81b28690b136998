package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	ddl "github.com/laggard-dev/laggard/schemas/clickhouse"
	"github.com/laggard-dev/laggard/writer/clickhouse"
)

// schemaCommand is for servers on which an agent may not make its tables.
func schemaCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "schema",
		Short: "ClickHouse DDL: print it, or apply it to a server",
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(schemaPrintCommand(), schemaApplyCommand())
	return c
}

// schemaOptions are what print and apply have in common.
type schemaOptions struct {
	cluster string
	ttl     []string
}

// flags adds the settings of both commands.
func (o *schemaOptions) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.cluster, "cluster", "", "Replicated tables on this cluster, with Distributed ones in front")
	f.StringSliceVar(&o.ttl, "ttl", nil, "days to keep rows, by table: records=7,steps=90 (default: for ever)")
}

// days turns --ttl into table → days.
func (o *schemaOptions) days() (map[string]int, error) {
	days := map[string]int{}
	for _, word := range o.ttl {
		table, text, _ := strings.Cut(word, "=")
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, usage("--ttl %s: want TABLE=DAYS with at least one day", word)
		}

		if !slices.Contains(ddl.Tables, table) {
			return nil, usage("--ttl %s: no table %q%s", word, table, didYouMean(table, ddl.Tables))
		}

		days[table] = n
	}

	return days, nil
}

// schemaPrintCommand needs no server: the statements go to whoever may run them.
func schemaPrintCommand() *cobra.Command {
	var o schemaOptions
	var server, database string
	c := &cobra.Command{
		Use:     "print",
		Short:   "print the DDL for a server version",
		Example: "  laggard schema print\n  laggard schema print --server 18.16\n  laggard schema print --cluster training --ttl records=7",
		RunE: func(c *cobra.Command, _ []string) error {
			days, err := o.days()
			if err != nil {
				return err
			}

			v := ddl.Latest
			if server != "" {
				if v, err = ddl.ParseVersion(server); err != nil {
					return usage("--server %s: want a version such as 18.16 or 26.7", server)
				}
			}

			for _, s := range ddl.Statements(v, ddl.Options{Database: database, Cluster: o.cluster, TTL: days}) {
				fmt.Fprintf(c.OutOrStdout(), "%s;\n\n", s)
			}

			return nil
		},
	}
	o.flags(c)
	c.Flags().StringVar(&server, "server", "", "version of the server the DDL is for (default: the current one)")
	c.Flags().StringVar(&database, "database", "", "database to name in the statements (default: the connection's, with --cluster laggard)")
	return c
}

// schemaApplyCommand makes what is missing, and changes nothing that is there.
func schemaApplyCommand() *cobra.Command {
	var o schemaOptions
	c := &cobra.Command{
		Use:   "apply STORE",
		Short: "create what is missing on a server, or on every host of a cluster",
		Long: `apply creates the tables and columns that are missing. With --cluster it makes the database, the replicated tables (<table>_local) and the Distributed
ones before them ON CLUSTER, then looks at every host that the server's remote_servers name: it is done when each has everything, and else says which
host lacks what, or does not answer. Existing columns and rows are never touched.`,
		Example: "  laggard schema apply clickhouse://laggard@ch:9000/laggard\n  laggard schema apply clickhouse://laggard@ch:9000/laggard --cluster training",
		Args:    positional("STORE"),
		RunE: func(c *cobra.Command, args []string) error {
			days, err := o.days()
			if err != nil {
				return err
			}

			if !strings.HasPrefix(args[0], "clickhouse:") {
				return usage("schema apply %s: only ClickHouse has a schema to apply; want clickhouse://user@host:9000/db", args[0])
			}

			sink, err := clickhouse.Open(args[0], clickhouse.Options{Cluster: o.cluster, TTL: days})
			if err != nil {
				return err
			}
			defer sink.Close()
			hosts, err := sink.Apply(c.Context())
			if err != nil {
				return err
			}

			if o.cluster != "" {
				fmt.Fprintf(os.Stderr, "schema applied to %s: every table is on each of the %d hosts of cluster %s: %s\n", sink.Name(), len(hosts), o.cluster, strings.Join(hosts, ", "))
				return nil
			}

			v, err := sink.Version(c.Context())
			if err != nil {
				return err
			}

			fmt.Fprintf(os.Stderr, "schema applied to %s (ClickHouse %s)\n", sink.Name(), v)
			return nil
		},
	}
	o.flags(c)
	return c
}
