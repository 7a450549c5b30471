import { useEffect, useState } from "preact/hooks";
import { Refused, get, post, stream } from "./api";
import { isOver } from "./parts";
import type { About, Changes, Job, JobList, Moment, Node, Plan, Predicted, Records, Span } from "./types";

// Live says how fresh the page is: loading at first, live while changes arrive, away while the service does not answer,
// out if nobody is logged in.
export type Live = "loading" | "live" | "away" | "out";

interface Store {
  live: Live;
  problem: string;
  about?: About;
  jobs: Map<string, Job>;
  // order holds the jobs, the newest first. It is another array after each change.
  order: Job[];
  nodes: Node[];
  // looked is when the nodes were asked for, by the clock of the service. What they have not done is known until then.
  looked: number;
  plan?: Plan;
  // ahead is what to add to this machine's clock for that of the service, in milliseconds.
  ahead: number;
  notices: Notice[];
}

export interface Notice { id: number; text: string; bad: boolean }

export const store: Store = { live: "loading", problem: "", jobs: new Map(), order: [], nodes: [], looked: 0, ahead: 0, notices: [] };

const listeners = new Set<() => void>();
let drawing = 0;

// changed draws the page anew, once for all changes of a moment.
function changed() {
  drawing ||= requestAnimationFrame(() => {
    drawing = 0;
    for (const f of listeners) f();
  });
}

export function useStore(): Store {
  const [, draw] = useState(0);
  useEffect(() => {
    const f = () => draw((n) => n + 1);
    listeners.add(f);
    return () => void listeners.delete(f);
  }, []);
  return store;
}

