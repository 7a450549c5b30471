// Package kubebus runs a server of the bus as a pod of Kubernetes and lets the agents of the cluster's nodes in. The
// agent of each node has an account of its own (libs/identity), and gets its key for the token of its pod: the API
// server says on which node that runs.
package kubebus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/switchyard-dl/switchyard/libs/busserver"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/tick"
)

// Options are what a server of the bus has in its pod.
type Options struct {
	// Config is the configuration of nats-server, which includes the file Accounts. Run writes that.
	Config, Accounts string
	// Keys is the folder with the server's certificate and the secret of the keys of nodes.
	Keys identity.Keys
	// Listen is the address at which agents get their keys, Agent the user that they are to the API server.
	Listen, Agent string
}

// Run runs the server until ctx ends.
func Run(ctx context.Context, o Options, k Kubernetes, log *slog.Logger) error {
	keys, err := o.Keys.Cluster()
	if err != nil {
		return err
	}
	m := &members{keys: keys, file: o.Accounts, list: k.Nodes, reload: func() error { return nil }, log: log}
	if err := m.begin(ctx); err != nil {
		return err
	}
	s, err := busserver.StartConfigured(o.Config, log)
	if err != nil {
		return err
	}
	defer s.Stop()
	m.mu.Lock()
	m.reload = s.Reload
	m.mu.Unlock()
	d := &door{keys: keys, members: m, agent: o.Agent, tokens: k.tokens, log: log}
	work := pool.New().WithContext(ctx).WithCancelOnError()
	work.Go(m.follow)
	work.Go(func(ctx context.Context) error { return d.serve(ctx, o.Listen, o.Keys) })
	return work.Wait()
}

// members keeps an account for each node of the cluster.
type members struct {
	keys *identity.Cluster
	// file has the accounts, for the server that reload makes read it again.
	file   string
	list   func(context.Context) ([]string, error)
	reload func() error
	log    *slog.Logger

	mu    sync.Mutex
	known []string
}

const (
	// lookEvery is how often the nodes are listed. Another server of the bus hears of a new one that late.
	lookEvery = 20 * time.Second
	// lookTime bounds one list.
	lookTime = 10 * time.Second
)

// begin writes the accounts before the server starts. While the API server is away, the nodes of last time have theirs.
func (m *members) begin(ctx context.Context) error {
	err := m.look(ctx)
	if err == nil {
		return nil
	}
	m.log.Warn("the nodes of the cluster are not known: those of last time are let in", "error", err)
	if _, missing := os.Stat(m.file); !errors.Is(missing, os.ErrNotExist) {
		return missing
	}
	return m.write(nil)
}

// follow looks for nodes that come and go until ctx ends.
func (m *members) follow(ctx context.Context) error {
	said := ""
	for range tick.After(ctx, lookEvery) {
		text := ""
		if err := m.look(ctx); err != nil {
			text = err.Error()
		}
		if text != said && text != "" && ctx.Err() == nil {
			m.log.Warn("new nodes of the cluster are not let in", "error", text)
		}
		said = text
	}
	return nil
}

// look gives each node of the cluster an account, and takes that of nodes that are gone.
func (m *members) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	m.mu.Lock()
	defer m.mu.Unlock()
	nodes, err := m.list(ctx)
	if err != nil {
		return err
	}
	slices.Sort(nodes)
	if m.known != nil && slices.Equal(nodes, m.known) {
		return nil
	}
	if err := m.write(nodes); err != nil {
		return err
	}
	if err := m.reload(); err != nil {
		return err
	}
	m.known = append([]string{}, nodes...)
	m.log.Info("nodes have accounts", "nodes", len(nodes))
	return nil
}

func (m *members) write(nodes []string) error {
	text, err := m.keys.Accounts(nodes)
	if err == nil {
		err = installation.WriteFile(m.file, []byte(text))
	}
	if err != nil {
		return fmt.Errorf("write the accounts: %w", err)
	}
	return nil
}

// has reports whether a node has an account.
func (m *members) has(node string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.known, node)
}
