import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Refused, post, segment } from "./api";
import { clock, duration, energy, money, until } from "./format";
import { JobLink, Progress, State, Sure, called, isOver, kindOf, states } from "./parts";
import { may, notice, useNow, useStore, words } from "./store";
import type { Job } from "./types";

const rowHeight = 44;

interface Filter { state: string; user: string; label: string; text: string; sort: string; array: string }

const groups: Record<string, (j: Job) => boolean> = {
  "": () => true,
  unfinished: (j) => !isOver(j.state),
  running: (j) => kindOf(j.state) === "runs" || j.state === "preempting",
  waiting: (j) => ["waits", "stands"].includes(kindOf(j.state)) || j.state === "preempted" || j.state === "recovering",
};

const sorts: Record<string, [title: string, key: (j: Job) => string | number]> = {
  newest: ["newest first", (j) => -Date.parse(j.submitted_at)],
  name: ["name", (j) => j.name || j.id],
  user: ["user", (j) => j.user],
  state: ["state", (j) => states.indexOf(j.state)],
  progress: ["progress", (j) => -(j.progress ?? -1)],
  finish: ["predicted finish", (j) => j.predicted?.finish?.expected ?? "z"],
  energy: ["energy", (j) => -j.energy_uj],
};

export function Jobs({ query }: { query: URLSearchParams }) {
  const { order } = useStore();
  const f: Filter = { state: query.get("state") ?? "", user: query.get("user") ?? "", label: query.get("label") ?? "", text: query.get("text") ?? "", sort: query.get("sort") ?? "newest", array: query.get("array") ?? "" };
  const [picked, pick] = useState(new Set<string>());
  const shown = useMemo(() => select(order, f), [order, f.state, f.user, f.label, f.text, f.sort, f.array]);
  const users = useMemo(() => [...new Set(order.map((j) => j.user).filter(Boolean))].sort(), [order]);
  const labels = useMemo(() => [...new Set(order.flatMap((j) => Object.entries(j.labels ?? {}).map(([k, v]) => `${k}=${v}`)))].sort(), [order]);
  const chosen = shown.filter((j) => picked.has(j.id));
  return (
    <>
      <div class="head">
        <h1 tabIndex={-1}>Jobs</h1>
        <span class="dim" role="status">{shown.length === order.length ? `${order.length}` : `${shown.length} of ${order.length}`}</span>
        {f.array && <span>jobs of the array <JobLink id={f.array} /> · <a href="#/jobs">all jobs</a></span>}
      </div>
      <form class="filters" role="search" onSubmit={(e) => e.preventDefault()}>
        <input type="search" placeholder="name, id, project or reason" aria-label="Text" value={f.text} onInput={(e) => set(f, "text", e.currentTarget.value)} />
        <select aria-label="State" value={f.state} onChange={(e) => set(f, "state", e.currentTarget.value)}>
          <option value="">all states</option>
          <option value="unfinished">not ended</option>
          <option value="waiting">waiting</option>
          {states.map((s) => <option key={s} value={s}>{s}</option>)}
        </select>
        <select aria-label="User" value={f.user} onChange={(e) => set(f, "user", e.currentTarget.value)}>
          <option value="">all users</option>
          {users.map((u) => <option key={u} value={u}>{u}</option>)}
        </select>
        {labels.length > 0 && (
          <select aria-label="Label" value={f.label} onChange={(e) => set(f, "label", e.currentTarget.value)}>
            <option value="">all labels</option>
            {labels.map((l) => <option key={l} value={l}>{l}</option>)}
          </select>
        )}
        <select aria-label="Order" value={f.sort} onChange={(e) => set(f, "sort", e.currentTarget.value)}>
          {Object.entries(sorts).map(([k, [title]]) => <option key={k} value={k}>{title}</option>)}
        </select>
      </form>
      {chosen.length > 0 && <Bulk jobs={chosen} done={() => pick(new Set())} />}
      <Table jobs={shown} picked={picked} pick={pick} />
    </>
  );
}

