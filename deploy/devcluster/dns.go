package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/switchyard-dl/switchyard/deploy/devcluster/cluster"
	"github.com/switchyard-dl/switchyard/deploy/devcluster/dns"
)

func newDNSCommand() *cobra.Command {
	var kubeconfig, listen string
	command := &cobra.Command{
		Use:           cluster.DNS,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return fmt.Errorf("read kubeconfig: %w", err)
			}
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return fmt.Errorf("make client: %w", err)
			}
			return dns.Serve(command.Context(), client, listen)
		},
	}
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "", "how to reach the API server")
	command.Flags().StringVar(&listen, "listen", "", "where to answer, by UDP and TCP")
	return command
}
