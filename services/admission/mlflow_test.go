package admission

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// tracking stands in for an MLflow tracking server, which needs Python packages that tests cannot install. It keeps to
// the documented semantics of the REST API 2.0 that matter to a writer, strictly: unknown fields and wrong types are
// refused, batches have limits, parameters never change, metrics are appended even if the same value came before, and
// nothing is written to a run that is deleted.
type tracking struct {
	*httptest.Server
	t  *testing.T
	mu sync.Mutex
	// experiments are by name, runs by id in the order of their making.
	experiments map[string]string
	runs        []*trackedRun
	// breaks is how many of the next batches are written and then answered with an error.
	breaks   int
	requests []string
}

type trackedRun struct {
	id, experiment, name, status string
	start, end                   int64
	deleted                      bool
	params, tags                 map[string]string
	metrics                      []trackedMetric
}

type trackedMetric struct {
	Key       string  `json:"key"`
	Value     float64 `json:"value"`
	Timestamp int64   `json:"timestamp"`
	Step      int64   `json:"step"`
}

type trackedPair struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

const trackingToken = "secret-token"

func newTracking(t *testing.T) *tracking {
	t.Helper()
	s := &tracking{t: t, experiments: map[string]string{}}
	mux := http.NewServeMux()
	for path, serve := range map[string]func(*http.Request) (any, *refused){
		"GET experiments/get-by-name": s.experimentByName, "POST experiments/create": s.createExperiment, "POST runs/create": s.createRun,
		"POST runs/search": s.searchRuns, "POST runs/update": s.updateRun, "POST runs/log-batch": s.logBatch, "GET metrics/get-history": s.history,
	} {
		method, name, _ := strings.Cut(path, " ")
		mux.HandleFunc(method+" /api/2.0/mlflow/"+name, func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, name, serve) })
	}
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

type refused struct {
	status int
	Code   string `json:"error_code"`
	Text   string `json:"message"`
}

func invalid(format string, args ...any) *refused {
	return &refused{http.StatusBadRequest, "INVALID_PARAMETER_VALUE", fmt.Sprintf(format, args...)}
}

func (s *tracking) answer(w http.ResponseWriter, r *http.Request, name string, serve func(*http.Request) (any, *refused)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, name)
	var body any
	var no *refused
	switch {
	case r.Header.Get("Authorization") != "Bearer "+trackingToken:
		no = &refused{http.StatusUnauthorized, "PERMISSION_DENIED", "no token"}
	case r.Method == http.MethodPost && r.Header.Get("Content-Type") != "application/json":
		no = invalid("want application/json")
	default:
		body, no = serve(r)
	}
	if no != nil {
		w.WriteHeader(no.status)
		body = no
	}
	_ = json.NewEncoder(w).Encode(body)
}

// decode refuses fields that the API does not have.
func decode(r *http.Request, into any) *refused {
	data, err := io.ReadAll(r.Body)
	if err != nil || len(data) > 1<<20 {
		return invalid("%d bytes, %v", len(data), err)
	}
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return invalid("%v", err)
	}
	return nil
}

func (s *tracking) experimentByName(r *http.Request) (any, *refused) {
	name := r.URL.Query().Get("experiment_name")
	id, found := s.experiments[name]
	if !found {
		return nil, &refused{http.StatusNotFound, "RESOURCE_DOES_NOT_EXIST", "no experiment " + name}
	}
	return map[string]any{"experiment": map[string]string{"experiment_id": id, "name": name, "lifecycle_stage": "active"}}, nil
}

func (s *tracking) createExperiment(r *http.Request) (any, *refused) {
	var q struct {
		Name string `json:"name"`
	}
	if no := decode(r, &q); no != nil || q.Name == "" {
		return nil, no
	}
	if _, there := s.experiments[q.Name]; there {
		return nil, &refused{http.StatusBadRequest, "RESOURCE_ALREADY_EXISTS", q.Name}
	}
	s.experiments[q.Name] = fmt.Sprint(len(s.experiments) + 1)
	return map[string]string{"experiment_id": s.experiments[q.Name]}, nil
}