function set(f: Filter, key: keyof Filter, value: string) {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries({ ...f, [key]: value })) if (v && !(k === "sort" && v === "newest")) q.set(k, v);
  history.replaceState(null, "", "#/jobs" + (q.size ? "?" + q.toString() : ""));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

function select(all: Job[], f: Filter): Job[] {
  const text = f.text.trim().toLowerCase();
  const inState = groups[f.state] ?? ((j: Job) => j.state === f.state);
  const [key, value] = f.label.split("=", 2);
  const found = all.filter(
    (j) =>
      inState(j) &&
      (!f.array || j.id === `${f.array}-${j.array_member?.index}`) &&
      (!f.user || j.user === f.user) &&
      (!f.label || (j.labels ?? {})[key ?? ""] === value) &&
      (!text || [j.name, j.id, j.project, j.reason, j.message, j.user].some((s) => s?.toLowerCase().includes(text))),
  );
  const by = sorts[f.sort]?.[1];
  if (!by || f.sort === "newest") return found;
  const keys = new Map(found.map((j) => [j, by(j)]));
  return found.sort((x, y) => ((keys.get(x) ?? "") < (keys.get(y) ?? "") ? -1 : (keys.get(x) ?? "") > (keys.get(y) ?? "") ? 1 : 0));
}

interface Verb { fact: string; body: unknown; said: string; to: (j: Job) => boolean }

// verbs are what people ask of many jobs at once, each of the jobs that it means something for. The experiment of a trial
// decides when the trial runs; of an array that has ended, only its jobs can go on.
const verbs: Record<"pause" | "resume" | "cancel", Verb> = {
  pause: { fact: "wanted", body: { state: "paused" }, said: "pause", to: (j) => !isOver(j.state) && !j.experiment },
  resume: { fact: "wanted", body: { state: "run" }, said: "go on", to: (j) => !j.experiment && !["succeeded", "rejected"].includes(j.state) && !(j.jobs && isOver(j.state)) },
  cancel: { fact: "cancel_requested", body: {}, said: "end", to: (j) => !isOver(j.state) },
};

const many = (n: number) => (n === 1 ? "1 job" : `${n} jobs`);

// ask asks for the same of a job, later if the person has asked too often.
async function ask(j: Job, v: Verb): Promise<void> {
  for (;;) {
    try {
      return await post(`/jobs/${segment(j.id)}/${v.fact}`, v.body);
    } catch (err) {
      if (!(err instanceof Refused) || !err.retryAfter) throw err;
      const seconds = err.retryAfter;
      await new Promise((go) => setTimeout(go, 1000 * seconds));
    }
  }
}

function Bulk({ jobs, done }: { jobs: Job[]; done: () => void }) {
  const [busy, tell] = useState("");
  const all = async (v: Verb) => {
    const to = jobs.filter(v.to);
    const refused: string[] = [];
    let asked = 0, away = false;
    for (const j of to) {
      if (away) break;
      if (asked % 50 === 0) tell(`${asked} of ${many(to.length)} asked to ${v.said}`); // a screen reader reads each out
      await ask(j, v).then(() => asked++, (err) => {
        refused.push(words(err));
        away = err instanceof Refused && [0, 401].includes(err.status);
      });
    }
    tell("");
    const out = jobs.length - to.length;
    notice([
      `${asked === to.length || !away ? many(asked) : `${asked} of ${many(to.length)}`} asked to ${v.said}`,
      out > 0 && `${out} left out, because they have ended${v.said === "end" ? "" : ", or are trials, whose experiment decides when they run"}`,
      refused[0] && `${refused.length} refused, the first because: ${refused[0]}`,
    ].filter(Boolean).join("; "), refused.length > 0 || asked === 0);
    done();
  };
  return (
    <div class="bulk" role="toolbar" aria-label="Chosen jobs">
      <span role="status">{busy || `${many(jobs.length)} chosen`}</span>
      {!busy && <>
        <button onClick={() => void all(verbs.pause)}>Pause</button>
        <button onClick={() => void all(verbs.resume)}>Resume</button>
        <Sure ask="Cancel…" yes={`Yes, cancel ${many(jobs.length)}`} no={jobs.length === 1 ? "No, keep it" : "No, keep them"} act={() => all(verbs.cancel)} />
        <button class="quiet" onClick={done}>choose none</button>
      </>}
    </div>
  );
}

