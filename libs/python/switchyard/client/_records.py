"""What the API answers, and takes: one type for each schema of docs/openapi.json, from which `make generate` makes it."""

from __future__ import annotations

from typing import Any, Dict, List, Literal, TypedDict, Union


class _Person(TypedDict):
    name: str
    role: Literal["viewer", "user", "lead", "operator", "admin"]


class Person(_Person, total=False):
    """Person is the record of a person. People without one are users of the installation's own tenant."""

    tenant: str
    sequence: int


class _Tenant(TypedDict):
    name: str


class Tenant(_Tenant, total=False):
    """Tenant is the record of a tenant."""

    devices: int
    queued: int
    priority: int
    energy_kwh_per_month: float
    shares: float
    requests_per_minute: int
    sequence: int


class _About(TypedDict):
    bus: str
    version: str
    build: Build
    person: Person
    may: Dict[str, str]
    now: str


class About(_About, total=False):
    """About says which installation answers."""

    trouble: str


class _Accepted(TypedDict):
    subject: str


class Accepted(_Accepted, total=False):
    """Accepted says that a fact is stored."""

    repeat: bool


class Changes(TypedDict, total=False):
    """Changes names what has changed. A record that changed several times is named once."""

    jobs: List[ViewJob]
    gone: List[str]
    nodes: List[str]
    models: List[str]
    plan: int


class Link(TypedDict):
    """Link logs a person in to the page."""

    url: str
    until: str


class Login(TypedDict):
    """Login is what a person who follows a link sends."""

    token: str


class _Problem(TypedDict):
    title: str
    status: int
    detail: str


class Problem(_Problem, total=False):
    """Problem is the body of every answer that is no success, as RFC 9457 has it."""

    fix: str
    retry_after_seconds: int
    reasons: List[Reason]


class Uploaded(TypedDict, total=False):
    """Uploaded says that a folder is stored."""

    repeat: bool


class _AuditEntry(TypedDict):
    time: str
    who: str
    door: str
    fact: str
    entity: str
    id: str
    outcome: str


class AuditEntry(_AuditEntry, total=False):
    """AuditEntry is a request of a person or a role, and what became of it."""

    why: str


class _Book(TypedDict):
    node: str
    boot: str
    sequence: int
    to: str
    stream_sequence: int
    totals: Dict[str, Totals]
    methods: List[str]
    gap_seconds: float
    running: Dict[str, Account]


class Book(_Book, total=False):
    """Book holds the energy booked for one node. Intervals and their place in the stream are stored with one compare-and-swap, so its sums are exact however often an interval is delivered: for each component, Measured = Attributed + Idle + Unattributed."""

    co2e_g_per_kwh: float
    missing: int
    resets: int
    wall_uj: int
    owed_uj: int
    recent_uj: Dict[str, int]
    drawn_uw: Dict[str, int]
    owners: Dict[str, Owner]


class Budget(TypedDict, total=False):
    """Budget bounds an experiment; 0 is no bound. No new trial starts beyond it."""

    epochs: int
    hours: float


class _Build(TypedDict):
    version: str
    events: int
    records: int


class Build(_Build, total=False):
    """Build says which program a process runs, and which versions of facts and records it speaks."""

    commit: str
    committed_at: str
    modified: bool
    go: str
    platform: str


_ConditionWords = TypedDict("_ConditionWords", {"in": "List[Union[float, str]]"})


class Condition(_ConditionWords):
    """Condition restricts a parameter to trials in which an earlier one, a choice, has one of some values."""

    parameter: str


class _Constraint(TypedDict):
    metric: str


class Constraint(_Constraint, total=False):
    """Constraint bounds a metric."""

    min: float
    max: float


class _DeviceMinute(TypedDict):
    power_uw: int


class DeviceMinute(_DeviceMinute, total=False):
    """DeviceMinute is a device with a meter of its own in one minute."""

    sm_util_ratio: float
    memory_used_bytes: int
    limit_w: float


class _Experiment(TypedDict):
    name: str
    mode: Literal["v1", "v2", "pipetune"]
    job: Spec
    space: List[Parameter]
    objective: Objective
    search: SearchConfig
    concurrency: int


class Experiment(_Experiment, total=False):
    """Experiment is what a user asks for."""

    group: str
    constraints: List[Constraint]
    budget: Budget
    system: List[Factor]
    costs: List[str]
    profiles: str
    power: PowerMeter


class _ExperimentRecord(TypedDict):
    id: str
    experiment: Experiment
    hash: str
    state: Literal["running", "finished", "stopped", "rejected"]
    submitted_at: str


class ExperimentRecord(_ExperimentRecord, total=False):
    """ExperimentRecord is the whole state of an experiment. Every decision on it follows from this record."""

    message: str
    ended_at: str
    trials: List[Trial]
    recurs: Recurrence
    folded: Dict[str, int]
    told: bool


class _Factor(TypedDict):
    name: str
    values: List[float]


class Factor(_Factor, total=False):
    """Factor is a system parameter with its values, the default first."""

    fixed: bool
    at_start: bool


class Feature(TypedDict):
    """Feature is how one rate is scaled. Rates differ by factors, so their logarithm counts."""

    name: str
    median: float
    scale: float


class _GroundTruth(TypedDict):
    seed: int
    model: KindModel
    fitted: int


class GroundTruth(_GroundTruth, total=False):
    """GroundTruth holds the knowledge about the workloads of trials: their signatures, what their settings cost, and the model that distinguishes their kinds. It holds signatures rather than names of clusters, so a new model loses nothing."""

    entries: List[Workload]
    given: KindModel
    heard: List[LearntUpTo]


class Group(TypedDict, total=False):
    """Group holds what the jobs of a recurring group cost, and which of them are under way."""

    attempts: List[GroupAttempt]
    running: Dict[str, GroupChoice]
    limits_watts: Dict[str, Any]
    unlimited: Dict[str, Any]
    taken: Dict[str, Any]
    max_power_watts: float


class _GroupAttempt(TypedDict):
    batch_size: int
    limit_watts: float
    energy_joules: float
    seconds: float
    reached: bool


class GroupAttempt(_GroupAttempt, total=False):
    """GroupAttempt is one run of a recurring job that has ended."""

    epochs: int


