package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"time"

	"github.com/switchyard-dl/switchyard/examples/gotrainer/checkpoint"
	"github.com/switchyard-dl/switchyard/examples/gotrainer/dataset"
	"github.com/switchyard-dl/switchyard/examples/gotrainer/jobapi"
	"github.com/switchyard-dl/switchyard/examples/gotrainer/nn"
	"github.com/switchyard-dl/switchyard/examples/gotrainer/ring"
	"github.com/switchyard-dl/switchyard/examples/gotrainer/servers"
)

// heldOutSamples is the number of samples on which accuracy is measured after each epoch.
const heldOutSamples = 500

// failureReportTimeout bounds the time in which a failing process reports its failure.
const failureReportTimeout = 2 * time.Second

// trainer is one process of a training. All processes hold the same state and change it in the same way. Rank 0 reports
// and writes for them, except for heartbeats: the speed of each process shows which one holds up the others.
type trainer struct {
	settings
	exchange  exchange
	team      *team
	api       *jobapi.Client
	beats     *jobapi.Client
	ledger    *ledger
	directory checkpoint.Directory // of rank 0 alone
	state     checkpoint.State
	noise     noise
	rng       *rand.PCG
	stdout    io.Writer
}

// train runs a process from start to end. It returns nil when all epochs are done and
// when it was asked to stop.
func train(ctx context.Context, s settings, book *ledger, stdout, stderr io.Writer) error {
	t := &trainer{settings: s, ledger: book, stdout: stdout, api: &jobapi.Client{}, rng: rand.NewPCG(s.seed, 0x0de5)}
	t.beats = jobapi.New(s.api, s.jobUUID, s.unreported, stderr)
	if s.rank == 0 {
		t.api = t.beats
	}
	outcome, err := t.run(ctx, stderr)
	switch {
	case err == nil:
		t.api.End(ctx, jobapi.End{Outcome: outcome, EpochsDone: t.state.Epochs})
	case errors.Is(err, ring.ErrPeerLost):
		// Another process was lost. Its supervisor knows how it ended, and it may have been asked to end.
	default:
		ctx, cancel := context.WithTimeout(ctx, failureReportTimeout)
		defer cancel()
		t.api.End(ctx, jobapi.End{Outcome: jobapi.Failed, EpochsDone: t.state.Epochs, Message: err.Error()})
	}
	return err
}

func (t *trainer) run(ctx context.Context, stderr io.Writer) (outcome jobapi.Outcome, err error) {
	err = t.load(stderr)
	known := t.state.Epochs
	if t.rank != 0 {
		known = uint64(t.epochsDone)
	}
	t.ledger.start(known)
	if err != nil {
		return "", err
	}
	if t.exchange, err = t.meet(ctx); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, t.exchange.Close()) }()
	if err := t.shareState(); err != nil {
		return "", err
	}
	t.team = newTeam(t.settings, t.exchange)
	for t.state.Epochs < uint64(t.epochs) {
		stop, err := t.epoch(ctx)
		if err != nil {
			return "", fmt.Errorf("train epoch %d: %w", t.state.Epochs, err)
		}
		if stop && t.state.Epochs < uint64(t.epochs) {
			return jobapi.Stopped, nil
		}
	}
	return jobapi.Finished, nil
}

// exchange is how the processes of a job sum their results.
type exchange interface {
	// AllReduce replaces v, in every process, by the sum of all processes' v.
	AllReduce(v []float64) error
	// Broadcast passes rank 0's payload to every process.
	Broadcast(payload []byte) ([]byte, error)
	Close() error
}

// meet joins the others: around the job's parameter servers, if it has some, else in a ring.
func (t *trainer) meet(ctx context.Context) (exchange, error) {
	if len(t.servers) > 0 {
		return servers.Join(ctx, servers.Place{
			Rank: t.rank, World: t.processes, Addresses: t.servers, Session: t.session(), JoinTimeout: t.joinTimeout, Timeout: t.ringTimeout,
			Blocks: append(t.shape.Blocks(), tailLength),
		})
	}
	return ring.Join(ctx, ring.Place{
		Rank: t.rank, World: t.processes, Master: t.master, Session: t.session(), JoinTimeout: t.joinTimeout, Timeout: t.ringTimeout,
	})
}

