import { useEffect, useState } from "preact/hooks";
import { Refused, get, post, stream } from "./api";
import type { About, Changes, Job, JobList, Node, Plan, Records } from "./types";

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
  plan?: Plan;
  // ahead is what to add to this machine's clock for that of the service, in milliseconds.
  ahead: number;
  notices: Notice[];
}

export interface Notice { id: number; text: string; bad: boolean }

export const store: Store = { live: "loading", problem: "", jobs: new Map(), order: [], nodes: [], ahead: 0, notices: [] };

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

export function words(err: unknown): string {
  if (!(err instanceof Refused)) return String(err);
  return err.fix ? `${err.message}: ${err.fix}` : err.message;
}

function sort() {
  store.order = [...store.jobs.values()].sort((x, y) => (x.submitted_at === y.submitted_at ? (x.id < y.id ? 1 : -1) : x.submitted_at < y.submitted_at ? 1 : -1));
}

// The jobs that have ended, as many as are held here; those that have not are all held.
const ended = 10_000;

async function loadJobs(query: Record<string, string | number>) {
  let after = "";
  do {
    const { body } = await get<JobList>("/jobs", { ...query, limit: 10_000, ...(after ? { after } : {}) });
    for (const j of body.jobs) store.jobs.set(j.id, j);
    after = body.next ?? "";
  } while (after);
}

export async function loadNodes() {
  const all: Node[] = [];
  let after = "";
  do {
    const { body } = await get<Records<Node>>("/nodes", after ? { after } : {});
    all.push(...body.items);
    after = body.next ?? "";
  } while (after);
  store.nodes = all;
  changed();
}

async function loadPlan() {
  store.plan = (await get<Plan>("/plan")).body;
}

const unfinished = "submitted,queued,starting,profiling,running,preempting,preempted,recovering,held,paused";

let source: EventSource | undefined;

// start loads everything and follows what changes, for ever.
export async function start(): Promise<void> {
  source?.close();
  try {
    const about = await get<About>("");
    store.about = about.body;
    store.ahead = Date.parse(about.body.now) - Date.now();
    const first = await get<JobList>("/jobs", { finished: 200, limit: 2000 });
    store.jobs = new Map(first.body.jobs.map((j) => [j.id, j]));
    sort();
    await Promise.all([loadNodes(), loadPlan()]);
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

function follow(since: string) {
  source = stream(since);
  source.addEventListener("changed", (e) => apply(JSON.parse((e as MessageEvent<string>).data) as Changes));
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

let planning: Promise<void> | undefined;

function apply(c: Changes) {
  for (const j of c.jobs ?? []) store.jobs.set(j.id, j);
  for (const id of c.gone ?? []) store.jobs.delete(id);
  if (c.jobs || c.gone) sort();
  if (c.nodes) void loadNodes().catch(() => undefined);
  if (c.plan) planning ??= replan();
  changed();
}

// replan loads the newest plan, and the jobs whose predictions it may have changed, at most once a second.
async function replan() {
  const began = performance.now();
  try {
    await Promise.all([loadPlan(), loadJobs({ state: unfinished })]);
    sort();
    changed();
  } catch {
    // the stream says if the service is away
  }
  const took = performance.now() - began;
  setTimeout(() => (planning = undefined), Math.max(1000, 5 * took));
}