func (s *tracking) createRun(r *http.Request) (any, *refused) {
	var q struct {
		Experiment string        `json:"experiment_id"`
		Name       string        `json:"run_name"`
		Start      int64         `json:"start_time"`
		Tags       []trackedPair `json:"tags"`
	}
	if no := decode(r, &q); no != nil {
		return nil, no
	}
	if !slices.Contains(slices.Collect(maps.Values(s.experiments)), q.Experiment) {
		return nil, &refused{http.StatusNotFound, "RESOURCE_DOES_NOT_EXIST", "no experiment " + q.Experiment}
	}
	made := &trackedRun{
		id: fmt.Sprint("run", len(s.runs)), experiment: q.Experiment, name: q.Name, status: "RUNNING", start: q.Start, params: map[string]string{}, tags: map[string]string{},
	}
	if no := made.tag(q.Tags); no != nil {
		return nil, no
	}
	s.runs = append(s.runs, made)
	return map[string]any{"run": made.view()}, nil
}

func (r *trackedRun) tag(tags []trackedPair) *refused {
	for _, t := range tags {
		if t.Key == "" || len(t.Key) > 250 || len(t.Value) > 5000 {
			return invalid("tag %q: %q", t.Key, t.Value)
		}
		r.tags[t.Key] = t.Value
	}
	return nil
}

func (r *trackedRun) view() any {
	tags := []trackedPair{}
	for k, v := range r.tags {
		tags = append(tags, trackedPair{k, v})
	}
	return map[string]any{"info": map[string]any{"run_id": r.id, "run_name": r.name, "status": r.status}, "data": map[string]any{"tags": tags}}
}

var filterTerm = regexp.MustCompile("^tags\\.`([^`]+)` = '([^']*)'$")

func (s *tracking) searchRuns(r *http.Request) (any, *refused) {
	var q struct {
		Experiments []string `json:"experiment_ids"`
		Filter      string   `json:"filter"`
		View        string   `json:"run_view_type"`
		Most        int      `json:"max_results"`
	}
	if no := decode(r, &q); no != nil {
		return nil, no
	}
	runs := []any{}
	for _, candidate := range s.runs {
		matches := slices.Contains(q.Experiments, candidate.experiment)
		for term := range strings.SplitSeq(q.Filter, " AND ") {
			parts := filterTerm.FindStringSubmatch(term)
			if parts == nil {
				return nil, invalid("filter %q", term)
			}
			matches = matches && candidate.tags[parts[1]] == parts[2]
		}
		if matches && len(runs) < q.Most && (q.View == "ALL" || !candidate.deleted) {
			runs = append(runs, candidate.view())
		}
	}
	return map[string]any{"runs": runs}, nil
}

// live returns a run that can be written.
func (s *tracking) live(id string) (*trackedRun, *refused) {
	for _, r := range s.runs {
		if r.id == id && r.deleted {
			return nil, invalid("the run %s must be in the 'active' state", id)
		}
		if r.id == id {
			return r, nil
		}
	}
	return nil, &refused{http.StatusNotFound, "RESOURCE_DOES_NOT_EXIST", "no run " + id}
}

func (s *tracking) updateRun(r *http.Request) (any, *refused) {
	var q struct {
		ID     string `json:"run_id"`
		Status string `json:"status"`
		End    int64  `json:"end_time"`
	}
	if no := decode(r, &q); no != nil {
		return nil, no
	}
	run, no := s.live(q.ID)
	if no != nil {
		return nil, no
	}
	if !slices.Contains([]string{"RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"}, q.Status) {
		return nil, invalid("status %q", q.Status)
	}
	run.status, run.end = q.Status, q.End
	return map[string]any{"run_info": map[string]string{"run_id": q.ID}}, nil
}

var metricName = regexp.MustCompile(`^[/\w.\- ]{1,250}$`)