// load gives rank 0 its initial state: the checkpoint's, or a fresh one.
func (t *trainer) load(stderr io.Writer) error {
	if t.rank != 0 {
		return nil
	}
	var err error
	if t.directory, err = checkpoint.Open(t.snapshots); err != nil {
		return err
	}
	loaded, err := t.directory.Load()
	if err != nil {
		return err
	}
	if loaded.Warning != "" {
		fmt.Fprintln(stderr, loaded.Warning)
	}
	if loaded.Found {
		if loaded.State.Shape != t.shape || loaded.State.Seed != t.seed {
			return fmt.Errorf("the checkpoint is of network %+v and seed %d, not of %+v and %d",
				loaded.State.Shape, loaded.State.Seed, t.shape, t.seed)
		}
		t.state = loaded.State
		return nil
	}
	if t.epochsDone > 0 {
		fmt.Fprintf(stderr, "EPOCHS_DONE is %d, but there is no checkpoint in %s: starting from the beginning\n",
			t.epochsDone, t.snapshots)
	}
	t.state = checkpoint.State{Seed: t.seed, Shape: t.shape, Weights: nn.Initial(t.shape, t.seed)}
	t.state.Velocity = make([]float64, len(t.state.Weights))
	if t.state.RNG, err = t.rng.MarshalBinary(); err != nil {
		return fmt.Errorf("seed permutations: %w", err)
	}
	return nil
}

// shareState broadcasts rank 0's state, so that the others need not see its disk.
func (t *trainer) shareState() error {
	var data []byte
	var err error
	if t.rank == 0 {
		if data, err = checkpoint.Encode(t.state); err != nil {
			return err
		}
	}
	if data, err = t.exchange.Broadcast(data); err != nil {
		return fmt.Errorf("share state: %w", err)
	}
	if t.state, err = checkpoint.Decode(data); err != nil {
		return fmt.Errorf("share state: %w", err)
	}
	if err := t.rng.UnmarshalBinary(t.state.RNG); err != nil {
		return fmt.Errorf("restore permutations: %w", err)
	}
	return nil
}

// epoch trains one epoch, or the rest of one, saves, reports, and returns whether to stop after it. It may stop within
// the epoch, too.
func (t *trainer) epoch(ctx context.Context) (stop bool, err error) {
	begun := time.Now()
	schedule := dataset.Schedule{Samples: t.samples, Workers: t.totalWorkers(), Repeat: !t.strongScaling}
	if t.state.RNG, err = t.rng.MarshalBinary(); err != nil { // within the epoch it is saved as it was before
		return false, fmt.Errorf("save permutations: %w", err)
	}
	order := rand.New(t.rng).Perm(t.samples)
	earlier := int(t.state.EpochSteps)
	var whole, beat tally
	var batch jobapi.Batch
	for had := int(t.state.Had); !schedule.Done(had); {
		batch = t.stepBatch()
		one, err := t.step(schedule, order, had, batch.GlobalBatch, batch.MicroBatch)
		if err != nil {
			return false, fmt.Errorf("step %d: %w", earlier+whole.steps, err)
		}
		t.ledger.step(t.state.Steps)
		had += batch.GlobalBatch
		t.state.EpochSteps, t.state.Had = t.state.EpochSteps+1, uint64(had)
		whole.add(one)
		beat.add(one)
		if beat.steps < t.heartbeatSteps && !schedule.Done(had) {
			continue
		}
		report := beat.heartbeat(t.state, t.rank, batch)
		report.EpochStep, report.AnyStep = int(t.state.EpochSteps), true
		report.EpochSteps = report.EpochStep + schedule.Steps(had, batch.GlobalBatch)
		t.beats.Steps(ctx, report)
		beat = tally{}
		if err := t.followBatch(); err != nil {
			return false, err
		}
		if schedule.Done(had) {
			break
		}
		if stop, err := t.leave(ctx, report.EpochSteps); stop || err != nil {
			return stop, err
		}
	}
	accuracy, err := t.team.evaluate(t.state.Weights, heldOutSamples, t.totalWorkers(), t.batch)
	if err != nil {
		return false, fmt.Errorf("measure accuracy: %w", err)
	}
	t.state.Epochs++
	t.state.EpochSteps, t.state.Had = 0, 0
	// If an earlier attempt began the epoch, the whole is reported at the pace of this one.
	share := float64(earlier+whole.steps) / float64(whole.steps)
	if t.rank == 0 {
		stop, err = t.conclude(ctx, jobapi.Epoch{
			EpochsDone: t.state.Epochs, EpochSeconds: time.Since(begun).Seconds() * share,
			Steps: earlier + whole.steps, Samples: int(float64(whole.samples) * share),
			Loss: whole.loss / float64(whole.samples), Metrics: map[string]float64{"accuracy": accuracy},
			GradSqr: max(0, whole.gradSqr/float64(whole.steps)), GradVar: max(0, whole.gradVar/float64(whole.steps)), Batch: batch,
			MemoryBytes: t.memoryMiB << 20,
		})
		if err != nil {
			return false, err
		}
	}
	if stop, err = t.agree(stop); err == nil && t.rank != 0 {
		t.ledger.epoch(t.state.Epochs)
	}
	return stop, err
}

