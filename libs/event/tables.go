package event

import "time"

// The streams.
const (
	StreamJobs      = "JOBS"
	StreamPlans     = "PLANS"
	StreamDecisions = "DECISIONS"
	StreamSamples   = "SAMPLES"
	StreamEnergy    = "ENERGY"
	StreamTune      = "TUNE"
	StreamNet       = "NET"
	StreamPoison    = "POISON"
)

// MaxFactsPerSubject bounds what one job can say of one kind: beyond it the oldest goes.
const MaxFactsPerSubject = 100_000

// Stream describes one stream. All are kept in files, and all refuse new messages when full rather than drop old ones unseen, but for SAMPLES.
type Stream struct {
	Name     string
	Subjects []string
	MaxAge   time.Duration
	MaxBytes int64
	// DropOld lets the oldest messages go when the stream is full: for telemetry only.
	DropOld bool
	Doc     string
}

// Streams is the table of streams.
func Streams() []Stream {
	const day = 24 * time.Hour
	const gib = int64(1) << 30
	return []Stream{
		{StreamJobs, []string{"yard.job.>"}, 30 * day, 4 * gib, false, "The facts of jobs, in the one order that the register folds."},
		{StreamPlans, []string{"yard.plan.>"}, 30 * day, gib, true, "Plans, one message each, appended by compare-and-swap."},
		{StreamDecisions, []string{"yard.decision.>"}, 30 * day, gib, true, "What each published plan was decided on: `switchyard replay` decides on it again."},
		{StreamSamples, []string{"yard.sample.>", "yard.energy.>", "yard.probe.>"}, time.Hour, gib, true, "Heartbeats, meters, and counts of probes."},
		{StreamEnergy, []string{"yard.ledger.>"}, 30 * day, gib, false, "Final energy accounts."},
		{StreamTune, []string{"yard.tune.>"}, 30 * day, gib, false, "The facts of experiments."},
		{StreamNet, []string{"yard.net.>"}, 30 * day, gib / 4, true, "Which links of the network lose or delay packets."},
		{StreamPoison, []string{"yard.poison.>"}, 30 * day, gib / 4, true, "What could not be handled, with the reason."},
	}
}

// The buckets.
const (
	BucketJobs        = "jobs"
	BucketNodes       = "nodes"
	BucketModels      = "models"
	BucketMeetings    = "meetings"
	BucketAttempts    = "attempts"
	BucketReports     = "reports"
	BucketLedger      = "ledger"
	BucketHours       = "hours"
	BucketGroups      = "groups"
	BucketPowerLimits = "power_limits"
	BucketRates       = "rates"
	BucketTunings     = "tunings"
	BucketExperiments = "experiments"
	BucketSettings    = "settings"
	BucketProfiles    = "profiles"
	BucketProbes      = "probes"
	BucketPaths       = "paths"
	BucketLinks       = "links"
	BucketLeases      = "leases"
)

// RatesKey is the one key of BucketRates.
const RatesKey = "site"

// MaxBucketBytes is how much each bucket may hold; the server of the bus sets it aside, as it does with the bytes of streams.
const MaxBucketBytes = int64(1) << 30

// ProfilesKey is the key of the yard's own ground truth in BucketProfiles.
const ProfilesKey = "site"

// Bucket describes one key-value bucket. Each key has one writing service; it is changed by compare-and-swap.
type Bucket struct {
	Name   string
	Writer string
	Key    string
	Value  string
	Doc    string
	// Keep is how long a value stays after it was written last; 0: for good.
	Keep time.Duration
}

// Buckets is the table of buckets.
func Buckets() []Bucket {
	return []Bucket{
		{Name: BucketJobs, Writer: "admission", Key: "<job>", Value: "train.Job", Doc: "The register: the fold of each job's facts."},
		{Name: BucketNodes, Writer: "nodeagent", Key: "<node>", Value: "train.Node", Doc: "Inventory; seen_at is refreshed every few seconds and tells a live node from one that is gone."},
		{Name: BucketModels, Writer: "profiler", Key: "<job>", Value: "train.Model", Doc: "What was learned about a job."},
		{
			Name: BucketMeetings, Writer: "profiler", Key: "d<type of device, in hex>.v<driver, in hex>", Value: "curve.Meetings", Keep: 90 * 24 * time.Hour,
			Doc: "How fast jobs run alone and beside each other on a type of device with one version of its driver.",
		},
		{Name: BucketAttempts, Writer: "executor", Key: "<job>", Value: "train.Attempt", Doc: "The newest attempt of a job: the truth about its processes and the devices they hold."},
		{Name: BucketReports, Writer: "nodeagent", Key: "<job>.<attempt>", Value: "train.AttemptReport", Doc: "What training code said of an attempt."},
		{Name: BucketLedger, Writer: "energy", Key: "job.<job>, node.<node>, course.<job>, series.<node>, series-job.<job>", Value: "train.Account, energy.Book, train.Course, series.Counters, series.Story", Doc: "Accounts of jobs, and what each had used at the end of its epochs; the book of a node holds the last interval that was booked. Where the time series stand."},
		{
			Name: BucketHours, Writer: "energy", Key: "<node>.<month>.<day>.<hour>", Value: "energy.Book", Keep: 400 * 24 * time.Hour,
			Doc: "What was booked of a node in each hour (UTC; e.g. n1.2026-01.31.23): what energy reports are made from.",
		},
		{Name: BucketGroups, Writer: "planner", Key: "t<tenant, in hex>.<group>", Value: "recur.Record", Doc: "What the jobs of a recurring group cost, and those under way."},
		{Name: BucketPowerLimits, Writer: "planner", Key: "<job>", Value: "recur.Profile, a train.PowerLimit with more", Doc: "What each device of a live attempt shall draw at most, and what was measured to choose it."},
		{Name: BucketRates, Writer: "energy", Key: RatesKey, Value: "train.EnergyRates", Doc: "What energy costs and stands for now and later, by the tariff: by this the planner puts starts off."},
		{Name: BucketTunings, Writer: "planner", Key: "<node>.<kind of device>.<number>", Value: "tune.Record, a train.Tuning with more", Doc: "With which micro-batches the jobs on a shared device shall run, and what was measured to choose them."},
		{Name: BucketProbes, Writer: "planner", Key: "<node>", Value: "train.Pinglist", Doc: "Which flows the node's agent sends probes over, and whose paths it finds."},
		{Name: BucketPaths, Writer: "nodeagent", Key: "<node>", Value: "train.Paths", Doc: "What the agent found of the paths that it was asked for."},
		{Name: BucketLinks, Writer: "profiler", Key: "<link>", Value: "train.Link", Keep: time.Hour, Doc: "Links of the network that lose or delay packets, or did so a while ago."},
		{
			Name: BucketExperiments, Writer: "experiments", Key: "<experiment>", Value: "conduct.Record", Keep: 90 * 24 * time.Hour,
			Doc: "What is known of an experiment and what was decided: its trials with their epochs.",
		},
		{Name: BucketSettings, Writer: "experiments", Key: "<job>", Value: "train.Setting", Doc: "Under which system parameters the job of a trial shall run, and how far it may train for now."},
		{Name: BucketProfiles, Writer: "experiments", Key: ProfilesKey + ", or what a comparison is called", Value: "profile.Store", Doc: "The ground truth: what epochs of workloads cost under which system parameters, and how workloads are recognised."},
		{
			Name: BucketLeases, Writer: "whoever holds it", Key: "<service>", Value: "bus.Lease",
			Doc: "Which process of a service works while the others stand by. A key runs out when its holder does not renew it.",
		},
	}
}
