package kubebus

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/kubetoken"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// door gives agents the keys of their nodes.
type door struct {
	keys    *identity.Cluster
	members *members
	agent   string
	tokens  *kubetoken.Reviewer
	log     *slog.Logger
}

// giveTime bounds an answer: whose the token is, and a look at the nodes of the cluster.
const giveTime = 15 * time.Second

// serve serves agents until ctx ends. They show a certificate of the installation, as they do to the bus.
func (d *door) serve(ctx context.Context, address string, keys identity.Keys) error {
	secure, err := keys.TLS()
	if err == nil && secure == nil {
		err = fmt.Errorf("the folder of keys %s has no certificate", keys)
	}
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen for agents: %w", err)
	}
	secure.ClientCAs, secure.ClientAuth = secure.RootCAs, tls.RequireAndVerifyClientCert
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+identity.NodeKeyPath, d.give)
	return run.ServeListener(ctx, tls.NewListener(listener, secure), mux)
}

func (d *door) give(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), giveTime)
	defer cancel()
	token, shown := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !shown {
		http.Error(w, "want the token of a node agent's pod", http.StatusUnauthorized)
		return
	}
	key, err := d.keyFor(ctx, token)
	switch {
	case errors.Is(err, kubetoken.ErrRefused):
		d.log.Warn("no key of a node is given out", "to", r.RemoteAddr, "error", err)
		http.Error(w, err.Error(), http.StatusForbidden)
	case err != nil:
		d.log.Warn("no key of a node is given out", "to", r.RemoteAddr, "error", err)
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(key)
	}
}

// keyFor returns the key of the node on which the pod runs that shows a token. The node has an account by then.
func (d *door) keyFor(ctx context.Context, token string) (identity.NodeKey, error) {
	user, err := d.tokens.User(ctx, token)
	if err != nil {
		return identity.NodeKey{}, err
	}
	switch {
	case user.Name != d.agent:
		return identity.NodeKey{}, fmt.Errorf("%w: the token is of %s, not of %s", kubetoken.ErrRefused, user.Name, d.agent)
	case user.Node == "":
		return identity.NodeKey{}, fmt.Errorf("%w: the token is not bound to a pod on a node", kubetoken.ErrRefused)
	}
	node := string(train.KubernetesNodeID(user.Node))
	if !d.members.has(node) {
		if err := d.members.look(ctx); err != nil {
			return identity.NodeKey{}, err
		}
	}
	if !d.members.has(node) {
		return identity.NodeKey{}, fmt.Errorf("%w: the cluster has no node %s", kubetoken.ErrRefused, user.Node)
	}
	d.log.Info("an agent has the key of its node", "node", node, "pod", user.Pod)
	return d.keys.Key(node)
}
