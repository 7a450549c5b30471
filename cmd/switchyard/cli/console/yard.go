package console

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/exit"
	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/audit"
	"github.com/switchyard-dl/switchyard/libs/build"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/rpc"
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
	Log(ctx context.Context, node train.NodeID, job train.JobID, offset int64) (rpc.LogChunk, error)
	// Files returns what the executor of a node says about the files of a job.
	Files(ctx context.Context, node train.NodeID, r rpc.FileRequest) (rpc.FileAnswer, error)
	// Experiments returns all experiments, the newest first.
	Experiments(ctx context.Context) ([]view.ExperimentLine, error)
	// Experiment returns the record of an experiment; if it was refused, that is the error.
	Experiment(ctx context.Context, id string, unknown int) (contract.ExperimentRecord, error)
	// Terminal attaches a terminal to a job that runs on a node. The error is bus.ErrAway if nobody answers for it now.
	Terminal(ctx context.Context, node train.NodeID, r rpc.TerminalRequest) (Terminal, error)
	// Rehearse returns what would become of a job if it were submitted.
	Rehearse(ctx context.Context, c rpc.Candidate) (rpc.Rehearsal, error)
	// Epochs returns what a job has reported at the end of each epoch.
	Epochs(ctx context.Context, id train.JobID) (view.Epochs, error)
	// Groups returns the groups of recurring jobs.
	Groups(ctx context.Context) ([]view.Group, error)
	// GroundTruth returns what is known about the workloads of trials.
	GroundTruth(ctx context.Context) (contract.GroundTruth, error)
	// Probed returns what probes say about the network.
	Probed(ctx context.Context) (view.Probed, error)
	// Ledger returns the books of the hours that begin between two times.
	Ledger(ctx context.Context, from, to time.Time) (view.Ledger, error)
	// Audit returns who asked for what.
	Audit(ctx context.Context, f audit.Filter) ([]contract.AuditEntry, error)
	// Users and Tenants return the people and tenants that have a record.
	Users(ctx context.Context) ([]*access.Person, error)
	Tenants(ctx context.Context) ([]*access.Tenant, error)
	// Publish stores a fact that people may publish. repeat says that a fact which there is once was stored before.
	Publish(ctx context.Context, fact event.Fact) (repeat bool, err error)
	// Upload stores the archive of a folder under its hash. repeat says that the same one was stored before.
	Upload(ctx context.Context, hash string, archive *os.File) (repeat bool, err error)
}

// Terminal is one end of a two-way sequence of packets; the other one is a terminal of a job.
type Terminal interface {
	// Send gives a packet to the other end. The error is bus.ErrCut if that is gone.
	Send(ctx context.Context, packet []byte) error
	// Receive returns the next packet, io.EOF if the other end was closed, or bus.ErrCut.
	Receive(ctx context.Context) ([]byte, error)
	// Watch returns once the other end does not answer any more, or ctx has ended.
	Watch(ctx context.Context)
	Close()
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
	web, err := a.findWeb(ctx)
	if err != nil && (serverNamed() || errors.Is(err, fs.ErrPermission)) {
		return nil, nil, err
	}
	if err == nil {
		if err := build.Agree(build.This(), web.about.Build, "the service web"); err != nil {
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

// Web returns what the service web says of itself and its bus, if it answers.
func (a *Console) Web(ctx context.Context) (about api.About, answers bool) {
	y, err := a.findWeb(ctx)
	return y.about, err == nil
}

// findWeb finds the service web of this user's installation or, if he has none, that of the machine.
func (a *Console) findWeb(ctx context.Context) (onSocket, error) {
	if serverNamed() {
		return askWeb(ctx, newOnServer(os.Getenv(socketVariable), os.Getenv("SWITCHYARD_TOKEN_FILE")), serverPatience)
	}
	if shared := os.Getenv(socketVariable); shared != "" {
		return askShared(ctx, shared)
	}
	place, err := installation.ReadContext(a.ContextPath())
	if err == nil {
		if y, err := askWeb(ctx, newOnSocket(filepath.Join(place.DataDir, api.SocketName)), socketPatience); err == nil && y.about.Bus == a.URL() {
			return y, nil
		}
	}
	if a.Nats != "" || os.Getenv("SWITCHYARD_NATS") != "" || err == nil && installation.Answers(ctx, place.NATS) {
		return onSocket{}, errGone
	}
	return askShared(ctx, installation.SharedSocket)
}

// askShared asks the service web that listens for the users of the machine.
func askShared(ctx context.Context, path string) (onSocket, error) {
	y, err := askWeb(ctx, newOnSocket(path), socketPatience)
	if err != nil && unix.Access(path, unix.W_OK) == unix.EACCES {
		err = shut{exit.Errorf(exit.Unreachable,
			"`ls -l "+path+"` names a group: root adds you with `usermod --append --groups GROUP USER`, and you log in again",
			"you may not use the Switchyard of this machine: its socket %s is for the members of a group", path)}
	}
	return y, err
}

// shut makes an error that of a socket which this user may not open.
type shut struct{ error }

// Is implements errors.Is.
func (shut) Is(target error) bool { return target == fs.ErrPermission }

// Unwrap implements errors.Unwrap.
func (s shut) Unwrap() error { return s.error }

// socketVariable names the socket of the service web, or its URL.
const socketVariable = "SWITCHYARD_SOCKET"

// serverNamed reports whether the user has named a server by its URL: no other installation is meant then.
func serverNamed() bool { return strings.Contains(os.Getenv(socketVariable), "://") }

// How long the service web may take to answer who it is: a server may have to ask Kubernetes first.
const (
	socketPatience = time.Second
	serverPatience = 15 * time.Second
)

// askWeb asks the service web what it is, and which bus it serves.
func askWeb(ctx context.Context, y onSocket, patience time.Duration) (onSocket, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := y.ask(ctx, api.Prefix, nil, exit.Unreachable, &y.about)
	if y.about.Build.Events == 0 {
		y.about.Build = build.First(y.about.Version)
	}
	return y, err
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