class _GroupChoice(TypedDict):
    batch_size: int


class GroupChoice(_GroupChoice, total=False):
    """GroupChoice is how the next attempt of a recurring job is to run."""

    limit_watts: float
    max_cost_joules: float
    number: int


class GroupTotals(TypedDict):
    """GroupTotals adds up what the jobs of a group that reached their target used with one batch size."""

    jobs: int
    epochs: int
    energy_joules: float
    seconds: float


class KindCluster(TypedDict):
    """KindCluster is a kind of workload."""

    centre: Dict[str, float]
    threshold: float
    members: int


class KindModel(TypedDict):
    """KindModel distinguishes kinds of workloads."""

    features: List[Feature]
    clusters: List[KindCluster]


class LearntUpTo(TypedDict):
    """LearntUpTo is the attempt and the epoch up to which a training was learnt."""

    training: str
    attempt: int
    epoch: int


class MeasuredCost(TypedDict):
    """MeasuredCost is the mean cost of the epochs at one setting."""

    setting: SettingValues
    cost: float
    epochs: int


class MedianStopping(TypedDict, total=False):
    """MedianStopping is the rule of Google Vizier (KDD 2017): a running trial stops if its best score so far is below the median of the others' average up to the same epoch."""

    grace_epochs: int
    trials: int


class Minute(TypedDict):
    """Minute is what the meters of a node showed in one minute, as means over the time that they measured."""

    node: str
    at: str
    seconds: float
    node_uw: int
    devices: Dict[str, DeviceMinute]


class _Objective(TypedDict):
    metric: str


class Objective(_Objective, total=False):
    """Objective is what a search is for."""

    per: Literal["", "time", "energy"]
    minimise: bool


class _Owner(TypedDict):
    name: str


class Owner(_Owner, total=False):
    """Owner is the name, the user and the tenant of a job."""

    user: str
    tenant: str


class _Parameter(TypedDict):
    name: str
    kind: Literal["choice", "uniform", "log_uniform", "int", "log_int"]


class Parameter(_Parameter, total=False):
    """Parameter is one dimension of a search space."""

    values: List[Union[float, str]]
    low: float
    high: float
    when: Condition


class PowerMeter(TypedDict, total=False):
    """PowerMeter names nodes and the meter that each must have."""

    meter: str
    nodes: List[str]


class PowerWindow(TypedDict):
    """PowerWindow is what a device measured while it did the same work at one power limit."""

    limit_watts: float
    energy_joules: float
    seconds: float


class _Recurrence(TypedDict):
    of: str
    params: Dict[str, Union[float, str]]


class Recurrence(_Recurrence, total=False):
    """Recurrence is the result of an earlier experiment of the same group."""

    modelled: bool


class _SearchConfig(TypedDict):
    algorithm: Literal["random", "grid", "gp", "hyperband", "asha"]
    trials: int
    seed: int
    max_epochs: int


class SearchConfig(_SearchConfig, total=False):
    """SearchConfig says how to search."""

    sampler: Literal["random", "grid", "gp", "hyperband", "asha"]
    min_epochs: int
    reduction: int
    levels: int
    median_stopping: MedianStopping


class SettingValues(TypedDict):
    """SettingValues holds the value of each system parameter, more than 0."""

    pass


class Signature(TypedDict):
    """Signature is what was measured of a workload in an epoch: rates by name, for example events per second, shares of cores or bytes. What a node cannot measure is absent."""

    pass


class Suggestion(TypedDict, total=False):
    """Suggestion is where a search goes next."""

    params: Dict[str, Union[float, str]]
    over: bool


class _SuggestionRequest(TypedDict):
    space: List[Parameter]
    algorithm: Literal["random", "grid", "gp", "hyperband", "asha"]


class SuggestionRequest(_SuggestionRequest, total=False):
    """SuggestionRequest asks where a search goes next whose trials its client runs. A search has no memory, so the client tells all of it."""

    seed: int
    levels: int
    minimise: bool
    trials: List[ToldTrial]


class _ToldTrial(TypedDict):
    params: Dict[str, Union[float, str]]


class ToldTrial(_ToldTrial, total=False):
    """ToldTrial is what a client tells about a trial."""

    value: float
    failed: bool


class Totals(TypedDict):
    """Totals are the parts of a component's energy."""

    measured_uj: int
    attributed_uj: int
    idle_uj: int
    unattributed_uj: int


class _Trial(TypedDict):
    id: int
    job: str
    params: Dict[str, Union[float, str]]
    epochs: int
    state: Literal["running", "paused", "ended", "stopped", "failed"]
    decided_at: str
    settings: List[SettingValues]


class Trial(_Trial, total=False):
    """Trial is one training with its own values of the parameters."""

    reason: str
    run_at: str
    ended_at: str
    foreign: bool
    job_state: Literal["", "submitted", "queued", "starting", "profiling", "running", "preempting", "preempted", "recovering", "held", "paused", "succeeded", "failed", "cancelled", "rejected"]
    setting_after_epochs: int
    applied: List[Applied]
    failed: List[SettingValues]
    done: List[TrialEpoch]
    profile: TrialProfile
    spent_joules: float
    modelled: bool
    closed: bool
    learnt: int
    failures_learnt: int
    told_start: int
    told_end: str


class _TrialEpoch(TypedDict):
    epoch: int
    attempt: int
    at: str
    seconds: float


class TrialEpoch(_TrialEpoch, total=False):
    """TrialEpoch is an epoch that has ended."""

    devices: int
    joules: float
    metrics: Dict[str, float]
    paused: bool


class _TrialProfile(TypedDict):
    busy_cores: float


class TrialProfile(_TrialProfile, total=False):
    """TrialProfile is what nodes measured of a trial's job while it trained."""

    signature: Signature


class _Workload(TypedDict):
    workload: str
    default: SettingValues


class Workload(_Workload, total=False):
    """Workload holds the knowledge about one workload."""

    name: str
    kind: str
    batch_size: float
    unit: str
    measured: List[MeasuredCost]
    failed: List[SettingValues]
    signature: Signature


class _InterferenceRecord(TypedDict):
    device: str
    through: int
    known: Any


