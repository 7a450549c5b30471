package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/services/web/api"
)

// Open asks the service behind a Unix socket for a link to its page, for the user of this process. at is the address at
// which a browser reaches the page, such as that of a forwarded port; empty is the one that the service knows.
func Open(ctx context.Context, socket, at string) (string, error) {
	base, err := url.Parse(at)
	if err != nil || at != "" && (base.Host == "" || base.Scheme != "http" && base.Scheme != "https") {
		return "", fmt.Errorf("want the address of the page, such as http://127.0.0.1:7470, found %q", at)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return installation.DialUnix(ctx, socket) }
	client := &http.Client{Transport: &http.Transport{DialContext: dial}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+api.SocketHost+api.Prefix+"/links", http.NoBody)
	if err != nil {
		return "", fmt.Errorf("ask for a link: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return "", fmt.Errorf("ask for a link: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	var answer struct {
		api.Link
		api.Problem
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return "", fmt.Errorf("read the link: %w", err)
	}
	if response.StatusCode != http.StatusCreated {
		return "", errors.New(answer.Detail)
	}
	link, err := url.Parse(answer.URL)
	if err != nil {
		return "", fmt.Errorf("read the link: %w", err)
	}
	if at != "" {
		link.Scheme, link.Host = base.Scheme, base.Host
	}
	return link.String(), nil
}