// leave saves the state within an epoch if the scheduler wants the devices.
func (t *trainer) leave(ctx context.Context, epochSteps int) (stop bool, err error) {
	if t.rank == 0 && t.api.StopNear() {
		stop = t.api.StopRequestedAt(ctx, t.state.Steps)
	}
	if stop, err = t.agree(stop); !stop || err != nil || t.rank != 0 {
		return stop, err
	}
	saved, err := t.save()
	saved.EpochSteps = epochSteps
	if err == nil {
		t.api.Saved(ctx, saved)
	}
	return stop, err
}

// save writes the state to disk.
func (t *trainer) save() (jobapi.Checkpoint, error) {
	begun := time.Now()
	data, err := checkpoint.Encode(t.state)
	if err == nil {
		err = t.directory.Save(data)
	}
	return jobapi.Checkpoint{
		EpochsDone: t.state.Epochs, EpochStep: t.state.EpochSteps, Path: t.directory.Path(), Bytes: len(data), Seconds: time.Since(begun).Seconds(),
	}, err
}

// conclude ends an epoch on rank 0, in an order that is safe against crashes: what is reported as done is on disk.
func (t *trainer) conclude(ctx context.Context, done jobapi.Epoch) (stop bool, err error) {
	if t.state.RNG, err = t.rng.MarshalBinary(); err != nil {
		return false, fmt.Errorf("save permutations: %w", err)
	}
	saved, err := t.save()
	if err != nil {
		return false, err
	}
	t.ledger.epoch(t.state.Epochs)
	fmt.Fprintf(t.stdout, "epoch %d/%d loss %.4f accuracy %.3f seconds %.3f workers %d\n",
		done.EpochsDone, t.epochs, done.Loss, done.Metrics["accuracy"], done.EpochSeconds, t.totalWorkers())
	t.api.EpochEnded(ctx, saved, done)
	return t.api.StopRequested(ctx), nil
}

// agree makes rank 0's answer count for all.
func (t *trainer) agree(stop bool) (bool, error) {
	word := []byte{0}
	if stop {
		word[0] = 1
	}
	word, err := t.exchange.Broadcast(word)
	if err != nil {
		return false, fmt.Errorf("agree whether to go on: %w", err)
	}
	return len(word) == 1 && word[0] == 1, nil
}

// step does one step of SGD over batch samples in every process alike, after all workers had samples in this epoch.
func (t *trainer) step(schedule dataset.Schedule, order []int, had, batch, micro int) (tally, error) {
	begun := time.Now()
	waited, err := t.team.gradient(t.state.Weights, schedule, order, had, batch, micro)
	if err != nil {
		return tally{}, err
	}
	length := len(t.state.Weights)
	gradient, tail := t.team.sum[:length], t.team.sum[length:]
	if math.IsNaN(tail[tailLoss]) || math.IsInf(tail[tailLoss], 0) {
		return tally{}, fmt.Errorf("the loss is %g: the learning rate %g is too high", tail[tailLoss], t.rule.Rate)
	}
	rule := t.rule
	rule.Rate *= t.rateScale(batch)
	nn.Update(t.state.Weights, t.state.Velocity, gradient, 1/tail[tailSamples], rule)
	t.state.Steps++
	one := newTally(gradient, tail, time.Since(begun), waited)
	t.noise.add(one)
	return one, nil
}