class InterferenceRecord(_InterferenceRecord, total=False):
    """InterferenceRecord holds what was measured of jobs that share one type of device in one environment."""

    under: str
    alone: List[Pace]
    open: List[Pace]


class _Kind(TypedDict):
    family: str


class Kind(_Kind, total=False):
    """Kind is a class of jobs that disturb others alike: a program, its batch per device, and its number of devices and nodes."""

    local_batch: int
    devices: int
    nodes: int


class _Pace(TypedDict):
    self: Kind
    step_seconds: float
    count: int


class Pace(_Pace, total=False):
    """Pace is the mean step time of jobs of a kind beside others, or alone if others is empty."""

    others: List[Kind]


class Board(TypedDict, total=False):
    """Board is the state of a GPU. Values its driver does not report are left out."""

    limit_w: float
    sm_util_ratio: float
    memory_used_bytes: int
    temperature_c: int
    throttle: List[str]


class Part(TypedDict, total=False):
    """Part is a line with a label, a table, or lines as they are."""

    label: str
    words: str
    header: List[str]
    rows: List[List[str]]
    text: str


class Section(TypedDict):
    """Section is a titled part of a text."""

    title: str
    parts: List[Part]


class Text(TypedDict):
    """Text is an explanation."""

    title: str
    sections: List[Section]


_SeenWords = TypedDict("_SeenWords", {"from": "str"})


class Seen(_SeenWords):
    """Seen is an observed path, by the names of the links that it crosses, each in its direction."""

    to: str
    links: List[str]


class EnergyOutlook(TypedDict):
    """EnergyOutlook is the energy that a run takes if its devices draw all the time what they draw at most."""

    joules: float
    low_joules: float
    high_joules: float


class File(TypedDict):
    """File is one file of a job."""

    path: str
    size_bytes: int
    changed_at: str


class _FileAnswer(TypedDict):
    folders: Folders


class FileAnswer(_FileAnswer, total=False):
    """FileAnswer is a list of files, or a piece of a file."""

    files: List[File]
    more: bool
    data: str
    size: int


class Folders(TypedDict, total=False):
    """Folders are a job's folders, as paths of its machine. A folder that does not exist is empty."""

    machine: str
    job: str
    output: str
    checkpoints: str
    work: str


class JobOutlook(TypedDict, total=False):
    """JobOutlook is what would become of a variant of a job."""

    policy: str
    devices: int
    priority: int
    share: bool
    refused: Reason
    allocation: Allocation
    waiting: Waiting
    predicted: Predicted
    before: List[str]
    holders: List[str]
    starts: List[str]
    moved: List[Move]
    shifted: List[Shift]
    shifted_more: int
    power_w: float
    energy: EnergyOutlook


class _LogChunk(TypedDict):
    data: str
    next: int
    size: int


class LogChunk(_LogChunk, total=False):
    """LogChunk is a piece of a job's output."""

    ended: bool
    cut: bool


class _Move(TypedDict):
    job: str


class Move(_Move, total=False):
    """Move is another allocation of a job."""

    places: List[TrainPart]
    reason: Reason


class Outlook(TypedDict, total=False):
    """Outlook is what the next plan would mean for one job, and for the others."""

    allocation: Allocation
    waiting: Waiting
    predicted: Predicted
    before: List[str]
    holders: List[str]
    starts: List[str]
    moved: List[Move]
    shifted: List[Shift]
    shifted_more: int
    power_w: float
    energy: EnergyOutlook


class OutlookAnswer(TypedDict):
    """OutlookAnswer is the answer of the planner."""

    decided_at: str
    outlooks: List[JobOutlook]


class _Rehearsal(TypedDict):
    job: Job


class Rehearsal(_Rehearsal, total=False):
    """Rehearsal is what would become of a job that is not submitted."""

    plan: Outlook
    rates: EnergyRates


class _Shift(TypedDict):
    job: str


class Shift(_Shift, total=False):
    """Shift is another predicted end of a job."""

    finish: Moment
    seconds: float


class _Account(TypedDict):
    job: str
    energy_uj: int
    methods: List[str]
    seconds: float
    epochs: int
    mean_uw: int
    peak_uw: int


class Account(_Account, total=False):
    """Account is the energy of one job in the ledger."""

    components_uj: Dict[str, int]
    idle_uj: int
    estimated_uj: int
    waste_uj: Dict[str, int]
    metering: Dict[str, Metering]
    gap_seconds: float
    samples: int
    joint_seconds: float
    joint_peak_uw: int
    to_target: EpochEnergy
    cost: float
    currency: str
    co2e_g: float
    final: bool


class _AdaptiveBatchSpec(TypedDict):
    max: int


class AdaptiveBatchSpec(_AdaptiveBatchSpec, total=False):
    """AdaptiveBatchSpec bounds the batches that the planner may choose for a job."""

    max_per_device: int
    min_per_device: int
    max_per_device_on: Dict[str, int]
    learning_rate: Literal["adascale", "sqrt", "linear", "none"]


class AfterSpec(TypedDict, total=False):
    """AfterSpec names jobs that must have ended before the job starts, by their ids. They must have been submitted before, so jobs cannot wait for each other."""

    ok: List[str]
    any: List[str]
    failed: List[str]


class AllReduce(TypedDict):
    """AllReduce is Pollux's step time (OSDI'21, section 3.2) in seconds. Compute is compute_fixed_seconds + compute_seconds_per_sample*batch. The network is local_base_seconds + local_seconds_per_worker*(n-2) on one node, or cross_base_seconds + cross_seconds_per_worker*(n-2) + cross_seconds_per_peer*(n/nodes-1) over several, where the last term is ours: workers of one node share its link. Both parts overlap by the exponent: (compute^overlap + network^overlap)^(1/overlap), from 1 (one after the other) to 10 (almost hidden)."""

    compute_fixed_seconds: float
    compute_seconds_per_sample: float
    local_base_seconds: float
    local_seconds_per_worker: float
    cross_base_seconds: float
    cross_seconds_per_worker: float
    cross_seconds_per_peer: float
    overlap: float


class _Allocation(TypedDict):
    job: str
    node: str
    devices: List[str]
    reason: Reason


