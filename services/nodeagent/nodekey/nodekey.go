// Package nodekey gets the key of this node's agent from a server of the bus in Kubernetes. The token of the agent's
// pod says on which node it runs.
package nodekey

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// Door is where a server of the bus gives out keys.
type Door struct {
	// URL is its address, Token the file with the token of this pod.
	URL, Token string
	// Certified is the folder with the certificate of this process.
	Certified identity.Keys
}

const (
	askEvery = 2 * time.Second
	askTime  = 20 * time.Second
	longest  = 64 << 10
)

var errAnswer = errors.New("it answers")

// Keep puts the key of a node into a folder of keys, as soon as a server gives it.
func (d Door) Keep(ctx context.Context, node train.NodeID, folder identity.Keys, log *slog.Logger) error {
	said := ""
	for range tick.Every(ctx, askEvery) {
		key, err := d.ask(ctx)
		if err == nil && key.Node != string(node) {
			err = fmt.Errorf("this pod is on node %s, not on %s: %w", key.Node, node, errAnswer)
		}
		if err == nil {
			return folder.KeepNode(key, d.Certified)
		}
		if err.Error() != said {
			said = err.Error()
			log.Warn("no key of this node yet", "error", err)
		}
	}
	return ctx.Err()
}

func (d Door) ask(ctx context.Context) (key identity.NodeKey, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	token, err := os.ReadFile(d.Token) // the kubelet replaces it
	if err != nil {
		return key, fmt.Errorf("read the token of this pod: %w", err)
	}
	secure, err := d.Certified.TLS()
	if err != nil {
		return key, err
	}
	transport := &http.Transport{TLSClientConfig: secure}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL+identity.NodeKeyPath, nil)
	if err != nil {
		return key, fmt.Errorf("ask for the key of this node: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return key, fmt.Errorf("ask for the key of this node: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, longest))
	switch {
	case err != nil:
		return key, fmt.Errorf("ask for the key of this node: %w", err)
	case answer.StatusCode != http.StatusOK:
		return key, fmt.Errorf("ask for the key of this node: %w %s: %.200s", errAnswer, answer.Status, strings.TrimSpace(string(body)))
	}
	if err := json.Unmarshal(body, &key); err != nil {
		return key, fmt.Errorf("read the key of this node: %w", err)
	}
	return key, nil
}
