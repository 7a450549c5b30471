package staging

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// client fetches over HTTP within a policy.
type client struct {
	policy Policy
	http   *http.Client
	// silence is how long a server may send nothing in the middle of an answer.
	silence time.Duration
}

const (
	dialPatience = 15 * time.Second
	// answerPatience is how long a server may take to begin its answer, and between two parts of it.
	answerPatience = time.Minute
	// mostRedirects is the limit of browsers. WebHDFS redirects a reader once, from the namenode to a datanode.
	mostRedirects = 10
)

func newClient(p Policy) *client {
	dialer := &net.Dialer{Timeout: dialPatience, Control: func(_, address string, _ syscall.RawConn) error { return p.reaches(address) }}
	return &client{policy: p, silence: answerPatience, http: &http.Client{
		// No proxy: it would choose the address.
		Transport: &http.Transport{DialContext: dialer.DialContext, TLSHandshakeTimeout: dialPatience, ResponseHeaderTimeout: answerPatience},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) >= mostRedirects || r.URL.Scheme != "http" && r.URL.Scheme != "https" {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}}
}

// reaches refuses the machine itself and a cloud's metadata, unless the operator's networks contain the address. It
// sees the address that is dialled, so that a name that changes its address, or a redirect, gains nothing.
func (p Policy) reaches(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("dial %q: %w", address, err)
	}
	ip := at.Addr().Unmap().WithZone("")
	if netip.MustParsePrefix("64:ff9b::/96").Contains(ip) { // a gateway translates it
		wide := ip.As16()
		ip = netip.AddrFrom4([4]byte(wide[12:]))
	}
	if slices.ContainsFunc(p.Networks, func(n netip.Prefix) bool { return n.Contains(ip) }) {
		return nil
	}
	metadata := []netip.Prefix{netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("fd00:ec2::/32")}
	if !ip.IsGlobalUnicast() || slices.ContainsFunc(metadata, func(n netip.Prefix) bool { return n.Contains(ip) }) {
		return fmt.Errorf("%w: %s is the machine itself or a cloud's metadata: executor.data_allow can allow it", ErrNever, ip)
	}
	return nil
}

// get sends a request, and returns the answer if its status is that wanted. Reading the answer fails once
// the server has gone silent: a lost server must not hold up all jobs that wait for the same data.
func (c *client) get(ctx context.Context, address string, header http.Header, wanted ...int) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	answer, err := c.send(ctx, address, header, wanted...)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	answer.Body = newBody(ctx, answer.Body, c.silence, cancel)
	return answer, nil
}

// body is the rest of an answer, whose reader waits only a while for each part.
type body struct {
	io.ReadCloser

	patience time.Duration
	timer    *time.Timer
	// cause returns why the request has ended.
	cause  func() error
	cancel context.CancelCauseFunc
}

func newBody(ctx context.Context, rest io.ReadCloser, patience time.Duration, cancel context.CancelCauseFunc) *body {
	silent := fmt.Errorf("the server sent nothing for %s in the middle of its answer", patience)
	b := &body{rest, patience, time.AfterFunc(patience, func() { cancel(silent) }), func() error { return context.Cause(ctx) }, cancel}
	b.timer.Stop() // only Read waits for the server
	return b
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	b.timer.Reset(b.patience)
	defer b.timer.Stop()
	n, err := b.ReadCloser.Read(p)
	if cause := b.cause(); err != nil && cause != nil {
		err = cause // what the connection says of a request that was cancelled explains nothing
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}

// send is get without a limit for the rest of the answer.
func (c *client) send(ctx context.Context, address string, header http.Header, wanted ...int) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNever, err)
	}
	for name := range header {
		request.Header.Set(name, header.Get(name))
	}
	answer, err := c.http.Do(request)
	if u, is := errors.AsType[*url.Error](err); is {
		return nil, u.Err // without the address, which may be signed
	}
	if err != nil {
		return nil, err
	}
	if slices.Contains(wanted, answer.StatusCode) {
		return answer, nil
	}
	_ = answer.Body.Close()
	return nil, &statusError{answer.StatusCode, answer.Status}
}

// statusError is an answer other than the wanted one.
type statusError struct {
	code   int
	status string
}

func (e *statusError) Error() string { return "the server answers " + e.status }

// object is one file at an HTTP address.
type object struct {
	*client

	address string
}