class Allocation(_Allocation, total=False):
    """Allocation gives devices to a job: node and devices for a single node, parts for a gang over several nodes."""

    memory_bytes: int
    beside: str
    parts: List[TrainPart]
    servers: List[ServerPart]
    batch: Batch
    batch_choice: BatchChoice
    remaining_seconds: float
    forecast: Forecast


class _Applied(TypedDict):
    job: str
    attempt: int
    generation: int
    at: str


class Applied(_Applied, total=False):
    """Applied is a setting as applied to an attempt."""

    values: Dict[str, float]
    refused: Dict[str, str]
    restarts: List[str]


class _ArrayMember(TypedDict):
    array: str
    index: int
    count: int


class ArrayMember(_ArrayMember, total=False):
    """ArrayMember says which job of an array a job is. Admission sets it."""

    at_once: int


class _AttemptReport(TypedDict):
    job: str
    attempt: int
    epochs_done: int
    spoke: bool


class AttemptReport(_AttemptReport, total=False):
    """AttemptReport is what the node agent has heard of an attempt from the training code itself."""

    stop_answered: bool
    batch: Batch
    steps: Steps
    any_step: bool
    enlarged: bool
    ended: str
    output_read: bool
    checkpoint: str
    checkpoint_epochs: int
    checkpoint_step: int
    found_checkpoint: bool
    signal: str


class Batch(TypedDict, total=False):
    """Batch is how a gang forms its optimizer steps. The zero value leaves the batch as submitted."""

    global_batch: int
    local_batch: int
    accumulation: int


class _BatchChoice(TypedDict):
    reason: Reason


class BatchChoice(_BatchChoice, total=False):
    """BatchChoice says why a batch was chosen: what was predicted when it was decided."""

    options: List[BatchOption]


class _BatchOption(TypedDict):
    batch: Batch
    global_batch: int
    step_seconds: float


class BatchOption(_BatchOption, total=False):
    """BatchOption is a batch with what is predicted of it."""

    efficiency: float
    goodput: float
    chosen: bool


class _Change(TypedDict):
    at: str
    fact: str
    state: Literal["", "submitted", "queued", "starting", "profiling", "running", "preempting", "preempted", "recovering", "held", "paused", "succeeded", "failed", "cancelled", "rejected"]


class Change(_Change, total=False):
    """Change is one line of a job's allocation history."""

    attempt: int
    devices: List[str]
    epochs: int
    reason: str
    message: str


class _Config(TypedDict):
    workers: int
    nodes: int


class Config(_Config, total=False):
    """Config is a configuration of a job as far as its speed depends on it: the number of workers, nodes and parameter servers, and the samples per worker and step (zero: the job's typical number)."""

    servers: int
    local_batch: int


class _Convergence(TypedDict):
    b0: float
    b1: float
    b2: float
    scale: float
    points: int
    rmse: float


class Convergence(_Convergence, total=False):
    """Convergence predicts the training loss: Loss(k) = scale*(1/(B0*k+B1)+B2), k in epochs."""

    likely: List[Hyperbola]


class _Device(TypedDict):
    id: str
    kind: Literal["gpu", "cpu"]


_DeviceWords = TypedDict("_DeviceWords", {"class": "str"}, total=False)


class Device(_DeviceWords, _Device, total=False):
    """Device is what the planner allocates: whole, or by memory to jobs that share it."""

    model: str
    uuid: str
    driver: str
    memory_bytes: int
    idle_watts: float
    busy_watts: float
    core: int
    simulated: bool
    enforcement: Literal["none", "advisory", "mps", "mig", "whole"]
    resource: str
    units: int
    held_by: str
    pods: List[str]


class _Edited(TypedDict):
    at: str
    request: int


class Edited(_Edited, total=False):
    """Edited is a request to change a job's spec, and what became of it."""

    id: str
    by: str
    reason: str
    keys: List[KeyEdit]
    refused: List[Reason]


class _Efficiency(TypedDict):
    grad_var: float
    grad_sqr: float
    base_batch: int


class Efficiency(_Efficiency, total=False):
    """Efficiency is the statistical efficiency of larger batches, from the gradient noise at base_batch samples."""

    batch: int


class _EnergyProgress(TypedDict):
    job: str
    attempt: int
    epochs_done: int
    most_epochs: int
    marked_uj: int


class EnergyProgress(_EnergyProgress, total=False):
    """EnergyProgress is the energy of a job over its epochs."""

    samples: int
    epochs: List[EpochEnergy]
    target: EpochEnergy
    losses: List[Loss]
    earlier: Account


_EnergyRateWords = TypedDict("_EnergyRateWords", {"from": "str"})


class EnergyRate(_EnergyRateWords):
    """EnergyRate is the cost and carbon intensity of a kilowatt-hour from a time on; 0 if unknown."""

    grams_per_kwh: float
    price_per_kwh: float


class _EnergyRates(TypedDict):
    until: str


class EnergyRates(_EnergyRates, total=False):
    """EnergyRates are the current and forecast cost and carbon intensity of energy: each rate holds until the next one, the last one until until."""

    rates: List[EnergyRate]


class EnergySpec(TypedDict, total=False):
    """EnergySpec is the part of a submission about energy."""

    eta: float
    group: str
    batch_sizes: List[int]
    stop_early: bool
    target: TargetSpec
    start_by: str


class _EpochEnergy(TypedDict):
    attempt: int
    epochs_done: int
    at: str
    energy_uj: int


class EpochEnergy(_EpochEnergy, total=False):
    """EpochEnergy is the total energy a job had used when an epoch ended."""

    loss: float
    metrics: Dict[str, float]


class _Exclusion(TypedDict):
    node: str
    reason: Reason


class Exclusion(_Exclusion, total=False):
    """Exclusion keeps jobs off a node, or off some of its devices, until it ends."""

    devices: List[str]
    job: str
    leave: bool
    now: bool
    until: str


class _Exit(TypedDict):
    code: int


class Exit(_Exit, total=False):
    """Exit describes how the processes of an attempt ended."""

    signal: str
    forced: bool
    lost: bool
    log_tail: str
    message: str
    unstarted: bool
    reason: Reason


