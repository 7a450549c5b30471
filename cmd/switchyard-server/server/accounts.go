package server

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/identity"
)

// accountsCommand makes what a nats-server of the operator's needs.
func (a *app) accountsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "accounts",
		Short: "Make the accounts of a nats-server of your own, and the keys for them",
		Long: `Makes in a folder the keys that it lacks, one for each service, the operator and the users of the bus, and the key by which admission signs jobs. Then it writes there:

bus/accounts.conf  for nats-server.conf (include accounts.conf): who is let in, by public keys alone, and what each may do
NAME               a folder for each process, with the files that it needs and no others: its --keys, or a Secret`,
		Example: `  switchyard bus accounts --keys ./keys
  kubectl create secret generic keys-planner --from-file=keys/planner`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if a.Keys == "" {
				return exit.Usagef("want --keys FOLDER")
			}
			dir, err := filepath.Abs(a.Keys)
			if err != nil {
				return err
			}
			if err := identity.Keys(dir).Deploy(); err != nil {
				return err
			}
			fmt.Fprintln(a.Stdout, filepath.Join(dir, identity.AccountsName))
			return nil
		},
	}
}
