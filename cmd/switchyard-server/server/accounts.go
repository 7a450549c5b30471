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
	var deployment identity.Deployment
	cmd := &cobra.Command{
		Use:   "accounts",
		Short: "Make the accounts of a nats-server of your own, and the keys for them",
		Long: `Makes in a folder the keys that it lacks, one for each service, the operator and the users of the bus, and the key by which admission signs jobs. Then it writes there:

bus/accounts.conf  for nats-server.conf (include accounts.conf): who is let in, by public keys alone, and what each may do
NAME               a folder for each process, with the files that it needs and no others: its --keys, or a Secret
nodes/NODE         a folder for the agent of each node that --node has named: it speaks for that node alone

With --hosts the folders of all processes and of the bus also get tls.crt, tls.key and ca.crt, made by an authority in the folder authority: connections are encrypted then, and both sides show a certificate. They are valid for three years; the same command makes new ones.

With --kubernetes it also writes kustomization.yaml, which the overlays in deploy/k8s include, and which kubectl apply -k takes beside the Helm chart.`,
		Example: `  switchyard bus accounts --keys ./keys --hosts nats.example.org --node gpu-1 --node gpu-2
  switchyard bus accounts --keys ./keys --kubernetes`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if a.Keys == "" {
				return exit.Usagef("want --keys FOLDER")
			}
			dir, err := filepath.Abs(a.Keys)
			if err != nil {
				return err
			}
			if err := identity.Keys(dir).Deploy(deployment); err != nil {
				return err
			}
			fmt.Fprintln(a.Stdout, filepath.Join(dir, identity.AccountsName))
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&deployment.Hosts, "hosts", nil, "names and addresses under which nats-servers are reached: make certificates")
	cmd.Flags().BoolVar(&deployment.Kubernetes, "kubernetes", false, "write a kustomization with the Secrets, and certificates for the servers in the cluster")
	cmd.Flags().StringVar(&deployment.Namespace, "namespace", identity.Namespace, "with --kubernetes, the namespace of the services; the node agents are in NAMESPACE-nodes")
	cmd.Flags().StringSliceVar(&deployment.Nodes, "node", nil, "ids of nodes whose agents get keys of their own (those named before keep theirs)")
	return cmd
}
