package console

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
)

// newOnServer returns the installation whose service web is at a URL. The file has a token of Kubernetes for it.
func newOnServer(address, tokenFile string) onSocket {
	transport, _ := http.DefaultTransport.(*http.Transport)
	return newOnSocketBy(byToken{address, tokenFile, transport.Clone()})
}

// byToken sends requests to an address with the token of a file, which is read each time: the kubelet replaces those of
// pods before they expire.
type byToken struct {
	address, file string
	transport     http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b byToken) RoundTrip(r *http.Request) (*http.Response, error) {
	at, err := url.Parse(b.address)
	switch {
	case err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https":
		return nil, fmt.Errorf("SWITCHYARD_SOCKET %q: want the path of a socket, or a URL such as https://switchyard.example", b.address)
	case at.Scheme == "http" && !loopback(at.Hostname()):
		return nil, fmt.Errorf("SWITCHYARD_SOCKET %s: %w", b.address, errClear)
	case b.file == "":
		return nil, errNoToken
	}
	token, err := os.ReadFile(b.file)
	if err != nil {
		return nil, fmt.Errorf("read SWITCHYARD_TOKEN_FILE: %w", err)
	}
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host, r.Host = at.Scheme, at.Host, at.Host
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	return b.transport.RoundTrip(r)
}

var (
	errClear   = errors.New("the token would cross the network in the clear: want https, or a port forwarded to 127.0.0.1")
	errNoToken = errors.New("SWITCHYARD_SOCKET is a URL, so SWITCHYARD_TOKEN_FILE must name a file with a token: kubectl create token ACCOUNT --audience switchyard")
)

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
