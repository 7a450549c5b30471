package main

import (
	"fmt"
	"net/url"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/switchyard-dl/switchyard/deploy/devcluster/cluster"
)

// newEtcdCommand is etcd as one member that forgets: a development cluster's data need not survive a power cut, so
// nothing is synced.
func newEtcdCommand() *cobra.Command {
	var dataDir, clientURL, peerURL string
	command := &cobra.Command{
		Use:           cluster.Etcd,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			config, err := etcdConfig(dataDir, clientURL, peerURL)
			if err != nil {
				return err
			}
			server, err := embed.StartEtcd(config)
			if err != nil {
				return fmt.Errorf("start etcd in %s: %w", dataDir, err)
			}
			defer server.Close()
			select {
			case <-command.Context().Done():
				return nil
			case err := <-server.Err():
				return fmt.Errorf("serve etcd: %w", err)
			}
		},
	}
	command.Flags().StringVar(&dataDir, "data-dir", "", "where the data lies")
	command.Flags().StringVar(&clientURL, "listen-client-url", "", "where clients connect")
	command.Flags().StringVar(&peerURL, "listen-peer-url", "", "where peers would connect")
	return command
}

func etcdConfig(dataDir, clientURL, peerURL string) (*embed.Config, error) {
	client, err := url.Parse(clientURL)
	if err != nil {
		return nil, fmt.Errorf("parse client URL: %w", err)
	}
	peer, err := url.Parse(peerURL)
	if err != nil {
		return nil, fmt.Errorf("parse peer URL: %w", err)
	}
	config := embed.NewConfig()
	config.Dir = dataDir
	config.ListenClientUrls = []url.URL{*client}
	config.AdvertiseClientUrls = []url.URL{*client}
	config.ListenPeerUrls = []url.URL{*peer}
	config.AdvertisePeerUrls = []url.URL{*peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.UnsafeNoFsync = true
	config.QuotaBackendBytes = 8 << 30
	config.LogLevel = "warn"
	return config, nil
}