// list implements source. The version is the ETag, or else the time of the change and the size.
func (o object) list(ctx context.Context, known string) (listing, error) {
	header := http.Header{}
	if tag, is := strings.CutPrefix(known, "etag "); is {
		header.Set("If-None-Match", tag)
	}
	answer, err := o.get(ctx, o.address, header, http.StatusOK, http.StatusNotModified)
	if err != nil {
		return listing{}, err
	}
	_ = answer.Body.Close() // its header is all that is needed
	if answer.StatusCode == http.StatusNotModified {
		return listing{unchanged: true}, nil
	}
	l := listing{items: []item{{name: nameOf(o.address), at: o.address, bytes: max(answer.ContentLength, 0)}}}
	switch tag, changed := answer.Header.Get("ETag"), answer.Header.Get("Last-Modified"); {
	case tag != "":
		l.version = "etag " + tag
	case changed != "":
		l.version = fmt.Sprintf("%s %d", changed, answer.ContentLength)
	}
	return l, nil
}

func (o object) open(ctx context.Context, i item) (io.ReadCloser, error) {
	answer, err := o.get(ctx, i.at, nil, http.StatusOK)
	if err != nil {
		return nil, err
	}
	return answer.Body, nil
}

// hdfs is a file or a folder of HDFS, by its REST interface WebHDFS.
type hdfs struct {
	*client

	server, path string
}

// fileStatus is that of WebHDFS.
type fileStatus struct {
	Suffix   string `json:"pathSuffix"`
	Type     string `json:"type"`
	Length   int64  `json:"length"`
	Modified int64  `json:"modificationTime"`
}

// mostFiles bounds the files of a folder.
const mostFiles = 100_000

func (h hdfs) list(ctx context.Context, _ string) (listing, error) {
	var answer struct {
		Status fileStatus `json:"FileStatus"`
	}
	if err := h.ask(ctx, h.path, "GETFILESTATUS", &answer); err != nil {
		return listing{}, err
	}
	var l listing
	version := &strings.Builder{}
	err := h.walk(ctx, answer.Status, h.path, path.Base(h.path), &l, version)
	l.version = train.Hash(version.String())
	return l, err
}

// walk adds what is at a path; name is its name in the copy.
func (h hdfs) walk(ctx context.Context, s fileStatus, at, name string, l *listing, version *strings.Builder) error {
	fmt.Fprintf(version, "%q %s %d %d\n", name, s.Type, s.Length, s.Modified)
	if s.Type == "FILE" {
		l.items = append(l.items, item{name, at, s.Length})
		if len(l.items) > mostFiles {
			return fmt.Errorf("%w: %s has more than %d files", ErrNever, h.path, mostFiles)
		}
		return nil
	}
	var answer struct {
		Statuses struct {
			Files []fileStatus `json:"FileStatus"`
		} `json:"FileStatuses"`
	}
	if err := h.ask(ctx, at, "LISTSTATUS", &answer); err != nil {
		return err
	}
	for _, f := range answer.Statuses.Files {
		if f.Suffix == "" || f.Suffix != path.Base(f.Suffix) || f.Suffix == ".." {
			return fmt.Errorf("%w: %s has a file of the name %q", ErrNever, at, f.Suffix)
		}
		below := f.Suffix // the folder itself is the copy
		if at != h.path {
			below = path.Join(name, f.Suffix)
		}
		if err := h.walk(ctx, f, path.Join(at, f.Suffix), below, l, version); err != nil {
			return err
		}
	}
	return nil
}

func (h hdfs) ask(ctx context.Context, at, operation string, into any) error {
	answer, err := h.get(ctx, h.address(at, operation), nil, http.StatusOK)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	const most = 64 << 20
	if err := json.NewDecoder(io.LimitReader(answer.Body, most)).Decode(into); err != nil {
		return fmt.Errorf("read %s of %s: %w", operation, at, err)
	}
	return nil
}

func (h hdfs) address(at, operation string) string {
	return h.server + "/webhdfs/v1" + (&url.URL{Path: at}).EscapedPath() + "?op=" + operation
}

func (h hdfs) open(ctx context.Context, i item) (io.ReadCloser, error) {
	answer, err := h.get(ctx, h.address(i.at, "OPEN"), nil, http.StatusOK)
	if err != nil {
		return nil, err
	}
	return answer.Body, nil
}
