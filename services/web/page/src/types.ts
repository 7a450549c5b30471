// What the page uses of the API that docs/openapi.json describes.

export interface Problem { title: string; status: number; detail: string; fix?: string; reasons?: Reason[]; retry_after_seconds?: number }
export interface Reason { code: string; field?: string; message: string; hint?: string }
export interface Person { name: string; role: string; tenant?: string }
export interface About { bus: string; version: string; person: Person; may: Record<string, "no" | "own" | "tenant's" | "all">; now: string; trouble?: string }

export interface Moment { expected: string; low: string; high: string }
export interface Predicted { start?: Moment; finish?: Moment }
export interface Span { expected: number; low: number; high: number }

export interface Job {
  id: string; name: string; user: string; tenant?: string; experiment?: string; project?: string; labels?: Record<string, string>;
  state: string; reason: string; message: string; devices: string[]; min_devices: number; device?: string;
  epochs_done: number; max_epochs: number; progress?: number; predicted?: Predicted;
  run_seconds: number; energy_uj: number; energy_methods: string[]; cost?: number; currency?: string; deadline?: string; estimated_hours?: number; jobs?: Record<string, number>; array_member?: { array: string; index: number };
  submitted_at: string; started_at?: string; finished_at?: string;
}
export interface JobList { jobs: Job[]; next?: string }

export interface Board { limit_w?: number; sm_util_ratio?: number; memory_used_bytes?: number; temperature_c?: number; throttle?: string[] }
export interface Device { id: string; kind: string; model?: string; memory_bytes?: number; busy_watts?: number; simulated?: boolean; held_by?: string }
export interface Exclusion { node: string; devices?: string[]; job?: string; reason: Reason; until?: string }
export interface NodeJob {
  id: string; devices: string[]; state: string; memory_bytes?: number; processors_busy?: number; gpus_busy?: number; memory_used_bytes?: number;
  mean_uw: number; power_methods: string[]; predicted?: Predicted;
}
export interface Node {
  id: string; name?: string; cores: number; memory_bytes: number; devices: Device[]; seen_at: string; backend?: string;
  meters?: string[]; meter_troubles?: Record<string, string>; disk_trouble?: string; reports_waiting?: number;
  exclusions: Exclusion[]; jobs: NodeJob[];
  power?: { node_uw: number; devices_uw: Record<string, number>; methods: string[]; boards?: Record<string, Board> };
}
export interface Records<T> { items: T[]; next?: string }

export interface Place { node: string; devices: string[] }
export interface Allocation { job: string; node: string; devices: string[]; parts?: Place[]; reason: Reason; remaining_seconds?: number; forecast?: { start?: Span; finish?: Span } }
export interface Waiting { job: string; blockers: Reason[]; start_in_seconds?: number; forecast?: { start?: Span; finish?: Span }; holders?: string[] }
export interface Plan { generation: number; policy: string; decided_at: string; allocations: Allocation[] | null; waiting?: Waiting[] }

export interface Minute {
  node: string; at: string; seconds: number; node_uw: number;
  devices: Record<string, { power_uw: number; sm_util_ratio?: number; memory_used_bytes?: number; limit_w?: number }>;
}

export interface Change { at: string; fact: string; state: string; attempt?: number; devices?: string[]; epochs?: number; reason?: string; message?: string }
export interface JobRecord {
  id: string; state: string; reason: string; message: string; hint?: string; attempt: number; devices?: string[];
  spec: Record<string, unknown> & { name?: string; user?: string; tenant?: string; array?: string; priority?: number; max_epochs?: number };
  history?: Change[]; submitted_at: string; started_at?: string; finished_at?: string; since?: string; energy_uj?: number;
}
export interface Epoch { at: string; epochs_done: number; loss?: number; metrics?: Record<string, number> }
export interface EpochEnergy { attempt: number; epochs_done: number; at: string; energy_uj: number }
export interface Model { convergence?: { b0: number; b1: number; b2: number; scale: number; points: number; rmse: number; likely?: { b0: number; b1: number; b2: number }[] } }
export interface Detail {
  job: JobRecord; run_seconds: number; progress?: number; plan?: { predicted?: Predicted; allocation?: Allocation; waiting?: Waiting };
  model?: Model; course?: { epochs?: EpochEnergy[] }; account?: { energy_uj: number; mean_uw: number; cost?: number; currency?: string; co2e_g?: number }; submission?: Record<string, unknown>; experiment?: string;
  report?: { spoke: boolean; signal?: string };
}
export interface Standing { job: JobRecord; home?: string }
export interface Spent { key: string; name?: string; active_uj: number; idle_uj?: number; unattributed_uj?: number; co2e_g?: number }
export interface EnergyQuota { tenant: string; month: string; energy_kwh_per_month: number; used_uj: number }
export interface Energy { from: string; to: string; methods: string[] | null; power_budget_watts?: number; quotas: EnergyQuota[]; total: Spent; days: Spent[]; nodes: Spent[]; users: Spent[]; jobs: Spent[] }
export interface Outlook {
  policy?: string; devices?: number; priority?: number; share?: boolean; refused?: Reason;
  allocation?: Allocation; waiting?: Waiting; predicted?: Predicted; holders?: string[]; power_w?: number;
  energy?: { joules: number; low_joules: number; high_joules: number };
  starts?: string[];
  moved?: { job: string; places?: Place[]; reason?: Reason }[];
  shifted?: { job: string; finish?: Moment; seconds?: number }[]; shifted_more?: number;
}
export interface OutlookAnswer { decided_at: string; outlooks: Outlook[] }
export interface ExperimentLine {
  id: string; name: string; user?: string; mode: string; algorithm: string; state: string; message?: string; objective: string; minimise?: boolean;
  trials: number; running: number; best?: number; joules: number; modelled?: boolean; submitted_at: string; ended_at?: string;
}
export interface TrialResult { epoch: number; at: string; seconds: number; joules?: number; value: number; broken?: boolean }
export interface Trial {
  id: number; job: string; state: string; reason?: string; params: Record<string, string | number>; epochs: number; value?: number; broken?: boolean;
  seconds: number; joules?: number; results: TrialResult[];
}
export interface Experiment extends ExperimentLine {
  parameters: { name: string; kind: string }[]; max_epochs: number; best_trial?: number; trial_list: Trial[];
  rungs?: { epochs: number; reached: number; went_on: number; best?: number }[];
  course: { at: string; seconds: number; joules: number; trial: number; value: number }[];
}
export interface NetLink {
  id: string; alike?: string[]; kind: string; loss_ratio: number; delay_seconds?: number; confidence_ratio: number; degraded: boolean; since: string; flows: number;
}
export interface Network {
  nodes: number; flows: number; probed_links: number; links: NetLink[]; ailing: { node: string; why: string }[]; judged_at?: string;
  vertices: { name: string; tier: number }[]; edges: { id: string; a: number; b: number; loss_ratio?: number; delay_seconds?: number }[];
  kept_off: { job: string; waits?: boolean; reason: Reason }[];
}
export interface Forecast extends Predicted { at: string }
export interface FileList { folders: Record<string, string>; files?: { path: string; size_bytes: number; changed_at: string }[]; more?: boolean; data?: string; size?: number }
export interface LogChunk { data: string | null; next: number; size: number; ended?: boolean; cut?: boolean }
export interface Changes { jobs?: Job[]; gone?: string[]; nodes?: string[]; models?: string[]; plan?: number }

export interface Part { label?: string; words?: string; header?: string[]; rows?: string[][]; text?: string }
export interface Section { title: string; parts: Part[] | null }
export interface Explanation { title: string; sections: Section[] }