function Table({ jobs, picked, pick }: { jobs: Job[]; picked: Set<string>; pick: (s: Set<string>) => void }) {
  const now = useNow();
  const box = useRef<HTMLDivElement>(null);
  const [top, scroll] = useState(0);
  const [height, resize] = useState(800);
  useEffect(() => {
    const e = box.current;
    if (!e) return;
    const watch = new ResizeObserver(() => resize(e.clientHeight));
    watch.observe(e);
    return () => watch.disconnect();
  }, []);
  const margin = 8;
  const from = Math.max(0, Math.min(Math.floor(top / rowHeight) - margin, jobs.length - 1));
  const to = Math.min(jobs.length, Math.ceil((top + height) / rowHeight) + margin);
  const mine = (j: Job) => may("cancel", j);
  const choosable = jobs.filter(mine);
  const all = choosable.length > 0 && choosable.every((j) => picked.has(j.id));
  const toggle = (id: string) => {
    const next = new Set(picked);
    if (!next.delete(id)) next.add(id);
    pick(next);
  };
  return (
    <div class="scroll jobs" ref={box} tabIndex={0} role="region" aria-label="Jobs" onScroll={(e) => scroll(e.currentTarget.scrollTop)}>
      <table aria-rowcount={jobs.length + 1}>
        <thead>
          <tr>
            <th class="check">{choosable.length > 0 && <input type="checkbox" aria-label="choose all" checked={all} onChange={() => pick(all ? new Set() : new Set(choosable.map((j) => j.id)))} />}</th>
            <th>Job</th>
            <th>State</th>
            <th class="wide">Why</th>
            <th>Progress</th>
            <th class="wide">Ends</th>
            <th class="wide">Devices</th>
            <th class="wide right">Energy</th>
            <th class="wide">Submitted</th>
          </tr>
        </thead>
        <tbody>
          {from > 0 && <tr aria-hidden="true" style={{ height: `${from * rowHeight}px` }} />}
          {jobs.slice(from, to).map((j, i) => (
            <tr key={j.id} aria-rowindex={from + i + 2} class={picked.has(j.id) ? "picked" : ""} style={{ height: `${rowHeight}px` }}>
              <td class="check">{mine(j) && <input type="checkbox" aria-label={`choose ${called(j.id, j.name)}`} checked={picked.has(j.id)} onChange={() => toggle(j.id)} />}</td>
              <td class="name"><JobLink id={j.id} name={j.name} /><span class="small dim">{[j.user, j.project].filter(Boolean).join(" · ")}</span></td>
              <td><State state={j.state} /></td>
              <td class="wide why" title={j.message}>{j.message}</td>
              <td><Progress part={j.progress} label={`progress of ${called(j.id, j.name)}`} /></td>
              <td class="wide number">{isOver(j.state) ? (j.finished_at ? clock(j.finished_at, now) : "") : j.predicted?.finish ? until(j.predicted.finish, now) : <span class="dim">unknown</span>}</td>
              <td class="wide">{isOver(j.state) ? <span class="dim">ran {duration(j.run_seconds)}</span> : j.devices.length > 0 ? j.devices.join(", ") : <span class="dim">needs {j.min_devices}</span>}</td>
              <td class="wide right number">{energy(j.energy_uj)}{j.cost !== undefined && <div class="small dim">{money(j.cost, j.currency)}</div>}</td>
              <td class="wide number dim">{clock(j.submitted_at, now)}</td>
            </tr>
          ))}
          {to < jobs.length && <tr aria-hidden="true" style={{ height: `${(jobs.length - to) * rowHeight}px` }} />}
        </tbody>
      </table>
      {jobs.length === 0 && <p class="empty">No job is like this.</p>}
    </div>
  );
}
