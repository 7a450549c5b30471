// Package configuration has the commands that check and show switchyard.yaml. They need no running service.
package configuration

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/console"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/config"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/settings"
)

// Command makes the command of this package.
func Command(a *console.Console) *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Check and show the configuration"}
	cmd.AddCommand(checkCommand(a), showCommand(a), schemaCommand(a))
	return cmd
}

// locate returns the file to read: the named file, else the one that the services of this machine read.
func locate(a *console.Console, named string) (string, error) {
	return config.Locate(cmp.Or(named, os.Getenv(config.EnvPrefix+"CONFIG")), a.DataDir())
}

func checkCommand(a *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:   "check [FILE]",
		Short: "Report all problems of a configuration file",
		Long: `Reads a configuration file as strictly as the services do and reports every problem with its line. Files that settings name, and the machine, are only looked at when
the services start. Without FILE it checks the one that the ` + "`switchyard up`" + ` of this machine reads: of the data folder that it wrote down, else of the default one.`,
		Example: `  switchyard config check /etc/switchyard/switchyard.yaml`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			_, set := settings.New()
			named := ""
			if len(args) == 1 {
				named = args[0]
			}
			path, err := locate(a, named)
			if err != nil {
				return exit.Usagef("%v", err)
			}
			if path == "" {
				return exit.Errorf(exit.Usage, "name the file: switchyard config check FILE", "there is no configuration file")
			}
			if err := set.Load(path, nil); err != nil {
				return exit.Usagef("%v", err)
			}
			given := 0
			for _, s := range set.All() {
				if s.Source == config.File {
					given++
				}
			}
			if a.Output == "json" {
				return a.PrintJSON(map[string]any{"file": path, "settings": given})
			}
			_, err = fmt.Fprintf(a.Stdout, "%s: nothing wrong, settings given: %d\n", path, given)
			return err
		},
	}
}

// row is one setting with its value.
type row struct {
	Key     string        `json:"key"`
	Value   string        `json:"value"`
	Source  config.Source `json:"source"`
	Default string        `json:"default"`
}

func showCommand(a *console.Console) *cobra.Command {
	_, set := settings.New()
	changed := false
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print the effective configuration, and where each value comes from",
		Long: `Prints the settings that ` + "`switchyard up`" + ` would have with the same flags, in this environment, with the configuration file of this machine. Without --data-dir the
data folder is the one that ` + "`switchyard up`" + ` wrote down. Secrets are not printed.`,
		Example: `  switchyard config show --changed
  switchyard config show --config switchyard.yaml --policy fifo`,
		Args: cobra.NoArgs,
	}
	line := set.CommandLine(cmd.Flags(), nil)
	cmd.Flags().BoolVar(&changed, "changed", false, "only the settings that differ from the default")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exit.Usagef("%v", config.FlagError(err)) })
	cmd.RunE = func(*cobra.Command, []string) error {
		if dir := a.DataDir(); !cmd.Flags().Changed("data-dir") && os.Getenv(config.EnvPrefix+"DATA_DIR") == "" && dir != installation.DataDir() {
			if err := cmd.Flags().Set("data-dir", dir); err != nil {
				return err
			}
		}
		path, err := line.Load(serverEnvironment())
		if err != nil {
			return exit.Usagef("%v", err)
		}
		rows := []row{}
		for _, s := range set.All() {
			if !changed || s.Source != config.Default {
				rows = append(rows, row{s.Path(), s.Value(), s.Source, s.DefaultText()})
			}
		}
		if a.Output == "json" {
			return a.PrintJSON(map[string]any{"file": path, "settings": rows})
		}
		if path != "" {
			fmt.Fprintf(a.Stdout, "# file: %s\n", path)
		}
		return a.Table("SETTING\tVALUE\tFROM", func(w io.Writer) {
			for _, r := range rows {
				fmt.Fprintf(w, "%s\t%s\t%s\n", r.Key, r.Value, r.Source)
			}
		})
	}
	return cmd
}

// serverEnvironment is the environment without SWITCHYARD_NATS, which names the bus for commands and not the bus that
// `switchyard up` joins.
func serverEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(pair string) bool { return strings.HasPrefix(pair, "SWITCHYARD_NATS=") })
}

func schemaCommand(a *console.Console) *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of the configuration file, for editors", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, set := settings.New()
			text, err := set.Schema()
			if err != nil {
				return err
			}
			_, err = a.Stdout.Write(text)
			return err
		},
	}
}
