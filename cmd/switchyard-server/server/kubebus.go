package server

import (
	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard-server/kubebus"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/settings"
)

// kubernetesCommand runs a server of the bus in a pod.
func (a *app) kubernetesCommand() *cobra.Command {
	var o kubebus.Options
	cmd := &cobra.Command{
		Use:   "kubernetes",
		Short: "Run a server of the bus as a pod of Kubernetes",
		Long: `Runs the nats-server that a configuration file describes, and lets the agents of all nodes of the cluster in: each has an account of its own, which speaks for its node alone. An agent gets the key of its node for the token of its pod, whose node the API server names (TokenReview).

The manifests in deploy/k8s use it. --keys is the folder bus of those that switchyard bus accounts --kubernetes makes.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.Keys == "" {
				return exit.Usagef("want --keys FOLDER")
			}
			o.Keys = identity.Keys(a.Keys)
			k, err := kubebus.Connect()
			if err != nil {
				return err
			}
			common := settings.Common{LogFormat: "json"}
			return kubebus.Run(cmd.Context(), o, k, common.NewLogger(a.Stderr))
		},
	}
	cmd.Flags().StringVar(&o.Config, "server-config", "/etc/nats/nats.conf", "`FILE` with the configuration of nats-server")
	cmd.Flags().StringVar(&o.Accounts, "accounts", "/data/accounts.conf", "`FILE` that it includes, for the accounts: it is written here")
	cmd.Flags().StringVar(&o.Listen, "listen", ":4223", "`ADDRESS` at which agents get the keys of their nodes")
	cmd.Flags().StringVar(&o.Agent, "agent", "system:serviceaccount:"+identity.Namespace+"-nodes:nodeagent", "`USER` that node agents are to the API server")
	return cmd
}