class Forecast(TypedDict, total=False):
    """Forecast is when a job starts and ends by a plan, in seconds after its decision. The truth lies between Low and High in eight of ten cases. A part is nil if it is unknown; a job that has devices has no start."""

    start: Span
    finish: Span


class Hyperbola(TypedDict):
    """Hyperbola is the normalised loss curve 1/(b0*k+b1)+b2 over epochs k, with no negative coefficient (Optimus, EuroSys'18, equation 1)."""

    b0: float
    b1: float
    b2: float


class _Job(TypedDict):
    id: str
    spec: Spec
    spec_hash: str
    state: Literal["", "submitted", "queued", "starting", "profiling", "running", "preempting", "preempted", "recovering", "held", "paused", "succeeded", "failed", "cancelled", "rejected"]
    since: str
    submitted_at: str
    attempt: int
    epochs_done: int
    restarts: int
    rescales: int
    preemptions: int
    recoveries: int
    run_seconds: float
    last_sequence: int


class Job(_Job, total=False):
    """Job is the register's record of one job: the fold of all its facts."""

    reason: str
    message: str
    hint: str
    blockers: List[Reason]
    infeasible: bool
    admitted_at: str
    started_at: str
    finished_at: str
    epoch_step: int
    epoch_steps: int
    began_again: int
    checkpoint: str
    retries: int
    devices: List[str]
    generation: int
    device_seconds: float
    attempt_started_at: str
    cancel_requested: bool
    after_ended: Dict[str, Literal["", "submitted", "queued", "starting", "profiling", "running", "preempting", "preempted", "recovering", "held", "paused", "succeeded", "failed", "cancelled", "rejected"]]
    ready_at: str
    wanted: Wanted
    requeued_at: str
    resumed: int
    tuned_batch_size: int
    submitted_batch_size: int
    own_batch_size: int
    outgrown: bool
    steps_too_large: bool
    converged_epochs: int
    overspent: str
    estimate_seconds: float
    priority_penalty: int
    first_predicted_finish: str
    first_predicted_low: str
    first_predicted_high: str
    predicted_finish: str
    exit_code: int
    log_tail: str
    warnings: List[str]
    seal: str
    edits: List[Edited]
    history: List[Change]


class _KeyEdit(TypedDict):
    key: str


class KeyEdit(_KeyEdit, total=False):
    """KeyEdit is a key of a spec that got another value."""

    before: str
    after: str


class _Kin(TypedDict):
    jobs: int
    config: Config
    epoch_seconds: Span


class Kin(_Kin, total=False):
    """Kin is how long jobs of one family ran."""

    step_seconds: float


class Loss(TypedDict):
    """Loss is energy whose work was lost when an attempt ended."""

    attempt: int
    energy_uj: int


class _Measured(TypedDict):
    workers: int
    nodes: int
    step_seconds: float
    weight: float


class Measured(_Measured, total=False):
    """Measured is the mean step time observed on one configuration."""

    servers: int
    local_batch: int
    error: float


class Memory(TypedDict):
    """Memory is the device memory of one worker: fixed_bytes + sample_bytes*batch."""

    fixed_bytes: float
    sample_bytes: float
    points: int
    error_bytes: float


class Metering(TypedDict):
    """Metering describes how one component of a job was measured."""

    methods: List[str]
    measured_seconds: float
    expected_seconds: float


class _Model(TypedDict):
    job: str
    speed: Speed
    epoch_config: Config
    epochs_seen: int
    steps_seen: float


class Model(_Model, total=False):
    """Model is all that is learned about one job. Every part may be missing."""

    convergence: Convergence
    efficiency: Efficiency
    memory: Memory
    ran: List[Ran]
    progress: float
    start_seconds: float
    epoch_seconds: float
    epoch_steps: float
    epoch_spread: float
    kin: Kin
    stragglers: List[Straggler]


class Moment(TypedDict):
    """Moment is a predicted time with its interval."""

    expected: str
    low: str
    high: str


class NotifySpec(TypedDict, total=False):
    """NotifySpec says who is notified when something happens to a job: one of webhook, mail and command."""

    on: List[Literal["ended", "failed", "silent", "preempted", "late"]]
    webhook: str
    mail: str
    command: str


class TrainOwner(TypedDict):
    """Owner is the data folder that a process of a node works in. Two processes with the name of one node and folders of their own would each undo what the other does."""

    id: str
    place: str


class _TrainPart(TypedDict):
    node: str
    devices: List[str]


class TrainPart(_TrainPart, total=False):
    """Part is the devices on one node of a gang."""

    memory_bytes: int


class _Plan(TypedDict):
    generation: int
    policy: str
    decided_at: str
    allocations: List[Allocation]


class Plan(_Plan, total=False):
    """Plan is the planner's whole decision: which job holds which devices, and why the others wait."""

    waiting: List[Waiting]
    power_budget_watts: float
    memory: str


class PortMapping(TypedDict):
    """PortMapping exposes a port of the job on its node."""

    node_port: int
    container_port: int


class Predicted(TypedDict, total=False):
    """Predicted is a Forecast by the clock. All views show this."""

    start: Moment
    finish: Moment


class ProgressSpec(TypedDict, total=False):
    """ProgressSpec says where a program writes how far it is. Give one of pattern, csv and tensorboard."""

    pattern: str
    csv: str
    tensorboard: str
    names: Dict[str, str]


class _Ran(TypedDict):
    workers: int
    nodes: int
    step_seconds: float
    sync_seconds: float


class Ran(_Ran, total=False):
    """Ran is what was measured on one configuration, whose LocalBatch is the samples of one pass."""

    servers: int
    local_batch: int
    model: str


class _Reason(TypedDict):
    code: str
    message: str


class Reason(_Reason, total=False):
    """Reason explains something about a job in a form for programs (code, CamelCase) and in words (message), with advice (hint)."""

    field: str
    hint: str


class ServerPart(TypedDict):
    """ServerPart is the parameter servers on one node."""

    node: str
    count: int


class _Servers(TypedDict):
    fixed_seconds: float
    seconds_per_share: float
    seconds_per_worker: float
    seconds_per_server: float


