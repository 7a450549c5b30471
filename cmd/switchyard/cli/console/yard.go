package console

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/build"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/web/api"
	"github.com/switchyard-dl/switchyard/services/web/view"
)

// Yard is an installation as commands see it. The service web answers from its index; if it is away, or goes away, the
// bus is read.
//
// If a job is unknown, the error has the exit code unknown. A stored submission that admission has not read yet counts
// as a job.
type Yard interface {
	// Jobs returns a list of jobs on one page, without regard to the query's Limit and After.
	Jobs(ctx context.Context, q view.Query) (view.Page, error)
	// Job returns all that is known about the job that a person means: by an id, the newest job of a name, or the
	// beginning of an id.
	Job(ctx context.Context, ref string, unknown int) (view.Detail, error)
	// Find returns the record of such a job.
	Find(ctx context.Context, ref string, unknown int) (train.Job, error)
	// Standing returns where a job stands now.
	Standing(ctx context.Context, id train.JobID) (view.Standing, error)
	// Follow calls f with the records of jobs as they are, and whenever one has changed, until f returns false or ctx
	// ends. It may call f again with a record that has not changed when the first plan knows its job.
	Follow(ctx context.Context, ids []train.JobID, f func(train.Job) (more bool)) error
	// Records returns the records of jobs by their whole ids, in that order, without those that are gone.
	Records(ctx context.Context, ids []train.JobID) ([]*train.Job, error)
	// Nodes returns the records of the nodes.
	Nodes(ctx context.Context) ([]*train.Node, error)
	// Cluster returns the nodes with what is on them, and what keeps jobs off them.
	Cluster(ctx context.Context) ([]*view.Node, error)
	// Log returns a piece of the output of a job. The error is bus.ErrAway if nobody answers for the node now.
	Log(ctx context.Context, node train.NodeID, job train.JobID, offset int64) (train.LogChunk, error)
	// Files returns what the executor of a node says about the files of a job.
	Files(ctx context.Context, node train.NodeID, r train.FileRequest) (train.FileAnswer, error)
	// Users and Tenants return the people and tenants that have a record.
	Users(ctx context.Context) ([]*access.Person, error)
	Tenants(ctx context.Context) ([]*access.Tenant, error)
	// Publish stores a fact that people may publish. repeat says that a fact which there is once was stored before.
	Publish(ctx context.Context, fact event.Fact) (repeat bool, err error)
}

// WithYard runs f with the service web or, where it is away, with a connection to the bus.
func (a *Console) WithYard(cmd *cobra.Command, f func(ctx context.Context, y Yard) error) error {
	y, done, err := a.Yard(cmd.Context())
	if err != nil {
		return err
	}
	defer done()
	return f(cmd.Context(), y)
}

// Yard opens the installation. The caller calls done when it needs it no longer.
func (a *Console) Yard(ctx context.Context) (y Yard, done func(), err error) {
	if web, found := a.findWeb(ctx); found {
		if err := build.Agree(build.This(), web.build, "the service web"); err != nil {
			return nil, nil, err
		}
		e := &either{web: web, connect: a.onBus}
		return e, e.close, nil
	}
	b, err := a.Connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	return OnBus(b, time.Now), b.Close, nil
}

// onBus opens the bus if anything answers there.
func (a *Console) onBus(ctx context.Context) (y Yard, done func(), err error) {
	if !a.Answers(ctx) {
		return nil, nil, errGone
	}
	b, err := a.Connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	return OnBus(b, time.Now), b.Close, nil
}

// Web returns the program of the service web, if that answers.
func (a *Console) Web(ctx context.Context) (program contract.Build, answers bool) {
	y, answers := a.findWeb(ctx)
	return y.build, answers
}

// findWeb finds the service web of this user's installation or, if he has none, that of the machine.
func (a *Console) findWeb(ctx context.Context) (onSocket, bool) {
	if shared := os.Getenv("SWITCHYARD_SOCKET"); shared != "" {
		y, _, answers := askWeb(ctx, shared)
		return y, answers
	}
	place, err := installation.ReadContext(a.ContextPath())
	if err == nil {
		if y, bus, answers := askWeb(ctx, filepath.Join(place.DataDir, api.SocketName)); answers && bus == a.URL() {
			return y, true
		}
	}
	if a.Nats != "" || os.Getenv("SWITCHYARD_NATS") != "" || err == nil && installation.Answers(ctx, place.NATS) {
		return onSocket{}, false
	}
	y, _, answers := askWeb(ctx, installation.SharedSocket)
	return y, answers
}

// askWeb asks the service web at a socket which bus it serves.
func askWeb(ctx context.Context, socket string) (y onSocket, bus string, answers bool) {
	y = newOnSocket(socket)
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var about api.About
	_, err := y.ask(ctx, api.Prefix, nil, exit.Unreachable, &about)
	if y.build = about.Build; y.build.Events == 0 {
		y.build = build.First(about.Version)
	}
	return y, about.Bus, err == nil
}

// FindJobs finds all jobs, each once, or fails.
func FindJobs(ctx context.Context, y Yard, refs []string, unknown int) ([]train.Job, error) {
	var jobs []train.Job
	for _, ref := range refs {
		job, err := y.Find(ctx, ref, unknown)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(jobs, func(j train.Job) bool { return j.ID == job.ID }) {
			jobs = append(jobs, job)
		}
	}
	return jobs, nil
}
