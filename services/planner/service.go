// Package planner watches jobs, nodes, attempts and models, and publishes one message that holds the whole plan whenever the decision changes. What to
// decide is in package plan; in here are the clock, the bus and the order in which things are told.
package planner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sourcegraph/conc/pool"
	"github.com/spf13/pflag"

	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/event"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/services/planner/plan"
)

// Service is the planner.
type Service struct {
	policy       string
	interval     time.Duration
	restartPrice time.Duration
	rescaleAfter time.Duration
	maxRestarts  int
	starvation   time.Duration
	fairness     float64
	energyWeight float64
	powerBudget  float64
	powerLimits  []float64
	rates        string
	carbonWeight float64
	quotas       map[string]int
	probing      probing
	linkLoss     float64
}

// New makes the service; its flags fill it.
func New() *Service { return &Service{} }

// Name is planner.
func (s *Service) Name() string { return "planner" }

// Task is the same for all processes: one at a time works.
func (s *Service) Task(run.Common) string { return s.Name() }

// Flags declares how to decide and how often.
func (s *Service) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&s.policy, "policy", plan.DefaultPolicy, "who gets devices: "+strings.Join(plan.PolicyNames(), ", "))
	fs.DurationVar(&s.interval, "plan-interval", 5*time.Second, "longest time between two decisions; a change is decided on at once")
	fs.DurationVar(&s.restartPrice, "restart-price", 0, "what a restart of a job is taken to cost (0: the mean of those seen)")
	fs.DurationVar(&s.rescaleAfter, "rescale-min-interval", 10*time.Second, "least time, and at least one epoch, between two changes of a job's size")
	fs.IntVar(&s.maxRestarts, "max-restarts-per-hour", 6, "how often a job is resized or moved within an hour for the sake of speed; a job of higher priority may still take its devices")
	fs.DurationVar(&s.starvation, "starvation-bound", time.Hour, "a job that has waited longer than this goes before others of its priority (policy switchyard), and has devices kept for it (every policy)")
	fs.Float64Var(&s.fairness, "fairness-bound", 0, "finish-time fairness beyond which a job gets its fair share before others, e.g. 4 (0: none; policy switchyard)")
	fs.Float64Var(&s.energyWeight, "energy-weight", 0, "what energy counts against time, from 0 to 1, for jobs that do not say (policy switchyard)")
	fs.Float64Var(&s.powerBudget, "power-budget-watts", 0, "the most that all devices together may be predicted to draw (0: no bound)")
	fs.Float64SliceVar(&s.powerLimits, "power-limits", nil, "watts to try as power limit of each GPU of a running job whose energy counts, e.g. 150,200,250,300 (empty: none is set)")
	fs.StringVar(&s.rates, "energy-rates", "", "CSV file with the columns datetime, grams_per_kwh and price_per_kwh, forecasts included, for jobs whose start may be put off (empty: by the energy service's --tariff)")
	fs.Float64Var(&s.carbonWeight, "carbon-weight", 0.5, "what carbon counts against price where a start may be put off, from 0 to 1")
	s.probing.flags(fs)
	fs.Float64Var(&s.linkLoss, "link-loss-bound", 0.001, "part of the packets that a link of the network may lose before jobs over several nodes are kept off it")
	fs.StringToIntVar(&s.quotas, "quota", nil, "the most devices that the jobs of a tenant may hold together, as TENANT=DEVICES (repeatable)")
}

// mostWatts is more than any device draws.
const mostWatts = 10_000

// Validate names every wrong setting at once.
func (s *Service) Validate(run.Common) error {
	var errs []error
	if _, err := plan.Find(s.policy); err != nil {
		errs = append(errs, fmt.Errorf("--policy: %w", err))
	}
	if s.interval < 100*time.Millisecond || s.interval > time.Hour {
		errs = append(errs, fmt.Errorf("--plan-interval %v: want 100ms to 1h", s.interval))
	}
	if s.restartPrice < 0 {
		errs = append(errs, fmt.Errorf("--restart-price %v: want 0 or more", s.restartPrice))
	}
	if s.rescaleAfter <= 0 {
		errs = append(errs, fmt.Errorf("--rescale-min-interval %v: want more than 0", s.rescaleAfter))
	}
	if s.maxRestarts < 1 {
		errs = append(errs, fmt.Errorf("--max-restarts-per-hour %d: want at least 1", s.maxRestarts))
	}
	if s.starvation <= 0 {
		errs = append(errs, fmt.Errorf("--starvation-bound %v: want more than 0", s.starvation))
	}
	if !(s.fairness == 0 || s.fairness >= 1 && !math.IsInf(s.fairness, 0)) {
		errs = append(errs, fmt.Errorf("--fairness-bound %v: want 0, or 1 or more", s.fairness))
	}
	if !(s.energyWeight >= 0 && s.energyWeight <= 1) {
		errs = append(errs, fmt.Errorf("--energy-weight %v: want 0 to 1", s.energyWeight))
	}
	if !(s.powerBudget >= 0) || math.IsInf(s.powerBudget, 0) {
		errs = append(errs, fmt.Errorf("--power-budget-watts %v: want 0 or more", s.powerBudget))
	}
	for _, watts := range s.powerLimits {
		if !(watts > 0 && watts <= mostWatts) {
			errs = append(errs, fmt.Errorf("--power-limits %v: want more than 0 and at most %d W", watts, mostWatts))
		}
	}
	if !(s.carbonWeight >= 0 && s.carbonWeight <= 1) {
		errs = append(errs, fmt.Errorf("--carbon-weight %v: want 0 to 1", s.carbonWeight))
	}
	if s.rates != "" {
		if err := (&grid{path: s.rates, carbonWeight: s.carbonWeight}).refresh(); err != nil {
			errs = append(errs, fmt.Errorf("--energy-rates: %w", err))
		}
	}
	errs = append(errs, s.probing.validate())
	if !(s.linkLoss > 0 && s.linkLoss < 1) {
		errs = append(errs, fmt.Errorf("--link-loss-bound %v: want more than 0 and less than 1", s.linkLoss))
	}
	for _, tenant := range slices.Sorted(maps.Keys(s.quotas)) {
		if s.quotas[tenant] < 0 {
			errs = append(errs, fmt.Errorf("--quota %s=%d: want 0 or more", tenant, s.quotas[tenant]))
		}
	}
	return errors.Join(errs...)
}

