package contract

import (
	"time"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/curve"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// The buckets. The ledger holds records of six types, each under a key prefix of its own. PowerLimits and Tunings are
// the parts of the planner's records PowerProfiles and TuningRounds that node agents read.
const (
	Jobs           Bucket[train.Job]                = "jobs"
	Nodes          Bucket[train.Node]               = "nodes"
	Conditions     Bucket[train.NodeCondition]      = "conditions"
	Eligibility    Bucket[train.Eligibility]        = "eligibility"
	Models         Bucket[train.Model]              = "models"
	Interference   Bucket[curve.InterferenceRecord] = "meetings"
	Attempts       Bucket[train.Attempt]            = "attempts"
	Executors      Bucket[ExecutorOwner]            = "executors"
	Reports        Bucket[train.AttemptReport]      = "reports"
	Accounts       Bucket[train.Account]            = "ledger"
	EnergyProgress Bucket[train.EnergyProgress]     = "ledger"
	Books          Bucket[Book]                     = "ledger"
	Closings       Bucket[Closing]                  = "ledger"
	Spendings      Bucket[Spending]                 = "ledger"
	SeriesNodes    Bucket[NodeSeries]               = "ledger"
	SeriesJobs     Bucket[JobSeries]                = "ledger"
	Hours          Bucket[Book]                     = "hours"
	Minutes        Bucket[Minute]                   = "minutes"
	Groups         Bucket[Group]                    = "groups"
	PowerProfiles  Bucket[PowerProfile]             = "power_limits"
	PowerLimits    Bucket[train.PowerLimit]         = "power_limits"
	Rates          Bucket[train.EnergyRates]        = "rates"
	TuningRounds   Bucket[TuningRound]              = "tunings"
	Tunings        Bucket[train.Tuning]             = "tunings"
	PlacedPods     Bucket[train.PlacedPod]          = "pods"
	Probes         Bucket[train.Pinglist]           = "probes"
	Paths          Bucket[train.Paths]              = "paths"
	Links          Bucket[train.Link]               = "links"
	Experiments    Bucket[ExperimentRecord]         = "experiments"
	Settings       Bucket[train.Setting]            = "settings"
	Profiles       Bucket[GroundTruth]              = "profiles"
	Notices        Bucket[train.Notices]            = "notices"
	Users          Bucket[access.Person]            = "users"
	Tenants        Bucket[access.Tenant]            = "tenants"
	Usages         Bucket[Usage]                    = "usage"
	Leases         Bucket[Lease]                    = "leases"
)

// The services that write and read records.
const (
	admission   = "admission"
	profiler    = "profiler"
	planner     = "planner"
	executor    = "executor"
	nodeagent   = "nodeagent"
	energy      = "energy"
	experiments = "experiments"
	web         = "web"
)

// Holder is the writer of a lease: the service whose name is the key.
const Holder = "the holder"

// Buckets is the table of buckets.
func Buckets() []BucketInfo {
	const day = 24 * time.Hour
	return []BucketInfo{
		{
			Name: string(Jobs), Doc: "The register: the fold of each job's facts.", Made: Folded, Loss: "jobs whose submission has left JOBS (30 days), unless a snapshot has them",
			Records: []Record{
				record(Jobs, "Jobs", "<job>", admission, "A job: its submission, its state and the fold of its facts.",
					planner, executor, profiler, nodeagent, energy, web),
			},
		},
		{
			Name: string(Nodes), Doc: "Inventory of the nodes.", Made: Observed, Loss: "nothing: each agent writes its node within seconds",
			Records: []Record{
				record(Nodes, "Nodes", "<node>", nodeagent,
					"A node and its devices. seen_at is refreshed every few seconds and distinguishes a live node from a lost one. The planner deletes the record of a lost node that an operator removes.",
					admission, planner, executor, profiler, energy, experiments, web),
			},
		},
		{
			Name: string(Conditions), Doc: "The nodes as their cluster manager sees them.", Made: Observed, Loss: "nothing: the cluster is asked",
			Records: []Record{
				record(Conditions, "Conditions", "<node>", executor,
					"Whether Kubernetes would start a pod of a job on a node: cordon, taints, readiness. Nodes of other back ends have none.", planner, web),
			},
		},
		{
			Name: string(Eligibility), Doc: "What keeps jobs off nodes and devices.", Made: Restored, Loss: "orders of operators since the snapshot",
			Records: []Record{
				record(Eligibility, "Eligibility", "<node>", planner,
					"The orders of operators about a node and its devices, and what is set aside after losses.", web),
			},
		},
		{
			Name: string(Models), Doc: "The model learned of each job.", Made: Restored, Loss: "predictions of jobs since the snapshot; epochs to come are learned from",
			Records: []Record{
				record(Models, "Models", "<job>", profiler,
					"The fitted convergence and speed of a job, and the predictions that follow.", planner, web),
			},
		},
		{
			Name: string(Interference), Keep: 90 * day, Doc: "Interference between jobs that share a device.", Made: Restored, Loss: "measurements since the snapshot",
			Records: []Record{
				record(Interference, "Interference", "d<type of device, in hex>.v<driver, in hex>", profiler,
					"How fast jobs run alone and beside each other on a type of device with one version of its driver.", planner, web),
			},
		},
		{
			Name: string(Attempts), Doc: "The newest attempt of each job.", Made: Observed, Loss: "nothing of what runs: the executor has the attempts in memory, and finds them again by the files of their supervisors and their facts in JOBS",
			Records: []Record{
				record(Attempts, "Attempts", "<job>", executor,
					"The truth about the processes of a job and the devices they hold.", planner, nodeagent, admission, web),
			},
		},
		{
			Name: string(Executors), Doc: "Whose executor acts for each machine.", Made: Observed, Loss: "nothing: each executor writes its record within seconds",
			Records: []Record{
				record(Executors, "Executors", "<node>", executor,
					"The data folder whose executor acts for a machine. Another executor of the same name stands by while this record is fresh."),
			},
		},
		{
			Name: string(Reports), Doc: "Reports of training code about each attempt.", Made: Restored, Loss: "the steps and the last answer of an attempt, until its code reports again",
			Records: []Record{
				record(Reports, "Reports", "<job>.<attempt>", nodeagent,
					"Steps, epochs, checkpoints and the answer to a request to stop.", planner, executor, admission, web),
			},
		},
		ledger(),
		{
			Name: string(Hours), Keep: 400 * day, Doc: "The energy booked of each node in each hour, for energy reports.", Made: Restored, Loss: "the energy of the hours since the snapshot, in reports",
			Records: []Record{
				record(Hours, "Hours", "<node>.<month>.<day>.<hour>", energy,
					"The book of an hour, in UTC, for example n1.2026-01.31.23.", web),
			},
		},
		{
			Name: string(Minutes), Keep: 2 * day, Doc: "What the meters of each node showed in each minute, for a look back.", Made: Observed, Loss: "the last two days of the page's look back",
			Records: []Record{
				record(Minutes, "Minutes", "<node>.<month>.<day>.<hour>.<minute>", energy,
					"The mean power of a node in a minute, in UTC, and the state of its devices, for example n1.2026-01.31.23.59.", web),
			},
		},
		{
			Name: string(Groups), Doc: "Recurring groups of jobs.", Made: Restored, Loss: "the costs of recurring jobs that ended since the snapshot",
			Records: []Record{
				record(Groups, "Groups", "t<tenant, in hex>.<group>", planner,
					"The costs of the jobs of a group, and its running jobs.", web),
			},
		},
		{
			Name: string(PowerProfiles), Doc: "Desired power limits.", Made: Restored, Loss: "measurements since the snapshot: they are made again",
			Records: []Record{
				record(PowerProfiles, "PowerProfiles", "<job>", planner,
					"The power limit of each device of a live attempt, and the measurements behind it."),
				record(PowerLimits, "PowerLimits", "<job>", planner,
					"The limit alone: the part of the same record that agents read.", nodeagent),
			},
		},
		{
			Name: string(Rates), Doc: "The price of energy.", Made: Observed, Loss: "nothing: the tariff is read",
			Records: []Record{
				record(Rates, "Rates", RatesKey, energy,
					"Current and forecast cost and carbon intensity of energy, by the tariff. The planner defers starts by them.", planner),
			},
		},
		{
			Name: string(TuningRounds), Doc: "Desired micro-batches of jobs that share a device.", Made: Restored, Loss: "measurements since the snapshot: they are made again",
			Records: []Record{
				record(TuningRounds, "TuningRounds", "<node>.<kind of device>.<number>", planner,
					"The desired micro-batches on a device, and the measurements behind them."),
				record(Tunings, "Tunings", "<node>.<kind of device>.<number>", planner,
					"The micro-batches alone: the part of the same record that agents read.", nodeagent, web),
			},
		},
		{
			Name: string(PlacedPods), Doc: "Pods of no job that have memory of a GPU.", Made: Observed, Loss: "which GPUs may be shared with such pods until they end: their GPUs count as held",
			Records: []Record{
				record(PlacedPods, "PlacedPods", "<uid of the pod>", planner,
					"The memory of a GPU that is booked for a pod, from the decision until the pod has ended.", profiler, nodeagent),
			},
		},
		{
			Name: string(Probes), Doc: "Desired network probes.", Made: Observed, Loss: "nothing: the planner chooses the paths again",
			Records: []Record{
				record(Probes, "Probes", "<node>", planner,
					"The flows that a node's agent probes, and those whose paths it finds.", profiler, nodeagent, web),
			},
		},
		{
			Name: string(Paths), Doc: "Paths through the network.", Made: Observed, Loss: "nothing: the agents find them again",
			Records: []Record{
				record(Paths, "Paths", "<node>", nodeagent, "The paths that the agent of a node found.", planner),
			},
		},
		{
			Name: string(Links), Keep: time.Hour, Doc: "Bad links of the network.", Made: Observed, Loss: "links that recovered within the hour",
			Records: []Record{
				record(Links, "Links", "<link>", profiler,
					"A link that loses or delays packets, or did so recently.", planner, web),
			},
		},
		{
			Name: string(Experiments), Keep: 90 * day, Doc: "Searches for hyper-parameters.", Made: Restored, Loss: "decisions of experiments since the snapshot",
			Records: []Record{
				record(Experiments, "Experiments", "<experiment>", experiments,
					"The state of an experiment and its decisions: its trials with their epochs.", admission, web),
			},
		},
		{
			Name: string(Settings), Doc: "Desired system parameters of trials.", Made: Restored, Loss: "the wishes since the snapshot: experiments write them again",
			Records: []Record{
				record(Settings, "Settings", "<job>", experiments,
					"The desired system parameters of a trial's job, and how far it may train for now.",
					planner, executor, nodeagent),
			},
		},
		{
			Name: string(Profiles), Doc: "The ground truth of tuning.", Made: Restored, Loss: "what was learned of workloads since the snapshot",
			Records: []Record{
				record(Profiles, "Profiles", "<"+ProfilesKey+", or the name of a comparison>", experiments,
					"The costs of epochs of workloads under system parameters, and how workloads are recognised. "+
						"`switchyard tune` also imports into it.", web),
			},
		},
		{
			Name: string(Notices), Doc: "The notices about jobs that people got.", Made: Restored, Loss: "which notices were sent since the snapshot: those are sent again",
			Records: []Record{
				record(Notices, "Notices", "<job>", admission, "The notices about a job that were delivered or given up."),
			},
		},
		{
			Name: string(Users), Doc: "The roles and tenants of people.", Made: Restored, Loss: "roles given since the snapshot",
			Records: []Record{
				record(Users, "Users", "<user, with = for .>", admission, "The role and the tenant of a person. Those without a record are users.", web),
			},
		},
		{
			Name: string(Tenants), Doc: "The bounds of tenants.", Made: Restored, Loss: "bounds set since the snapshot",
			Records: []Record{
				record(Tenants, "Tenants", "<tenant, with = for .>", admission, "What the jobs of a tenant may take together.", planner, energy, web),
			},
		},
		{
			Name: string(Usages), Doc: "The device time that tenants have used.", Made: Restored, Loss: "what tenants have used since the snapshot: fair shares begin with less",
			Records: []Record{
				record(Usages, "Usages", UsageKey, planner, "The device time of each tenant, which counts half after each half-life."),
			},
		},
		{
			Name: string(Leases), Doc: "Leadership: one process of each service works while the others stand by.", Made: Observed, Loss: "nothing: each service takes its lease again",
			Records: []Record{
				record(Leases, "Leases", "<service>", Holder,
					"The holder of the lease. The key expires unless its holder renews it."),
			},
		},
	}
}

func ledger() BucketInfo {
	doc := "The energy ledger. It holds records of seven types, each under keys of its own."
	loss := "energy accounted since the snapshot, beyond what its stream ENERGY still has"
	return BucketInfo{Name: string(Accounts), Doc: doc, Made: Restored, Loss: loss, Records: []Record{
		record(Accounts, "Accounts", "job.<job>", energy,
			"The account of a job: the energy attributed to it.", planner, experiments, web),
		record(EnergyProgress, "EnergyProgress", "course.<job>", energy,
			"The energy a job had used at the end of each of its epochs.", planner, experiments, web),
		record(Books, "Books", "node.<node>", energy, "The book of a node, up to the last interval booked."),
		record(Closings, "Closings", ClosingKey, energy, "The accounts that are being closed."),
		record(Spendings, "Spendings", "tenant.<tenant, with = for .>", energy,
			"The energy that the jobs of a tenant have used in a month, for tenants with a quota of energy.", planner, web),
		record(SeriesNodes, "SeriesNodes", "series.<node>", energy, "How far the time series of a node are written."),
		record(SeriesJobs, "SeriesJobs", "series-job.<job>", energy, "How far the time series of a job are written."),
	}}
}
