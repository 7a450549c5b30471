package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/switchyard-dl/switchyard/examples/gotrainer/nn"
)

// settings is the configuration of a process, from its environment and its flags.
type settings struct {
	shape         nn.Shape
	seed          uint64
	samples       int // in the training set
	batch         int // for each worker, in one pass
	global        int // for all workers in one step; 0 if every worker has a pass
	baseBatch     int // the step for which the learning rate is meant
	rateRule      string
	generation    uint64
	epochs        int // total
	rule          nn.Rule
	scaleRate     bool
	strongScaling bool

	jobUUID        string
	snapshots      string // directory of this job's checkpoints
	api            string
	unreported     string // a folder for what the agent has not taken
	heartbeatSteps int
	epochsDone     int // according to the scheduler; the checkpoint knows better

	rank, processes int
	workers         int // in this process
	master          string
	// servers are the addresses of the job's parameter servers, task is the task of this process.
	servers     []string
	task        task
	joinTimeout time.Duration
	ringTimeout time.Duration

	// slowBy is added to each pass of a step of this process, which then holds up the others. Without a named device it
	// applies to all.
	slowDevice string
	slowBy     time.Duration

	// memoryMiB is the device memory it reports: it has none, and uses nothing of a simulated one.
	memoryMiB int64

	ledger identity
}

// totalWorkers returns the number of workers of the whole job.
func (s settings) totalWorkers() int { return s.processes * s.workers }

// session identifies this attempt and what its processes must agree on.
func (s settings) session() string {
	return fmt.Sprintf("%s attempt %d: %+v, seed %d, %d samples, batch %d of %d, %d epochs, %d workers each, %+v, %t, %t",
		s.jobUUID, s.ledger.Attempt, s.shape, s.seed, s.samples, s.batch, s.global, s.epochs, s.workers,
		s.rule, s.scaleRate, s.strongScaling)
}

// environment reads variables and collects their errors.
type environment struct {
	get  func(string) string
	errs []error
}

func (e *environment) text(name, otherwise string) string {
	if v := e.get(name); v != "" {
		return v
	}
	return otherwise
}

func (e *environment) count(name string, otherwise int) int {
	v := e.get(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		e.errs = append(e.errs, fmt.Errorf("%s=%q is not a count", name, v))
	}
	return n
}

// readSettings reads the environment, then the flags, which take precedence.
func readSettings(args []string, getenv func(string) string, stderr io.Writer) (settings, error) {
	env := &environment{get: getenv}
	s := settings{
		jobUUID:        env.text("JOB_UUID", "local"),
		api:            env.text("SWITCHYARD_JOB_API", ""),
		unreported:     env.text("SWITCHYARD_UNREPORTED", ""),
		heartbeatSteps: env.count("HEARTBEAT_FREQ", 10),
		epochsDone:     env.count("EPOCHS_DONE", 0),
		processes:      max(1, env.count("WORLD_SIZE", 1)),
		ledger: identity{
			path: env.text("TRAIN_LEDGER", ""), Job: env.text("SWITCHYARD_JOB", ""),
			Attempt: env.count("SWITCHYARD_ATTEMPT", 0), Devices: env.text("SWITCHYARD_DEVICES", ""),
		},
	}
	flags := flag.NewFlagSet("gotrainer", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&s.samples, "training-set-size", env.count("TRAINING_SET_SIZE", 4000), "samples in the training set")
	flags.IntVar(&s.batch, "batch-size", env.count("BATCH_SIZE", 64), "samples per worker and pass")
	flags.IntVar(&s.global, "global-batch", env.count("SWITCHYARD_GLOBAL_BATCH", 0), "samples of all workers per step (default: a batch for each)")
	flags.StringVar(&s.rateRule, "lr-rule", env.text("SWITCHYARD_LEARNING_RATE", ""),
		"how the learning rate follows a global batch that changes: adascale, sqrt, linear or none (default: it does not change)")
	flags.IntVar(&s.epochs, "epochs", env.count("EPOCHS_TO_BE_DONE", 10), "epochs to be done in all")
	flags.IntVar(&s.shape.Features, "features", 64, "inputs of the network")
	flags.IntVar(&s.shape.Hidden, "hidden", 416, "units in each of the two hidden layers")
	flags.IntVar(&s.shape.Classes, "classes", 10, "classes to tell apart")
	flags.Float64Var(&s.rule.Rate, "lr", 0.01, "learning rate for one worker's batch")
	flags.Float64Var(&s.rule.Momentum, "momentum", 0.9, "momentum")
	flags.Float64Var(&s.rule.Decay, "decay", 0.005, "weight decay; it keeps the network from learning wrong labels by heart")
	flags.BoolVar(&s.scaleRate, "scale-lr", true, "let the learning rate grow with the square root of the number of workers")
	flags.BoolVar(&s.strongScaling, "strong-scaling", true,
		"split each epoch over the workers; otherwise each worker does the whole set")
	flags.Uint64Var(&s.seed, "seed", 1, "seed of the training set and of the first weights")
	flags.DurationVar(&s.joinTimeout, "join-timeout", time.Minute, "how long the processes wait for each other at the start")
	flags.DurationVar(&s.ringTimeout, "ring-timeout", 30*time.Second, "how long a process may keep the others waiting")
	flags.StringVar(&s.slowDevice, "slow-device", "",
		"a device whose worker is slow, to see what a scheduler does about it (one process per device; without it all are)")
	flags.DurationVar(&s.slowBy, "slow-by", 0, "how much longer each pass of a step on that device takes, sleeping")
	flags.Int64Var(&s.memoryMiB, "memory-mib", 0,
		"device memory that it says to use, in MiB, to see what a scheduler does about it")
	flags.BoolVar(&s.ledger.eachStep, "ledger-steps", false, "record each step in the ledger, too")
	if err := flags.Parse(args); err != nil {
		return settings{}, err
	}
	s.baseBatch = max(env.count("SWITCHYARD_BASE_BATCH", s.global), 1)
	s.generation = uint64(env.count("SWITCHYARD_BATCH_GENERATION", 0))
	s.place(env)
	s.findServers(env)
	// One path element, so that a job cannot reach another's directory.
	if s.jobUUID != filepath.Base(s.jobUUID) || strings.Trim(s.jobUUID, ".") == "" {
		env.errs = append(env.errs, fmt.Errorf("JOB_UUID=%q is not a plain name", s.jobUUID))
	}
	s.snapshots = filepath.Join(env.text("SWITCHYARD_SNAPSHOTS_DIR", "/snapshots"), s.jobUUID)
	env.errs = append(env.errs, s.shape.Validate())
	if s.samples < 1 || s.batch < 1 || s.heartbeatSteps < 1 {
		env.errs = append(env.errs, fmt.Errorf("training-set size %d, batch size %d and heartbeat frequency %d: each must be at least 1",
			s.samples, s.batch, s.heartbeatSteps))
	}
	return s, errors.Join(env.errs...)
}

