package cli

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/services/energy"
	"github.com/switchyard-dl/switchyard/services/energy/influx"
)

func (a *app) influxCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "influx", Short: "Prepare a time-series database", Args: cobra.NoArgs}
	cmd.AddCommand(a.influxSetupCommand())
	return cmd
}

func (a *app) influxSetupCommand() *cobra.Command {
	var c influx.Config
	var s influx.Setup
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Make the buckets, retention and downsampling that the energy service needs",
		Long: `Makes what the energy service writes to in an InfluxDB, or corrects it: raw points for 7 days, minutes for 90 days, hours for 2 years. On version 2 these are the buckets
DATABASE/raw, DATABASE/1m and DATABASE/1h and a task for each measurement; on 1.8 a database with three retention policies of those names and continuous queries. It can be repeated.`,
		Example: `  switchyard influx setup --influx-url http://127.0.0.1:8086 --influx-token TOKEN
  switchyard influx setup --influx-url http://old:8086 --influx-token user:password --influx-pipetune energy`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := run.ApplyEnv(cmd.LocalFlags(), influxEnvironment()); err != nil {
				return failure(ExitUsage, "", "%v", err)
			}
			client := influx.Open(c)
			defer client.Close()
			return a.influxSetup(cmd.Context(), client, c.URL, s, patience)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&c.URL, "influx-url", "http://127.0.0.1:8086", "URL of the database")
	fs.StringVar(&c.Token, "influx-token", "", "API token that may make buckets and tasks; for 1.8 user:password")
	fs.StringVar(&c.Org, "influx-org", "switchyard", "organisation; 1.8 has none")
	fs.StringVar(&s.Database, "influx-database", energy.DefaultDatabase, "what the buckets begin with")
	fs.StringVar(&s.PipeTune, "influx-pipetune", "", "also make this database for power under PipeTune's names")
	fs.StringVar(&s.GroundTruth, "influx-ground-truth", "", "also make this database for the best settings known of workloads, under PipeTune's names")
	fs.DurationVar(&patience, "wait", 0, "how long to wait for a database that does not answer yet")
	return cmd
}

// influxEnvironment is what the environment says of the database: the rest is for other commands.
func influxEnvironment() []string {
	var pairs []string
	for _, name := range []string{"URL", "TOKEN", "ORG", "DATABASE", "PIPETUNE"} {
		key := run.EnvPrefix + "INFLUX_" + name
		if value, set := os.LookupEnv(key); set {
			pairs = append(pairs, key+"="+value)
		}
	}
	return pairs
}

func (a *app) influxSetup(ctx context.Context, client *influx.Client, url string, s influx.Setup, patience time.Duration) error {
	version, err := client.Ping(ctx)
	for began := time.Now(); err != nil && time.Since(began) < patience; {
		select {
		case <-ctx.Done():
			return runtime(ctx.Err())
		case <-time.After(time.Second):
		}
		version, err = client.Ping(ctx)
	}
	if err != nil {
		return failure(ExitUnreachable, "name it with --influx-url or SWITCHYARD_INFLUX_URL", "no InfluxDB at %s: %v", url, err)
	}
	did, err := client.Prepare(ctx, s)
	if err != nil {
		return runtime(err)
	}
	if a.output == "json" {
		return a.printJSON(map[string]any{"version": version, "done": did})
	}
	for _, line := range did {
		_, _ = fmt.Fprintln(a.stdout, line)
	}
	_, _ = fmt.Fprintf(a.stdout, "InfluxDB %s is ready\n", version)
	return nil
}
