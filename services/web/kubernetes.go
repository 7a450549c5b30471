package web

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/kubetoken"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/settings"
	"github.com/switchyard-dl/switchyard/libs/tick"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/api"
	"github.com/switchyard-dl/switchyard/services/web/index"
	"github.com/switchyard-dl/switchyard/services/web/kubejobs"
	"github.com/switchyard-dl/switchyard/services/web/session"
	"github.com/switchyard-dl/switchyard/services/web/trainingjob"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// kubernetesJobs asks the API as the service accounts of Kubernetes whose objects ask for something. Roles,
// tenants and bounds are those of the same account with a token.
type kubernetesJobs struct {
	known   *known
	bus     *bus.Bus
	answers http.Handler
	now     func() time.Time
	// kinds are those whose objects are jobs.
	kinds []trainingjob.Kind
}

// program is what web calls itself to the API server of Kubernetes.
const program = "switchyard-web"

// objectKinds are the kinds of objects of Kubernetes that are jobs.
func objectKinds(c settings.Web) (kinds []trainingjob.Kind) {
	if c.TrainingJobs {
		kinds = append(kinds, trainingjob.TrainingJobs())
	}
	if c.TrainJobs {
		kinds = append(kinds, trainingjob.TrainJobs())
	}
	return kinds
}

// run keeps objects and jobs alike, in one process at a time.
func (k kubernetesJobs) run(ctx context.Context, p run.Process) error {
	config, err := kubetoken.Cluster(program)
	if err != nil {
		return fmt.Errorf("objects that are jobs (web.training_jobs, web.train_jobs): %w", err)
	}
	controller, err := kubejobs.New(config, k.kinds, k, p.Log, k.now)
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find the name of this machine: %w", err)
	}
	return k.bus.Lead(ctx, bus.Claim{Task: settings.WebSection, Holder: host + ":" + p.Common.DataDir}, func(ctx context.Context, _ uint64) error {
		return controller.Run(ctx)
	})
}

// Job implements kubejobs.Jobs.
func (k kubernetesJobs) Job(ctx context.Context, namespace, account string, id train.JobID) (trainingjob.Known, error) {
	user, err := kubetoken.AccountName(namespace, account)
	if err != nil {
		return trainingjob.Known{}, nil //nolint:nilerr // a person without a name here has no job: Publish says so
	}
	var found trainingjob.Known
	k.known.read(func(x *index.Index) {
		if job := x.Jobs.Get(string(id)); job != nil {
			found.Job = job
			rows, _ := view.Some(x, []train.JobID{id}, k.now())
			found.Row = rows[0]
		}
	})
	if found.Job == nil { // admission may not have read it yet
		body, submitted, err := bus.LastOf[event.Submitted](ctx, k.bus, event.StreamJobs, event.JobSubject(id, event.FactSubmitted))
		if err != nil || !submitted { // admission rejects what cannot be read
			return found, err
		}
		job := view.Unread(id, body.Spec)
		found = trainingjob.Known{Job: &job, Row: view.Job{ID: id, State: job.State}}
	}
	if found.Job.Spec.User != user {
		return trainingjob.Known{}, nil
	}
	return found, nil
}

// Publish implements kubejobs.Jobs.
func (k kubernetesJobs) Publish(ctx context.Context, namespace, account string, r trainingjob.Request) (*trainingjob.Refusal, error) {
	refuse := func(reason train.Reason) *trainingjob.Refusal {
		return &trainingjob.Refusal{Fact: r.Fact, Reason: reason}
	}
	user, err := kubetoken.AccountName(namespace, account)
	if err != nil {
		return refuse(train.Reason{Code: "NoName", Message: err.Error()}), nil //nolint:nilerr // another try would say the same
	}
	body, err := json.Marshal(r.Body)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", r.Fact, err)
	}
	path := api.Prefix + "/jobs/" + string(r.Job) + "/" + r.Fact
	request, err := http.NewRequestWithContext(context.WithValue(ctx, http.LocalAddrContextKey, cluster{}), http.MethodPost, path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", path, err)
	}
	request.Header.Set(api.KeyHeader, r.Key)
	said := &reply{header: http.Header{}}
	k.answers.ServeHTTP(said, by(request, asker{Who: session.Who{Name: user}, session: true}))
	if said.status < http.StatusMultipleChoices {
		return nil, nil
	}
	var p api.Problem
	if err := json.Unmarshal(said.body.Bytes(), &p); err != nil {
		return nil, fmt.Errorf("read the answer to %s: %w", path, err)
	}
	if said.status == http.StatusTooManyRequests || said.status >= http.StatusInternalServerError {
		return nil, fmt.Errorf("%s: %s", path, p.Detail)
	}
	if len(p.Reasons) > 0 {
		return refuse(p.Reasons[0]), nil
	}
	return refuse(train.Reason{Code: refusalCode(said.status), Message: p.Detail, Hint: p.Fix}), nil
}

// refusalCode is the reason of a refusal in one word.
func refusalCode(status int) string {
	switch status {
	case http.StatusForbidden:
		return "Forbidden"
	case http.StatusConflict:
		return "Conflict"
	}
	return "Invalid"
}

// Follow implements kubejobs.Jobs.
func (k kubernetesJobs) Follow(ctx context.Context, changed func([]train.JobID)) {
	at := k.known.now()
	for ctx.Err() == nil {
		last, _, news := k.known.follow(at, func(_ *index.Index, changes []change) {
			var ids []train.JobID
			for _, c := range changes {
				if c.bucket == string(contract.Jobs) {
					ids = append(ids, train.JobID(c.key))
				}
			}
			changed(ids)
		})
		at = last
		select {
		case <-news:
		case <-ctx.Done():
		}
		tick.Pause(ctx, gathering)
	}
}

// cluster is how requests of objects of Kubernetes come: through no connection.
type cluster struct{}

// Network implements net.Addr.
func (cluster) Network() string { return "kubernetes" }

// String implements net.Addr.
func (cluster) String() string { return "objects" }

// reply keeps the answer to a request that came through no connection.
type reply struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (r *reply) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *reply) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

// Write implements http.ResponseWriter.
func (r *reply) Write(data []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(data)
}
