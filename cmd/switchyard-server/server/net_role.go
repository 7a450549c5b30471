package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard-server/netrole"
	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
)

// roleFlags are the flags of a role of deTector.
type roleFlags struct {
	config string
	host   string
}

func (f *roleFlags) read() (netrole.Config, error) {
	if f.config == "" {
		return netrole.Config{}, exit.Usagef("want --config")
	}
	text, err := os.ReadFile(f.config)
	if err != nil {
		return netrole.Config{}, exit.Usagef("--config: %v", err)
	}
	c, err := netrole.ParseConfig(string(text))
	if err != nil {
		return c, exit.Usagef("%s: %v", f.config, err)
	}
	c.KeyFile, c.PathsFile = f.config+".key", f.config+".paths"
	return c, nil
}

// netRoleCommand makes the command of a role. onHost says that the role runs for one server.
func (a *app) netRoleCommand(use, short string, onHost bool, work func(ctx context.Context, c netrole.Config, host netip.Addr, log *slog.Logger) error) *cobra.Command {
	var f roleFlags
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.read()
			if err != nil {
				return err
			}
			var host netip.Addr
			if onHost {
				if host, err = netip.ParseAddr(f.host); err != nil {
					return exit.Usagef("--host: %v", err)
				}
			}
			return work(cmd.Context(), c, host, slog.New(slog.NewTextHandler(a.Stderr, nil)))
		},
	}
	cmd.Flags().StringVar(&f.config, "config", "", "`FILE` with lines key=value: controller, diagnoser, pinger_listen_port, responder_listen_port, server_1.., interval, time_cyc")
	if onHost {
		cmd.Flags().StringVar(&f.host, "host", "", "`ADDRESS` of this server, one of server_1..")
	}
	return cmd
}

// netRoles are the roles of deTector for clusters without a bus.
func (a *app) netRoles() []*cobra.Command {
	say := func(at net.Addr) { fmt.Fprintf(a.Stdout, "listening on %s\n", at) }
	controller := func(ctx context.Context, c netrole.Config, _ netip.Addr, log *slog.Logger) error {
		return netrole.Controller(ctx, c, log, say)
	}
	diagnose := func(ctx context.Context, c netrole.Config, _ netip.Addr, log *slog.Logger) error {
		return netrole.Diagnose(ctx, c, log, say)
	}
	return []*cobra.Command{
		a.netRoleCommand("controller", "Hand out lists of probes over HTTP, without a bus", false, controller),
		a.netRoleCommand("diagnose", "Find lossy links from the counts of pingers and responders, without a bus", false, diagnose),
		a.netRoleCommand("pinger", "Probe other servers by the controller's list, without a bus", true, netrole.Pinger),
		a.netRoleCommand("responder", "Answer probes, without a bus", true, netrole.Responder),
	}
}
