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
	config     string
	controller string
	host       string
}

// role is the work of a role for one server, or for none.
type role func(ctx context.Context, c netrole.Config, host netip.Addr, log *slog.Logger) error

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

// run runs a role with the configuration of a file or of the controller.
func (f *roleFlags) run(ctx context.Context, onHost bool, work role, log *slog.Logger) error {
	with := func(ctx context.Context, c netrole.Config) error {
		host, err := f.server(c, onHost)
		if err != nil {
			return err
		}
		return work(ctx, c, host, log)
	}
	if f.controller != "" {
		if _, _, err := net.SplitHostPort(f.controller); err != nil {
			return exit.Usagef("--controller: %v", err)
		}
		return netrole.Follow(ctx, f.controller, log, with)
	}
	c, err := f.read()
	if err != nil {
		return err
	}
	return with(ctx, c)
}

// server is the server of a role that has one.
func (f *roleFlags) server(c netrole.Config, onHost bool) (netip.Addr, error) {
	if !onHost {
		return netip.Addr{}, nil
	}
	if f.host == "" {
		host, err := c.OwnServer()
		if err != nil {
			return host, exit.Usagef("%v", err)
		}
		return host, nil
	}
	host, err := netip.ParseAddr(f.host)
	if err != nil {
		return host, exit.Usagef("--host: %v", err)
	}
	return host, nil
}

// netRoleCommand makes the command of a role. asks says that it may ask the controller for its configuration, onHost
// that it runs for one server.
func (a *app) netRoleCommand(use, short string, asks, onHost bool, work role) *cobra.Command {
	var f roleFlags
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), onHost, work, slog.New(slog.NewTextHandler(a.Stderr, nil)))
		},
	}
	cmd.Flags().StringVar(&f.config, "config", "", "`FILE` with lines key=value: controller, diagnoser, pinger_listen_port, responder_listen_port, server_1.., interval, time_cyc")
	if asks {
		cmd.Flags().StringVar(&f.controller, "controller", "", "`ADDRESS:PORT` of the controller, which then gives the configuration")
		cmd.MarkFlagsOneRequired("config", "controller")
		cmd.MarkFlagsMutuallyExclusive("config", "controller")
	}
	if onHost {
		cmd.Flags().StringVar(&f.host, "host", "", "`ADDRESS` of this server, one of server_1.. (default: the one that this machine has)")
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
		a.netRoleCommand("controller", "Hand out lists of probes over HTTP, without a bus", false, false, controller),
		a.netRoleCommand("diagnose", "Find lossy links from the counts of pingers and responders, without a bus", true, false, diagnose),
		a.netRoleCommand("pinger", "Probe other servers by the controller's list, without a bus", true, true, netrole.Pinger),
		a.netRoleCommand("responder", "Answer probes, without a bus", true, true, netrole.Responder),
	}
}
