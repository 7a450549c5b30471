package server

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/config"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/services/energy/influx"
)

func (a *app) influxCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "influx", Short: "Prepare a time-series database"}
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
		Long: `Makes or corrects what the energy service needs in an InfluxDB: raw points for 7 days, minutes for 90 days, hours for 2 years. On version 2 these are the buckets
DATABASE/raw, DATABASE/1m and DATABASE/1h and a task for each measurement; on 1.8 a database with three retention policies of those names and continuous queries. The command can be repeated.`,
		Example: `  switchyard influx setup --influx-url http://127.0.0.1:8086 --influx-token TOKEN
  switchyard influx setup --influx-url http://old:8086 --influx-token user:password --influx-pipetune energy`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := influxEnvironment(cmd.Flags()); err != nil {
				return exit.Usagef("%v", err)
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
	fs.StringVar(&s.Database, "influx-database", settings.InfluxDatabase, "prefix of the buckets' names")
	fs.StringVar(&s.PipeTune, "influx-pipetune", "", "also make this database for power under PipeTune's names")
	fs.StringVar(&s.GroundTruth, "influx-ground-truth", "", "also make this database for the best known settings of workloads, under PipeTune's names")
	fs.DurationVar(&patience, "wait", 0, "how long to wait for a database that does not answer yet")
	return cmd
}

// influxEnvironment sets from the environment the flags of the database that the command line left alone.
func influxEnvironment(fs *pflag.FlagSet) error {
	for _, name := range []string{"url", "token", "org", "database", "pipetune", "ground-truth"} {
		variable := config.EnvPrefix + "INFLUX_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		value, given := os.LookupEnv(variable)
		if !given || fs.Changed("influx-"+name) {
			continue
		}
		if err := fs.Set("influx-"+name, value); err != nil {
			return fmt.Errorf("environment variable %s: %w", variable, err)
		}
	}
	return nil
}

func (a *app) influxSetup(ctx context.Context, client *influx.Client, url string, s influx.Setup, patience time.Duration) error {
	version, err := client.Ping(ctx)
	for began := time.Now(); err != nil && time.Since(began) < patience; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
		version, err = client.Ping(ctx)
	}
	if err != nil {
		return exit.Errorf(exit.Unreachable, "name it with --influx-url or SWITCHYARD_INFLUX_URL", "no InfluxDB at %s: %v", url, err)
	}
	did, err := client.Prepare(ctx, s)
	if err != nil {
		return err
	}
	if a.Output == "json" {
		return a.PrintJSON(map[string]any{"version": version, "done": did})
	}
	for _, line := range did {
		fmt.Fprintln(a.Stdout, line)
	}
	fmt.Fprintf(a.Stdout, "InfluxDB %s is ready\n", version)
	return nil
}