func (s *tracking) logBatch(r *http.Request) (any, *refused) {
	var q struct {
		ID      string          `json:"run_id"`
		Metrics []trackedMetric `json:"metrics"`
		Params  []trackedPair   `json:"params"`
		Tags    []trackedPair   `json:"tags"`
	}
	if no := decode(r, &q); no != nil {
		return nil, no
	}
	run, no := s.live(q.ID)
	if no != nil {
		return nil, no
	}
	if len(q.Metrics) > 1000 || len(q.Params) > 100 || len(q.Tags) > 100 || len(q.Metrics)+len(q.Params)+len(q.Tags) > 1000 {
		return nil, invalid("%d metrics, %d params, %d tags", len(q.Metrics), len(q.Params), len(q.Tags))
	}
	for _, p := range q.Params {
		if old, there := run.params[p.Key]; there && old != p.Value || len(p.Value) > 500 {
			return nil, invalid("param %s was %q, now %q", p.Key, old, p.Value)
		}
		run.params[p.Key] = p.Value
	}
	for _, m := range q.Metrics {
		if !metricName.MatchString(m.Key) {
			return nil, invalid("metric %q", m.Key)
		}
		run.metrics = append(run.metrics, m)
	}
	if s.breaks > 0 { // partial data may be written
		s.breaks--
		return nil, &refused{http.StatusInternalServerError, "INTERNAL_ERROR", "broken in between"}
	}
	if no := run.tag(q.Tags); no != nil {
		return nil, no
	}
	return map[string]any{}, nil
}

func (s *tracking) history(r *http.Request) (any, *refused) {
	run, no := s.live(r.URL.Query().Get("run_id"))
	if no != nil {
		return nil, no
	}
	found := []trackedMetric{}
	for _, m := range run.metrics {
		if m.Key == r.URL.Query().Get("metric_key") {
			found = append(found, m)
		}
	}
	return map[string]any{"metrics": found}, nil
}

// of waits until the run of a job has a status, and returns a copy of it.
func (s *tracking) of(b *bench, job, status string) trackedRun {
	s.t.Helper()
	var last trackedRun
	for range tick.Every(b.ctx, 10*time.Millisecond) {
		s.mu.Lock()
		for _, r := range s.runs {
			if last = *r; r.tags["switchyard.job"] == job && r.status == status {
				s.mu.Unlock()
				return last
			}
		}
		s.mu.Unlock()
	}
	s.t.Fatalf("no run of %s is %s; last %+v, requests %v", job, status, last, s.requests)
	return last
}

// steps lists the values of a metric as STEP=VALUE.
func (r *trackedRun) steps(key string) string {
	var all []string
	for _, m := range r.metrics {
		if m.Key == key {
			all = append(all, fmt.Sprintf("%d=%g", m.Step, m.Value))
		}
	}
	return strings.Join(all, " ")
}

func (b *bench) epoch(id string, attempt, done int, loss float64, metrics string) {
	b.t.Helper()
	b.sendAs("nodeagent", "yard.job."+id+".epoch_ended.v1",
		fmt.Sprintf(`{"attempt":%d,"epochs_done":%d,"loss":%g,"epoch_seconds":2,"devices":1,"metrics":{%s}}`, attempt, done, loss, metrics))
}

// TestJobsAreMirroredToMLflow: each epoch is logged once, whatever breaks: the server after it has written a batch, or
// this service between two epochs. The run is found again, and ends as its job does.
func TestJobsAreMirroredToMLflow(t *testing.T) {
	b, s := newBench(t), newTracking(t)
	b.mlflow = settings.MLflow{URI: s.URL, Experiment: "switchyard", Token: trackingToken}
	stop := b.serve()
	b.send("yard.job.a.submitted.v1", `{"name":"digits","project":"vision","labels":{"seed":"7"},"command":["python","t.py"],"batch_size":64,"env":{"KEY":"hidden"}}`)
	b.await("a", inState(train.StateQueued))
	b.sendAs("executor", "yard.job.a.started.v1", `{"attempt":1,"devices":["cpu:0"],"node":"n"}`)
	b.epoch("a", 1, 1, 0.5, `"val/acc@1":0.25`)
	s.of(b, "a", "RUNNING")
	s.mu.Lock()
	s.breaks = 2
	s.mu.Unlock()
	b.epoch("a", 1, 2, 0.4, "")
	b.sendAs("nodeagent", "yard.job.a.checkpoint_written.v1", `{"attempt":1,"epochs_done":2,"path":"/snapshots/x/m.pt"}`)
	b.sendAs("executor", "yard.job.a.preempted.v1", `{"attempt":1,"epochs_done":2}`)
	s.of(b, "a", "SCHEDULED")
	stop()
	b.sendAs("executor", "yard.job.a.started.v1", `{"attempt":2,"devices":["cpu:1"],"node":"n"}`)
	b.epoch("a", 2, 3, 0.3, "")
	many := make([]string, 1200)
	for i := range many {
		many[i] = fmt.Sprintf(`"m%d":%d`, i, i)
	}
	b.epoch("a", 2, 4, 0.2, strings.Join(many, ","))
	b.sendAs("executor", "yard.job.a.succeeded.v1", `{"attempt":2,"epochs_done":4,"note":"well"}`)
	b.serve()
	r := s.of(b, "a", "FINISHED")
	if got, want := r.steps("loss"), "1=0.5 2=0.4 3=0.3 4=0.2"; got != want {
		t.Errorf("loss %s, want %s", got, want)
	}
	if r.steps("val/acc_1") != "1=0.25" || r.steps("m0") != "4=0" || r.steps("m1199") != "4=1199" || r.steps("epoch_seconds") != "1=2 2=2 3=2 4=2" {
		t.Errorf("metrics %v ..", r.metrics[:min(len(r.metrics), 30)])
	}
	if len(s.runs) != 1 || s.experiments["vision"] != r.experiment || r.name != "digits" || r.params["batch_size"] != "64" || r.end == 0 {
		t.Errorf("%d runs, %+v", len(s.runs), r)
	}
	for key, want := range map[string]string{
		"switchyard.checkpoint": "/snapshots/x/m.pt", "switchyard.devices": "cpu:1", "switchyard.message": "well", "label.seed": "7", "mlflow.source.name": "python t.py", "mlflow.user": "ann",
	} {
		if r.tags[key] != want {
			t.Errorf("tag %s: %q, want %q", key, r.tags[key], want)
		}
	}
	if strings.Contains(fmt.Sprint(r), "hidden") {
		t.Errorf("the environment is told: %+v", r)
	}
}