class Servers(_Servers, total=False):
    """Servers is Optimus's parameter-server model with p servers, w workers and m samples per worker. Synchronous: seconds per step = seconds_per_sample*m + fixed_seconds + seconds_per_share*w/p + seconds_per_worker*w + seconds_per_server*p (Optimus's t0..t4 with M/w = m). Asynchronous: the same without the batch, which Optimus takes as constant, and divided by w, since every worker pushes its own steps (fixed_seconds, seconds_per_share, seconds_per_worker, seconds_per_server are Optimus's t0..t3)."""

    seconds_per_sample: float


_ServersSpecWords = TypedDict("_ServersSpecWords", {"async": "bool"}, total=False)


class ServersSpec(_ServersSpecWords, total=False):
    """ServersSpec describes the parameter servers of a job. Each needs processors and memory of a node, but no device."""

    max: int
    cores: int
    memory_mib: int


class ShellSpec(TypedDict, total=False):
    """ShellSpec makes a job interactive: its command runs on a terminal of its node, to which people attach theirs."""

    key: str
    keep: bool
    idle: str


class Span(TypedDict):
    """Span is a prediction with the interval that the evidence allows: low <= expected <= high, all in one unit."""

    expected: float
    low: float
    high: float


class _Spec(TypedDict):
    name: str


_SpecWords = TypedDict("_SpecWords", {"continue": "str"}, total=False)


class Spec(_SpecWords, _Spec, total=False):
    """Spec is what a user asks for: the body of a submission."""

    family: str
    project: str
    labels: Dict[str, str]
    user: str
    tenant: str
    uid: int
    command: List[str]
    script_path: str
    image: str
    work_dir: str
    custom_dir: str
    snapshots_dir: str
    datasets_dir: str
    data_url: str
    upload: str
    env: Dict[str, str]
    secret_env: Dict[str, str]
    log_format: str
    progress: ProgressSpec
    shell: ShellSpec
    preempt: str
    checkpoint: str
    batch_size: int
    global_batch_size: int
    batch_per_device: bool
    adaptive_batch: AdaptiveBatchSpec
    training_set_size: int
    max_epochs: int
    max_steps: int
    stop: StopSpec
    single_device: bool
    allow_sharing: bool
    share_across_tenants: bool
    tune_effective_batch: bool
    disable_sharing: bool
    estimated_memory_mib: int
    estimated_hours: float
    cores: int
    main_memory_mib: int
    ports: List[PortMapping]
    priority: int
    devices: int
    device: Literal["gpu", "cpu"]
    gpu: str
    gpu_memory: str
    cpus: int
    memory: str
    min_devices: int
    max_devices: int
    node_labels: Dict[str, str]
    deadline: str
    after: AfterSpec
    array: str
    array_member: ArrayMember
    time_limit: str
    strategy: Literal["none", "all_reduce", "parameter_server"]
    parameter_servers: ServersSpec
    launch: Literal["per_node", "per_device"]
    max_restarts: int
    retries: int
    notify: List[NotifySpec]
    restart_silent: bool
    energy: EnergySpec


class _Speed(TypedDict):
    fit_error: float


class Speed(_Speed, total=False):
    """Speed predicts the time of one step on any configuration: the mean for a measured configuration, the fitted form for all others. libs/curve pulls each fit towards a stated prior, so that one measured configuration suffices for a prediction; RelativeError gives its uncertainty."""

    kind: Literal["all_reduce", "servers_sync", "servers_async"]
    all_reduce: AllReduce
    servers: Servers
    typical_batch: int
    measured: List[Measured]


class _Staging(TypedDict):
    url: str
    bytes: int


class Staging(_Staging, total=False):
    """Staging is how far the data of an attempt is on its way to the node."""

    total: int
    cached: bool


class _Steps(TypedDict):
    epoch: int
    done: int
    total: int


class Steps(_Steps, total=False):
    """Steps is how far training code is in an epoch, as its newest heartbeat says. The zero value means that the code has reported no steps."""

    of: int
    step_seconds: float
    at: str


class _StopSpec(TypedDict):
    loss_decrease: float


class StopSpec(_StopSpec, total=False):
    """StopSpec is the condition under which a training loss counts as converged. The job is then asked to stop and has succeeded."""

    epochs: int


class _Straggler(TypedDict):
    attempt: int
    rank: int
    node: str
    device: str
    slowdown: float


class Straggler(_Straggler, total=False):
    """Straggler is a worker that held up the others of its attempt."""

    told_at: str


class _TargetSpec(TypedDict):
    metric: str


class TargetSpec(_TargetSpec, total=False):
    """TargetSpec names a value that training code reports at an epoch's end, and its bound: give at_least or at_most."""

    at_least: float
    at_most: float


class _UnhealthyNode(TypedDict):
    node: str
    why: Literal["Silent", "Stalled", "ClockSkew"]


class UnhealthyNode(_UnhealthyNode, total=False):
    """UnhealthyNode is a node that is itself at fault: probes to it or from it say nothing about the links between."""

    behind_seconds: float


class _Waiting(TypedDict):
    job: str
    blockers: List[Reason]


class Waiting(_Waiting, total=False):
    """Waiting explains why a job got nothing."""

    start_in_seconds: float
    forecast: Forecast
    holders: List[str]


class _Wanted(TypedDict):
    state: Literal["run", "held", "paused", "cancelled"]
    at: str


class Wanted(_Wanted, total=False):
    """Wanted is what people want of a job: desired state, which the services follow whenever they see it."""

    force: bool
    leave: int
    by: str
    reason: str


class _Attempt(TypedDict):
    number: int
    node: str
    devices: List[str]
    phase: Literal["claimed", "running", "exited"]


class Attempt(_Attempt, total=False):
    """Attempt is an attempt without the hashes of its secrets."""

    memory_bytes: int
    parts: List[TrainPart]
    enforcement: Literal["none", "advisory", "mps", "mig", "whole"]
    stop: Literal["", "preempt", "rescale", "retune", "cancel", "converged", "wanted", "overspent", "time_limit", "silent"]
    stop_since: str
    started_at: str
    exited_at: str
    staging: Staging
    not_before: str
    exit: Exit
    outcome: Literal["", "succeeded", "failed", "cancelled", "preempted", "recovering"]


class _Detail(TypedDict):
    job: Job
    run_seconds: float


