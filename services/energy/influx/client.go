// Package influx is the only door to InfluxDB: it writes points, sets up their buckets, and queries. It supports
// version 2 and, through its compatible API, 1.8.
package influx

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	influxdb2 "github.com/influxdata/influxdb-client-go/v2"
	"github.com/influxdata/influxdb-client-go/v2/api/write"

	"github.com/switchyard-dl/switchyard/services/energy/series"
)

// ErrRefused marks points that the database will never accept: their batch is lost.
var ErrRefused = errors.New("refused by the database")

// Config is the address of the database.
type Config struct {
	URL string
	// Token is an API token of InfluxDB 2, or user:password of 1.8 (empty if it needs none).
	Token string
	// Org is the organisation; 1.8 has none.
	Org string
}

// Client talks to one server. It buffers nothing: the caller must resend what a server did not accept.
type Client struct {
	config Config
	api    influxdb2.Client
}

// requestTimeout bounds one exchange with the server, in seconds.
const requestTimeout = 10

// Open returns a client; it connects on first use.
func Open(c Config) *Client {
	options := influxdb2.DefaultOptions().SetHTTPRequestTimeout(requestTimeout).SetLogLevel(0).SetApplicationName("switchyard")
	return &Client{config: c, api: influxdb2.NewClientWithOptions(c.URL, c.Token, options)}
}

// Close closes idle connections.
func (c *Client) Close() { c.api.Close() }

// Write stores points in a bucket of version 2, which is "database/policy" in 1.8. It returns nil only after the server
// has confirmed all of them: the client library's own writers may return before that, or drop what they cannot send.
func (c *Client) Write(ctx context.Context, bucket string, points []series.Point) error {
	if len(points) == 0 {
		return nil
	}
	var body strings.Builder
	for _, p := range points {
		write.PointToLineProtocolBuffer(write.NewPoint(p.Measurement, p.Tags, p.Fields, p.Time), &body, time.Nanosecond)
	}
	query := url.Values{"org": {c.config.Org}, "bucket": {bucket}, "precision": {"ns"}}
	status, text, err := c.post(ctx, "api/v2/write?"+query.Encode(), "text/plain; charset=utf-8", body.String())
	switch {
	case err != nil:
		return fmt.Errorf("write %d points to %s: %w", len(points), bucket, err)
	case status == http.StatusNoContent:
		return nil
	case status == http.StatusBadRequest || status == http.StatusUnprocessableEntity:
		return fmt.Errorf("write %d points to %s: %w: %s", len(points), bucket, ErrRefused, text)
	}
	return fmt.Errorf("write %d points to %s: HTTP %d: %s", len(points), bucket, status, text)
}

// post sends a body to a path of the server and returns the status and the beginning of the answer.
func (c *Client) post(ctx context.Context, path, contentType, body string) (status int, text string, err error) {
	service := c.api.HTTPService()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost,
		strings.TrimSuffix(service.ServerURL(), "/")+"/"+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Content-Type", contentType)
	response, err := service.DoHTTPRequestWithResponse(request, nil)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	const most = 1 << 20
	answer, err := io.ReadAll(io.LimitReader(response.Body, most))
	return response.StatusCode, strings.TrimSpace(string(answer)), err
}

// Row is one record of an answer, by column.
type Row map[string]any

// Query runs Flux and returns all its rows, in the order in which they come.
func (c *Client) Query(ctx context.Context, flux string) ([]Row, error) {
	result, err := c.api.QueryAPI(c.config.Org).Query(ctx, flux)
	if err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	defer func() { _ = result.Close() }()
	var rows []Row
	for result.Next() {
		rows = append(rows, result.Record().Values())
	}
	if err := result.Err(); err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	return rows, nil
}

// Ping returns the server's version, if it reports one.
func (c *Client) Ping(ctx context.Context) (version string, err error) {
	health, err := c.api.Health(ctx)
	if err != nil {
		return "", fmt.Errorf("reach %s: %w", c.config.URL, err)
	}
	if health.Version != nil {
		version = *health.Version
	}
	return version, nil
}