// place determines the rank of this process. NUM_GPUS counts the devices of each of NUM_NODES nodes: if their product
// is the number of processes, each process has one device; else each process uses all of its node's devices itself.
func (s *settings) place(env *environment) {
	devices := env.count("NUM_GPUS", 0) * max(env.count("NUM_NODES", 1), 1)
	if devices == 0 {
		devices = s.processes
	}
	s.workers = devices / s.processes
	if s.workers*s.processes != devices {
		env.errs = append(env.errs,
			fmt.Errorf("%d devices (NUM_GPUS of each node) cannot be split evenly over WORLD_SIZE=%d processes", devices, s.processes))
	}
	s.rank = env.count("RANK", env.count("NODE_RANK", 0))
	if s.rank >= s.processes {
		env.errs = append(env.errs, fmt.Errorf("rank %d does not exist among WORLD_SIZE=%d processes", s.rank, s.processes))
	}
	if devices := strings.Split(s.ledger.Devices, ","); s.slowDevice != "" && s.rank < len(devices) && devices[s.rank] != s.slowDevice {
		s.slowBy = 0
	}
	if s.processes == 1 {
		return
	}
	if env.get("RANK") == "" && env.get("NODE_RANK") == "" {
		env.errs = append(env.errs,
			fmt.Errorf("WORLD_SIZE=%d, but neither RANK nor NODE_RANK says which process this is", s.processes))
	}
	address, port := env.get("MASTER_ADDR"), env.get("MASTER_PORT")
	if address == "" || port == "" {
		env.errs = append(env.errs,
			fmt.Errorf("WORLD_SIZE=%d, but MASTER_ADDR and MASTER_PORT do not say where to meet", s.processes))
	}
	s.master = net.JoinHostPort(address, port)
}

// task is the role of a process of a job with parameter servers.
type task struct {
	// Type is worker or ps; it is empty for the scheduler, where the processes of other systems meet.
	Type  string `json:"type"`
	Index int    `json:"index"`
}

const (
	taskWorker = "worker"
	taskServer = "ps"
)

// findServers reads from TF_CONFIG which processes of the job are parameter servers.
func (s *settings) findServers(env *environment) {
	s.task.Type = taskWorker
	if env.count("DMLC_NUM_SERVER", 0) == 0 {
		return
	}
	var config struct {
		Cluster map[string][]string `json:"cluster"`
		Task    task                `json:"task"`
	}
	if text := env.get("TF_CONFIG"); text != "" {
		if err := json.Unmarshal([]byte(text), &config); err != nil {
			env.errs = append(env.errs, fmt.Errorf("TF_CONFIG=%q: %w", text, err))
			return
		}
	}
	s.servers, s.task = config.Cluster[taskServer], config.Task
	if s.task.Type == taskServer && s.task.Index >= len(s.servers) {
		env.errs = append(env.errs, fmt.Errorf("TF_CONFIG: there is no server %d among %d", s.task.Index, len(s.servers)))
	}
}