class Detail(_Detail, total=False):
    """Detail is all that is known about one job. What is missing is nil."""

    continued_by: List[str]
    continued_by_unknown: bool
    attempt: Attempt
    report: AttemptReport
    plan: ViewPlan
    beside: List[Neighbour]
    met: InterferenceRecord
    progress: float
    silent: Reason
    model: Model
    account: Account
    course: EnergyProgress
    tuning: Tuning
    batches: List[EpochBatch]
    submission: Spec
    experiment: str
    mounted: bool


__EnergyWords = TypedDict("__EnergyWords", {"from": "str"})


class _Energy(__EnergyWords):
    to: str
    methods: List[str]
    quotas: List[EnergyQuota]
    total: Spent
    days: List[Spent]
    nodes: List[Spent]
    users: List[Spent]
    jobs: List[Spent]


class Energy(_Energy, total=False):
    """Energy is what the nodes have spent, in three ways that each add up to the same."""

    power_budget_watts: float


class EnergyQuota(TypedDict):
    """EnergyQuota is what the jobs of a tenant may use in a month, and have used in it."""

    tenant: str
    month: str
    energy_kwh_per_month: float
    used_uj: int


class _Epoch(TypedDict):
    at: str
    attempt: int
    epochs_done: int
    devices: int


class Epoch(_Epoch, total=False):
    """Epoch is what a job reported at the end of an epoch."""

    epoch_seconds: float
    step_seconds: float
    steps: int
    samples: int
    loss: float
    metrics: Dict[str, float]
    grad_sqr: float
    grad_var: float
    memory_bytes: int
    batch: Batch
    batch_ignored: bool
    batches_since: str


class _EpochBatch(TypedDict):
    epoch: int
    devices: int
    batch: Batch


class EpochBatch(_EpochBatch, total=False):
    """EpochBatch is the batch of an epoch, as the code reported it."""

    efficiency: float


class _Epochs(TypedDict):
    epochs: List[Epoch]


class Epochs(_Epochs, total=False):
    """epochs are the epochs of a job in their order. An epoch that was trained again counts once, as it was last."""

    thinned: bool
    next: int


class _ViewExperiment(TypedDict):
    id: str
    name: str
    mode: Literal["v1", "v2", "pipetune"]
    algorithm: Literal["random", "grid", "gp", "hyperband", "asha"]
    state: Literal["running", "finished", "stopped", "rejected"]
    objective: str
    trials: int
    running: int
    joules: float
    submitted_at: str
    parameters: List[Parameter]
    max_epochs: int
    trial_list: List[ExperimentTrial]
    course: List[Improvement]


class ViewExperiment(_ViewExperiment, total=False):
    """Experiment is an experiment with its trials."""

    user: str
    message: str
    minimise: bool
    best: float
    modelled: bool
    ended_at: str
    best_trial: int
    rungs: List[Rung]


class _ExperimentLine(TypedDict):
    id: str
    name: str
    mode: Literal["v1", "v2", "pipetune"]
    algorithm: Literal["random", "grid", "gp", "hyperband", "asha"]
    state: Literal["running", "finished", "stopped", "rejected"]
    objective: str
    trials: int
    running: int
    joules: float
    submitted_at: str


class ExperimentLine(_ExperimentLine, total=False):
    """ExperimentLine is an experiment in a list."""

    user: str
    message: str
    minimise: bool
    best: float
    modelled: bool
    ended_at: str


class _ExperimentTrial(TypedDict):
    id: int
    job: str
    state: Literal["running", "paused", "ended", "stopped", "failed"]
    params: Dict[str, Union[float, str]]
    epochs: int
    seconds: float
    results: List[TrialResult]


class ExperimentTrial(_ExperimentTrial, total=False):
    """ExperimentTrial is a trial with its results."""

    reason: str
    setting: SettingValues
    value: float
    broken: bool
    joules: float


class _ViewForecast(TypedDict):
    at: str


class ViewForecast(_ViewForecast, total=False):
    """Forecast is what the plan of a time predicted of a job."""

    start: Moment
    finish: Moment


class _ViewGroup(TypedDict):
    group: str
    tenant: str
    recurrences: int
    batch_sizes: List[GroupBatch]
    attempts: List[ViewRecurrence]


class ViewGroup(_ViewGroup, total=False):
    """group is a group of recurring jobs, as its record shows it."""

    running: List[GroupJob]


class _GroupBatch(TypedDict):
    batch_size: int
    jobs: int
    energy_j: float
    seconds: float


class GroupBatch(_GroupBatch, total=False):
    """GroupBatch is the mean of the jobs that reached their target with a batch size."""

    limit_w: float


class GroupJob(TypedDict):
    """GroupJob is a running job with the batch size chosen for it."""

    job: str
    batch_size: int


class Held(TypedDict):
    """Held are records of jobs."""

    jobs: List[Job]


class _Holder(TypedDict):
    job: str
    places: List[TrainPart]


class Holder(_Holder, total=False):
    """Holder is a job that holds devices, until its predicted end."""

    finish: Moment


class Improvement(TypedDict):
    """Improvement is a result that was better than all before."""

    at: str
    seconds: float
    joules: float
    trial: int
    value: float


class _ViewJob(TypedDict):
    id: str
    name: str
    user: str
    state: Literal["", "submitted", "queued", "starting", "profiling", "running", "preempting", "preempted", "recovering", "held", "paused", "succeeded", "failed", "cancelled", "rejected"]
    reason: str
    message: str
    devices: List[str]
    min_devices: int
    epochs_done: int
    max_epochs: int
    run_seconds: float
    energy_uj: int
    energy_methods: List[str]
    submitted_at: str


class ViewJob(_ViewJob, total=False):
    """Job is one job of a list."""

    tenant: str
    project: str
    labels: Dict[str, str]
    array_member: ArrayMember
    experiment: str
    jobs: Dict[str, int]
    device: Literal["gpu", "cpu"]
    progress: float
    remaining_seconds: float
    start_in_seconds: float
    predicted: Predicted
    cost: float
    currency: str
    deadline: str
    estimated_hours: float
    tuning: Tuning
    started_at: str
    finished_at: str


class _KeptOff(TypedDict):
    job: str
    reason: Reason