// Run plans until ctx ends.
func (s *Service) Run(ctx context.Context, p run.Process) error {
	policy, err := plan.Find(s.policy)
	if err != nil {
		return err
	}
	b, err := p.Connect(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	m := newMeters(p.Metrics)
	look := newPicture()
	again, err := newRecurrences(ctx, b, p.Log, look, s.energyWeight)
	if err != nil {
		return err
	}
	watching := pool.New().WithContext(ctx).WithCancelOnError()
	rates := &grid{path: s.rates, carbonWeight: s.carbonWeight, log: p.Log}
	if err := watch(ctx, b, look, rates, again.see, watching); err != nil {
		return err
	}
	watching.Go(again.run)
	limits, err := newPowerLimits(ctx, b, p.Log, look, s.powerLimits, s.energyWeight)
	if err != nil {
		return err
	}
	watching.Go(limits.run)
	batches, err := newTuner(ctx, b, p.Log, look)
	if err != nil {
		return err
	}
	watching.Go(batches.run)
	probes, err := newProber(ctx, b, p.Log, s.probing.Settings, look)
	if err != nil {
		return err
	}
	watching.Go(probes.run)
	l := &loop{
		bus: b, log: p.Log, meters: m, picture: look, policy: policy, interval: s.interval, now: time.Now, told: map[train.JobID]saying{},
		terms: s.terms(), grid: rates,
	}
	watching.Go(l.listen)
	watching.Go(l.followPlans)
	l.recorder = newRecorder(b, p.Log, m)
	watching.Go(l.recorder.run)
	watching.Go(func(ctx context.Context) error { return l.run(ctx, p.Started) })
	return watching.Wait()
}

// terms are what the operator chose, and what the back end can do: it keeps a gang on one node and lets a job leave at an epoch's end.
func (s *Service) terms() plan.State {
	return plan.State{
		Quotas: s.quotas, PowerBudgetWatts: s.powerBudget,
		Tuning: plan.Tuning{
			RestartSeconds: s.restartPrice.Seconds(), MinRescaleSeconds: s.rescaleAfter.Seconds(), MaxRestartsPerHour: s.maxRestarts,
			AtEpochs:          true,
			LinkLossBound:     s.linkLoss,
			StarvationSeconds: s.starvation.Seconds(), FairnessBound: s.fairness, EnergyWeight: s.energyWeight,
		},
	}
}

// watch keeps picture and rates up to date with the buckets. Each record of a job is shown to seeJob, too. A decision waits for all of them: for the rates
// since a job that has begun is not put off.
func watch(ctx context.Context, b *bus.Bus, look *picture, rates *grid, seeJob func(bus.Entry[train.Job], bool), watching *pool.ContextPool) error {
	return errors.Join(
		follow(ctx, b, watching, look, event.BucketJobs, func(e bus.Entry[train.Job], deleted bool) {
			look.seeJob(e, deleted)
			seeJob(e, deleted)
		}),
		follow(ctx, b, watching, look, event.BucketNodes, func(e bus.Entry[train.Node], deleted bool) { look.seeNode(time.Now(), e, deleted) }),
		follow(ctx, b, watching, look, event.BucketAttempts, look.seeAttempt),
		follow(ctx, b, watching, look, event.BucketReports, look.seeReport),
		follow(ctx, b, watching, look, event.BucketModels, look.seeModel),
		follow(ctx, b, watching, look, event.BucketMeetings, look.seeMeetings),
		follow(ctx, b, watching, look, event.BucketLinks, look.seeLink),
		follow(ctx, b, watching, look, event.BucketSettings, look.seeSetting),
		follow(ctx, b, watching, look, event.BucketRates, rates.see),
	)
}

// follow opens a bucket and has each of its records seen; the picture is complete in it once all were.
func follow[T any](ctx context.Context, b *bus.Bus, watching *pool.ContextPool, look *picture, bucket string, see func(bus.Entry[T], bool)) error {
	records, err := bus.OpenKV[T](ctx, b, bucket)
	if err != nil {
		return err
	}
	watching.Go(func(ctx context.Context) error { return records.Watch(ctx, see, look.complete(bucket)) })
	return nil
}