// useNow draws anew every second.
export function useNow(): number {
  const [, draw] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => draw((n) => n + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  return now();
}

export const now = () => Date.now() + store.ahead;

export function notice(text: string, bad = false) {
  const id = Date.now() + Math.random();
  store.notices = [...store.notices, { id, text, bad }].slice(-4);
  changed();
  setTimeout(() => dismiss(id), bad ? 12_000 : 5_000);
}

export function dismiss(id: number) {
  store.notices = store.notices.filter((n) => n.id !== id);
  changed();
}

// act publishes a fact and says what came of it.
export async function act(path: string, body: unknown, said: string): Promise<boolean> {
  try {
    await post(path, body);
    notice(said);
    return true;
  } catch (err) {
    notice(words(err), true);
    return false;
  }
}

// may reports whether the person may do something to a job, by the table of permissions. The service has the last word.
export function may(what: string, job: { user?: string; tenant?: string }): boolean {
  const { person, may: scopes } = store.about ?? {}, scope = scopes?.[what];
  const own = person !== undefined && person.name !== "" && person.name === job.user;
  return scope === "all" || (scope === "own" && own) || (scope === "tenant's" && (own || (!!job.tenant && job.tenant === person?.tenant)));
}

export function words(err: unknown): string {
  if (!(err instanceof Refused)) return String(err);
  return err.fix ? `${err.message}: ${err.fix}` : err.message;
}

function sort() {
  store.order = [...store.jobs.values()].sort((x, y) => (x.submitted_at === y.submitted_at ? (x.id < y.id ? 1 : -1) : x.submitted_at < y.submitted_at ? 1 : -1));
}

// The jobs that have ended, as many as are held here; those that have not are all held.
const ended = 10_000;

// size is the number of jobs that are asked for at once: the service holds an answer in memory until it is sent.
const size = 2000;

// heard are the jobs that events tell about while a list is loaded, which is older than they are.
let heard = new Set<string>();

async function loadJobs(query: Record<string, string | number>) {
  let after = "";
  do {
    const { body } = await get<JobList>("/jobs", { ...query, limit: size, ...(after ? { after } : {}) });
    for (const j of body.jobs) if (!heard.has(j.id)) store.jobs.set(j.id, j);
    after = body.next ?? "";
  } while (after);
}

async function loadNodes() {
  const all: Node[] = [];
  const looked = now();
  let after = "";
  do {
    const { body } = await get<Records<Node>>("/nodes", after ? { after } : {});
    all.push(...body.items);
    after = body.next ?? "";
  } while (after);
  [store.nodes, store.looked] = [all, looked];
}

// loadPlan loads the newest plan, and predicts by it when jobs start and end, as the list of jobs does.
async function loadPlan() {
  const { body: plan } = await get<Plan>("/plan");
  store.plan = plan;
  predict();
}

const century = 100 * 365 * 24 * 3600;

function predict() {
  const plan = store.plan;
  if (!plan) return;
  const decided = Date.parse(plan.decided_at);
  const at = (seconds: number) => new Date(decided + 1000 * Math.min(seconds, century)).toISOString();
  const moment = (s?: Span, only = 0): Moment | undefined =>
    s ? { expected: at(s.expected), low: at(s.low), high: at(s.high) } : only > 0 ? { expected: at(only), low: at(only), high: at(only) } : undefined;
  for (const j of store.jobs.values()) j.predicted = undefined;
  for (const a of plan.allocations ?? []) foretell(a.job, { finish: moment(a.forecast?.finish, a.remaining_seconds) });
  for (const w of plan.waiting ?? []) foretell(w.job, { start: moment(w.forecast?.start, w.start_in_seconds), finish: moment(w.forecast?.finish) });
  sort();
}

function foretell(id: string, predicted: Predicted) {
  const j = store.jobs.get(id);
  if (j && !isOver(j.state)) j.predicted = predicted;
}

let source: EventSource | undefined;

// start loads everything and follows what changes, for ever.
export async function start(): Promise<void> {
  source?.close();
  try {
    const about = await get<About>("");
    store.about = about.body;
    store.ahead = Date.parse(about.body.now) - Date.now();
    const first = await get<JobList>("/jobs", { finished: 200, limit: size });
    store.jobs = new Map(first.body.jobs.map((j) => [j.id, j]));
    sort();
    await Promise.all([loadNodes(), loadPlan()]);
    heard = new Set();
    follow(first.position);
    await loadJobs({ finished: ended });
    sort();
    store.live = "live";
    store.problem = "";
  } catch (err) {
    failed(err);
  }
  changed();
}

function failed(err: unknown) {
  source?.close();
  store.live = err instanceof Refused && err.status === 401 ? "out" : "away";
  store.problem = words(err);
  if (store.live === "away") setTimeout(() => void start(), 2000);
  changed();
}

// leave shows how to log in if an error says that nobody is logged in any more.
export function leave(err: unknown) {
  if (err instanceof Refused && err.status === 401) failed(err);
}

// position is where the page stands among the changes.
let position = "";

function follow(since: string) {
  position = since;
  source?.close();
  if (document.hidden) return;
  source = stream(since);
  source.addEventListener("changed", (e) => {
    const { data, lastEventId } = e as MessageEvent<string>;
    position = lastEventId;
    apply(JSON.parse(data) as Changes);
  });
  source.addEventListener("reload", () => void start());
  source.onopen = () => {
    store.live = "live";
    changed();
  };
  source.onerror = () => {
    store.live = "away";
    changed();
    // A browser comes back by itself, and says where it was, unless it was refused.
    if (source?.readyState === EventSource.CLOSED) setTimeout(() => void start(), 1000);
  };
}

// rest closes the stream of a page that nobody sees, and goes on where it was once somebody does: all tabs of a browser
// share six connections to a service.
export function rest() {
  document.addEventListener("visibilitychange", () => {
    source?.close();
    if (!document.hidden && position && store.live !== "out") follow(position);
  });
}

function apply(c: Changes) {
  for (const j of c.jobs ?? []) store.jobs.set(j.id, j);
  for (const id of c.gone ?? []) store.jobs.delete(id);
  for (const id of [...(c.jobs ?? []).map((j) => j.id), ...(c.gone ?? [])]) heard.add(id);
  if (c.jobs || c.gone) sort();
  if (c.nodes) renewNodes();
  if (c.plan) renewPlan();
  changed();
}

// paced loads something again at most once in a time. What is asked for meanwhile is done afterwards.
function paced(load: () => Promise<void>, pause: number): () => void {
  let busy = false, again = false;
  const run = async () => {
    [busy, again] = [true, false];
    try {
      await load();
      changed();
    } catch (err) {
      leave(err); // the stream says if the service is away
    }
    setTimeout(() => {
      busy = false;
      if (again) void run();
    }, pause);
  };
  return () => {
    if (busy) again = true;
    else void run();
  };
}

const renewPlan = paced(loadPlan, 1000);
export const renewNodes = paced(loadNodes, 2000);