class KeptOff(_KeptOff, total=False):
    """KeptOff is a job that is kept off bad links."""

    waits: bool


class Ledger(TypedDict):
    """Ledger is what energy reports are made of."""

    books: Dict[str, Book]
    jobs: List[Job]
    accounts: List[Account]
    groups: Dict[str, Group]


class Left(TypedDict):
    """Left counts the jobs that a query leaves out."""

    older: int
    others: int
    other_states: int
    unlike: int
    rejected: int
    trials: int


class Neighbour(TypedDict):
    """Neighbour is a job on the same device."""

    job: Job
    allocation: Allocation


class _NetEdge(TypedDict):
    id: str
    a: int
    b: int


class NetEdge(_NetEdge, total=False):
    """NetEdge is a link between two vertices, by their indices."""

    loss_ratio: float
    delay_seconds: float


class _NetLink(TypedDict):
    id: str
    kind: Literal["loss", "slow", "well"]
    loss_ratio: float
    confidence_ratio: float
    degraded: bool
    since: str
    probes: int
    flows: int


class NetLink(_NetLink, total=False):
    """NetLink is a link with the number of probed paths over it."""

    alike: List[str]
    delay_seconds: float


class NetVertex(TypedDict):
    """NetVertex is a node or a switch."""

    name: str
    tier: int


class _Network(TypedDict):
    nodes: int
    flows: int
    probed_links: int
    links: List[NetLink]
    ailing: List[UnhealthyNode]
    vertices: List[NetVertex]
    edges: List[NetEdge]
    kept_off: List[KeptOff]


class Network(_Network, total=False):
    """Network is the network as probes show it, and what follows from bad links."""

    judged_at: str


class _Node(TypedDict):
    id: str
    boot_id: str
    cores: int
    memory_bytes: int
    devices: List[Device]
    job_api: str
    seen_at: str
    exclusions: List[Exclusion]
    jobs: List[NodeJob]


class Node(_Node, total=False):
    """Node is a node, what keeps jobs off it, and what is on it."""

    backend: Literal["", "kubernetes"]
    machine: str
    owner: TrainOwner
    version: str
    name: str
    labels: Dict[str, str]
    container_runtime: str
    job_api_socket: str
    mps_dir: str
    meters: List[str]
    meter_troubles: Dict[str, str]
    disk_trouble: str
    probe_addresses: List[str]
    reports_waiting: int
    orders_sequence: int
    power: NodePower


class _NodeJob(TypedDict):
    id: str
    devices: List[str]
    state: Literal["", "submitted", "queued", "starting", "profiling", "running", "preempting", "preempted", "recovering", "held", "paused", "succeeded", "failed", "cancelled", "rejected"]
    epochs_done: int
    max_epochs: int
    mean_uw: int
    power_methods: List[str]


class NodeJob(_NodeJob, total=False):
    """NodeJob is a job that holds devices of a node."""

    predicted: Predicted
    memory_bytes: int
    memory_used_bytes: int
    processors_busy: float
    gpus_busy: float


class _NodePower(TypedDict):
    node_uw: int
    devices_uw: Dict[str, int]
    methods: List[str]


class NodePower(_NodePower, total=False):
    """NodePower is the power of a node."""

    boards: Dict[str, Board]


class _Page(TypedDict):
    jobs: List[ViewJob]
    left: Left


class Page(_Page, total=False):
    """Page is a part of a list of jobs."""

    next: str


class _ViewPlan(TypedDict):
    generation: int
    policy: str
    decided_at: str


class ViewPlan(_ViewPlan, total=False):
    """Plan is the part of the newest plan about a job: its allocation, or its position in the queue."""

    allocation: Allocation
    waiting: Waiting
    position: int
    queue: int
    predicted: Predicted
    holders: List[Holder]


class _Probed(TypedDict):
    nodes: int
    flows: int
    probed_links: int
    links: List[NetLink]
    ailing: List[UnhealthyNode]
    ways: List[Seen]


class Probed(_Probed, total=False):
    """Probed is what probes say about the network, whole: with links that never had trouble."""

    judged_at: str


class _RecordsPerson(TypedDict):
    items: List[Person]


class RecordsPerson(_RecordsPerson, total=False):
    """Records is a part of a list of records."""

    next: str


class _RecordsTenant(TypedDict):
    items: List[Tenant]


class RecordsTenant(_RecordsTenant, total=False):
    """Records is a part of a list of records."""

    next: str


class _RecordsModel(TypedDict):
    items: List[Model]


class RecordsModel(_RecordsModel, total=False):
    """Records is a part of a list of records."""

    next: str


class _RecordsNode(TypedDict):
    items: List[Node]


class RecordsNode(_RecordsNode, total=False):
    """Records is a part of a list of records."""

    next: str


class _ViewRecurrence(TypedDict):
    recurrence: int
    batch_size: int
    limit_watts: float
    energy_joules: float
    seconds: float
    reached: bool


class ViewRecurrence(_ViewRecurrence, total=False):
    """recurrence is a job that has ended. A job that missed its target belongs to the recurrence of the next job that reached it."""

    epochs: int


class _Rung(TypedDict):
    epochs: int
    reached: int
    went_on: int


class Rung(_Rung, total=False):
    """Rung is a number of epochs at which trials are compared."""

    best: float


class _Spent(TypedDict):
    key: str
    active_uj: int


class Spent(_Spent, total=False):
    """Spent is the energy of a day, a node, a user or a job."""

    name: str
    idle_uj: int
    unattributed_uj: int
    co2e_g: float


class _Standing(TypedDict):
    job: Job


class Standing(_Standing, total=False):
    """Standing is where a job stands now."""

    home: str
    pods: bool
    namespace: str
    terminal: str
    plan: ViewPlan


class _TrialResult(TypedDict):
    epoch: int
    at: str
    seconds: float
    value: float


class TrialResult(_TrialResult, total=False):
    """TrialResult is the objective after an epoch."""

    joules: float
    broken: bool


class _Tuning(TypedDict):
    micro_batch: int
    accumulation: int
    generation: int
    trials: int
    beside: List[str]


class Tuning(_Tuning, total=False):
    """Tuning is the micro-batch of a job that shares its device, and the reason for it."""

    settled: Reason
