// Package mlflow mirrors jobs to an MLflow tracking server, by its REST API 2.0: a run for each job that has started,
// with parameters, metrics of each epoch, tags and status. It decides nothing about jobs.
package mlflow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/libs/settings"
)

// client speaks the REST API of a tracking server.
type client struct {
	base, token string
	web         http.Client
}

const (
	// timeout bounds one request.
	timeout = 15 * time.Second
	// largestAnswer bounds what is read of an answer: the history of one metric of one run.
	largestAnswer = 64 << 20
)

func newClient(c settings.MLflow) *client {
	return &client{base: strings.TrimSuffix(c.URI, "/") + "/api/2.0/mlflow/", token: c.Token, web: http.Client{
		Timeout: timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// refusal is an answer of the server that is no success.
type refusal struct {
	Status  int    `json:"-"`
	Code    string `json:"error_code"`
	Message string `json:"message"`
}

func (r *refusal) Error() string { return fmt.Sprintf("%d %s: %.300s", r.Status, r.Code, r.Message) }

// final reports whether it is of no use to send a request again: the request is wrong, or its run was deleted. The
// error of a proxy, or of a server without this API, is not final.
func final(err error) bool {
	var r *refusal
	return errors.As(err, &r) && slices.Contains([]string{"INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "INVALID_STATE", "BAD_REQUEST", "MALFORMED_REQUEST"}, r.Code)
}

// forbidden reports whether the token is good and has no right to what was asked for. Servers with a basic login say so
// in plain words. A proxy may answer 403 for other reasons.
func forbidden(err error) bool {
	var r *refusal
	return errors.As(err, &r) && r.Status == http.StatusForbidden && (r.Code == "PERMISSION_DENIED" || r.Code == "" && strings.HasPrefix(r.Message, "Permission denied"))
}

func hasCode(err error, code string) bool {
	var r *refusal
	return errors.As(err, &r) && r.Code == code
}

func (c *client) get(ctx context.Context, what string, query url.Values, answer any) error {
	return c.do(ctx, http.MethodGet, what+"?"+query.Encode(), nil, answer)
}

func (c *client) post(ctx context.Context, what string, body, answer any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("mlflow %s: %w", what, err)
	}
	return c.do(ctx, http.MethodPost, what, bytes.NewReader(data), answer)
}

func (c *client) do(ctx context.Context, method, what string, body io.Reader, answer any) error {
	name, _, _ := strings.Cut(what, "?")
	request, err := http.NewRequestWithContext(ctx, method, c.base+what, body)
	if err != nil {
		return fmt.Errorf("mlflow %s: %w", name, err)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	reply, err := c.web.Do(request)
	if err != nil {
		return fmt.Errorf("mlflow %s: %w", name, err)
	}
	defer func() { _ = reply.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(reply.Body, largestAnswer))
	if err != nil {
		return fmt.Errorf("mlflow %s: %w", name, err)
	}
	if reply.StatusCode != http.StatusOK {
		refused := &refusal{Status: reply.StatusCode, Message: string(data)}
		_ = json.Unmarshal(data, refused) // a proxy before the server answers in words of its own
		return fmt.Errorf("mlflow %s: %w", name, refused)
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("mlflow %s: decode the answer: %w", name, err)
	}
	return nil
}

// pair is a parameter or a tag.
type pair struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// metric is one value of a metric; Timestamp is in Unix milliseconds.
type metric struct {
	Key       string  `json:"key"`
	Value     float64 `json:"value"`
	Timestamp int64   `json:"timestamp"`
	Step      int64   `json:"step"`
}

// batch is the body of runs/log-batch.
type batch struct {
	RunID   string   `json:"run_id"`
	Metrics []metric `json:"metrics,omitempty"`
	Params  []pair   `json:"params,omitempty"`
	Tags    []pair   `json:"tags,omitempty"`
}

// The limits of a batch and of what is in it. Servers of MLflow 1 take values of 250 characters only.
const (
	batchMetrics, batchParams, batchTags = 900, 100, 100
	longestKey, longestParam, longestTag = 250, 250, 5000
)

// run is what the server knows of a run.
type run struct {
	Info struct {
		RunID  string `json:"run_id"`
		Status string `json:"status"`
	} `json:"info"`
	Data struct {
		Tags []pair `json:"tags"`
	} `json:"data"`
}

// experiment returns the id of the experiment with a name, and makes it if there is none.
func (c *client) experiment(ctx context.Context, name string) (string, error) {
	var found struct {
		Experiment struct {
			ID string `json:"experiment_id"`
		} `json:"experiment"`
	}
	err := c.get(ctx, "experiments/get-by-name", url.Values{"experiment_name": {name}}, &found)
	if !hasCode(err, "RESOURCE_DOES_NOT_EXIST") {
		return found.Experiment.ID, err
	}
	var made struct {
		ID string `json:"experiment_id"`
	}
	err = c.post(ctx, "experiments/create", map[string]any{"name": name}, &made)
	if hasCode(err, "RESOURCE_ALREADY_EXISTS") { // another client has just made it
		err = c.get(ctx, "experiments/get-by-name", url.Values{"experiment_name": {name}}, &found)
		return found.Experiment.ID, err
	}
	return made.ID, err
}

// find returns the run of an experiment that has all these tags; false if there is none.
func (c *client) find(ctx context.Context, experiment string, tags []pair) (run, bool, error) {
	var terms []string
	for _, t := range tags {
		terms = append(terms, fmt.Sprintf("tags.`%s` = '%s'", t.Key, t.Value))
	}
	var answer struct {
		Runs []run `json:"runs"`
	}
	err := c.post(ctx, "runs/search", map[string]any{
		"experiment_ids": []string{experiment}, "filter": strings.Join(terms, " AND "), "run_view_type": "ALL", "max_results": 1,
	}, &answer)
	if err != nil || len(answer.Runs) == 0 {
		return run{}, false, err
	}
	return answer.Runs[0], true, nil
}

// create makes a run.
func (c *client) create(ctx context.Context, experiment, name string, start int64, tags []pair) (run, error) {
	var made struct {
		Run run `json:"run"`
	}
	err := c.post(ctx, "runs/create", map[string]any{"experiment_id": experiment, "run_name": name, "start_time": start, "tags": tags}, &made)
	return made.Run, err
}

// update sets the status of a run; end is 0 while it goes on.
func (c *client) update(ctx context.Context, id, status string, end int64) error {
	body := map[string]any{"run_id": id, "status": status}
	if end > 0 {
		body["end_time"] = end
	}
	return c.post(ctx, "runs/update", body, &struct{}{})
}

// has reports whether a run has a value of a metric already.
func (c *client) has(ctx context.Context, id string, m metric) (bool, error) {
	var history struct {
		Metrics []struct {
			Timestamp json.Number `json:"timestamp"`
			Step      json.Number `json:"step"`
		} `json:"metrics"`
	}
	err := c.get(ctx, "metrics/get-history", url.Values{"run_id": {id}, "metric_key": {m.Key}}, &history)
	if hasCode(err, "RESOURCE_DOES_NOT_EXIST") {
		return false, nil
	}
	for _, known := range history.Metrics {
		if known.Timestamp.String() == fmt.Sprint(m.Timestamp) && (known.Step.String() == fmt.Sprint(m.Step) || known.Step == "" && m.Step == 0) {
			return true, err
		}
	}
	return false, err
}