// TestAFactThatMLflowRefusesHoldsNothingUp: a run that was deleted takes nothing, and the facts of other jobs go on.
func TestAFactThatMLflowRefusesHoldsNothingUp(t *testing.T) {
	b, s := newBench(t), newTracking(t)
	b.mlflow = settings.MLflow{URI: s.URL, Experiment: "switchyard", Token: trackingToken}
	b.serve()
	for _, id := range []string{"gone", "next"} {
		b.send("yard.job."+id+".submitted.v1", `{"name":"n","command":["true"]}`)
		b.await(train.JobID(id), inState(train.StateQueued))
		b.sendAs("executor", "yard.job."+id+".started.v1", `{"attempt":1,"devices":["cpu:0"],"node":"n"}`)
		s.of(b, id, "RUNNING")
		s.mu.Lock()
		s.runs[0].deleted = true
		s.mu.Unlock()
		b.epoch(id, 1, 1, 0.5, "")
		b.sendAs("executor", "yard.job."+id+".failed.v1", `{"attempt":1,"reason":{"code":"ExitStatus","message":"status 1"}}`)
	}
	if r := s.of(b, "next", "FAILED"); r.steps("loss") != "1=0.5" || r.tags["switchyard.message"] != "status 1" {
		t.Errorf("%+v", r)
	}
	if _, err := b.bus.Last(b.ctx, event.StreamPoison, event.Subject{Entity: "poison", ID: "mlflow", Fact: event.FactSetAside, Version: 1}); err != nil {
		t.Error(err)
	}
}

// A person names an experiment of another one. The server forbids it in one of two ways.
func TestAForbiddenExperimentHoldsUpNobody(t *testing.T) {
	b, s := newBench(t), newTracking(t)
	to, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	server := httputil.NewSingleHostReverseProxy(to)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, is := map[string]string{"secret": `{"error_code":"PERMISSION_DENIED","message":"no"}`, "hidden": "Permission denied"}[r.URL.Query().Get("experiment_name")]
		if !is {
			server.ServeHTTP(w, r)
			return
		}
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, answer)
	}))
	defer front.Close()
	b.mlflow = settings.MLflow{URI: front.URL, Experiment: "switchyard", Token: trackingToken}
	stop := b.serve()
	for i, project := range []string{"secret", "hidden", ""} {
		id := fmt.Sprint("job-", i)
		b.send("yard.job."+id+".submitted.v1", fmt.Sprintf(`{"name":"n","project":%q,"command":["true"]}`, project))
		b.await(train.JobID(id), inState(train.StateQueued))
		b.sendAs("executor", "yard.job."+id+".started.v1", `{"attempt":1,"devices":["cpu:0"],"node":"n"}`)
	}
	s.of(b, "job-2", "RUNNING")
	stop()
}
