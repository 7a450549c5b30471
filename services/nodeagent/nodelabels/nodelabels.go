// Package nodelabels reads the labels of a node in Kubernetes. It needs one request and no client library: the agent
// does nothing else with the API server, and works without it.
package nodelabels

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Source reads labels.
type Source func(ctx context.Context) (map[string]string, error)

// File reads labels as Kubernetes writes them into files, one key="value" per line: at every call, because the file may
// be rewritten.
func File(path string) Source {
	return func(context.Context) (map[string]string, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read labels: %w", err)
		}
		return parse(string(text))
	}
}

func parse(text string) (map[string]string, error) {
	labels := map[string]string{}
	for l := range strings.Lines(text) {
		l = strings.TrimSpace(l)
		if l == "" {
			continue
		}
		key, quoted, found := strings.Cut(l, "=")
		value, err := strconv.Unquote(quoted)
		if !found || key == "" || err != nil {
			return nil, fmt.Errorf("read labels: line %.80q: want key=\"value\"", l)
		}
		labels[key] = value
	}
	return labels, nil
}

// ErrOutside says that this process is not in a pod.
var ErrOutside = errors.New("not in a pod of Kubernetes")

// serviceAccount is where a pod finds its credentials.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// cluster asks the API server.
type cluster struct {
	node string
	// address is host:port of the API server, empty outside of a cluster; account is the folder with token and
	// authority.
	address, account string
}

// Cluster asks the API server of the cluster in which this process is a pod, as its service account, which needs the
// verb get on nodes.
func Cluster(node string) Source {
	c := cluster{node: node, account: serviceAccount}
	if host := os.Getenv("KUBERNETES_SERVICE_HOST"); host != "" {
		c.address = net.JoinHostPort(host, os.Getenv("KUBERNETES_SERVICE_PORT"))
	}
	return c.labels
}

const (
	// timeout bounds one request, longestAnswer what is read of its answer: nodes with many images are large.
	timeout       = 2 * time.Second
	longestAnswer = 8 << 20
)

// labels asks for the node.
func (c cluster) labels(ctx context.Context) (map[string]string, error) {
	if c.address == "" {
		return nil, ErrOutside
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	// Both are replaced from time to time.
	token, err := os.ReadFile(filepath.Join(c.account, "token"))
	if err != nil {
		return nil, fmt.Errorf("read the service account: %w", err)
	}
	authority, err := os.ReadFile(filepath.Join(c.account, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read the service account: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, errors.New("read the service account: no certificate in ca.crt")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+c.address+"/api/v1/nodes/"+url.PathEscape(c.node), nil)
	if err != nil {
		return nil, fmt.Errorf("ask for node %s: %w", c.node, err)
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	request.Header.Set("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json")
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask for node %s: %w", c.node, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask for node %s: %s", c.node, response.Status)
	}
	var answer struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, longestAnswer)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("ask for node %s: %w", c.node, err)
	}
	return answer.Metadata.Labels, nil
}

// Every is how often labels are read again.
const Every = 30 * time.Second

// Cache reads labels at intervals and returns the last ones that could be read. One goroutine uses it.
type Cache struct {
	Source Source
	// OnChange is called with an error when it changes; nil is its end.
	OnChange func(error)

	labels    map[string]string
	next      time.Time
	lastError string
}

// Labels returns the last known labels.
func (c *Cache) Labels(ctx context.Context, now time.Time) map[string]string {
	if now.Before(c.next) {
		return c.labels
	}
	c.next = now.Add(Every)
	labels, err := c.Source(ctx)
	text := ""
	if err != nil {
		text = err.Error()
	} else {
		c.labels = labels
	}
	if text != c.lastError {
		c.lastError = text
		c.OnChange(err)
	}
	return c.labels
}
