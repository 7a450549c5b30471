package trainer

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"

	"github.com/switchyard-dl/switchyard/examples/gotrainer/jobapi"
	"github.com/switchyard-dl/switchyard/examples/gotrainer/ring"
	"github.com/switchyard-dl/switchyard/lab/live"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// settings are a process's command line and environment.
type settings struct {
	traces, application, ledger string
	factor                      float64

	job            train.JobID
	attempt        int
	api, uuid      string
	unreported     string // a folder for what the agent has not taken
	snapshots      string
	heartbeatSteps int
	// devices are those of this process on its node.
	devices int
	place   ring.Place
	// batch is the one to begin with.
	batch jobapi.Batch
}

// environment reads counts and keeps the errors.
type environment struct {
	get  func(string) string
	errs []error
}

func (e *environment) count(name string, otherwise int) int {
	text := e.get(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		e.errs = append(e.errs, fmt.Errorf("%s=%q: want a count", name, text))
	}
	return n
}

func read(args []string, getenv func(string) string, stderr io.Writer) (settings, error) {
	env := &environment{get: getenv}
	s := settings{job: train.JobID(getenv("SWITCHYARD_JOB")), attempt: env.count("SWITCHYARD_ATTEMPT", 1), api: getenv("SWITCHYARD_JOB_API"), uuid: getenv("JOB_UUID"), unreported: getenv("SWITCHYARD_UNREPORTED")}
	flags := flag.NewFlagSet("replay", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&s.traces, "traces", "", "folder with the folders traces and derived of Pollux's measurements")
	flags.StringVar(&s.application, "application", "", "the measured application")
	flags.Float64Var(&s.factor, "factor", 1, "how much faster than measured to train")
	flags.StringVar(&s.ledger, "ledger", "", "file to which each process appends what it has trained")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	s.heartbeatSteps = max(env.count("HEARTBEAT_FREQ", live.HeartbeatSteps), 1)
	s.devices = max(env.count("NUM_GPUS", 1), 1)
	s.snapshots = filepath.Join(getenv("SWITCHYARD_SNAPSHOTS_DIR"), s.uuid)
	s.place = ring.Place{
		Rank: env.count("RANK", env.count("NODE_RANK", 0)), World: max(env.count("WORLD_SIZE", 1), 1),
		Master: net.JoinHostPort(getenv("MASTER_ADDR"), getenv("MASTER_PORT")), Session: fmt.Sprint(s.job, s.attempt), JoinTimeout: joinTimeout, Timeout: silence,
	}
	s.batch = jobapi.Batch{
		MicroBatch: env.count("BATCH_SIZE", 1), Accumulation: env.count("SWITCHYARD_ACCUMULATION", 1), GlobalBatch: env.count("SWITCHYARD_GLOBAL_BATCH", 0),
		Generation: uint64(env.count("SWITCHYARD_BATCH_GENERATION", 0)),
	}
	if !(s.factor > 0) || s.uuid == "" || getenv("SWITCHYARD_SNAPSHOTS_DIR") == "" || s.place.World != max(env.count("NUM_NODES", 1), 1) {
		env.errs = append(env.errs, errors.New("want a --factor above 0, and the environment of a job with one process on each node"))
	}
	return s, errors.Join(env.errs...)
}
