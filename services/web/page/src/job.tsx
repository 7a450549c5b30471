import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Refused, get, post, segment } from "./api";
import { Chart } from "./chart";
import { between, carbon, clock, duration, energy, money, until, watts } from "./format";
import { Files } from "./files";
import { Forecasts } from "./forecasts";
import { Log } from "./log";
import { Panel, Progress, State, Sure, called, isActive, isOver, unloaded } from "./parts";
import { act, may, notice, useNow, useStore, words } from "./store";
import { Timeline, ranWithin } from "./timeline";
import { WhatIf } from "./whatif";
import type { Epoch, Explanation, Detail, Section, Standing } from "./types";

const refresh = 3000;

// apart is the time between two questions for the epochs, which may be thousands.
const apart = 5000;

// useEpochs loads what a job has reported; undefined until it is known.
function useEpochs(id: string, over: boolean): Epoch[] | undefined {
  const [all, set] = useState<Epoch[]>();
  useEffect(() => {
    let left = false;
    const load = () => get<{ epochs: Epoch[] }>(`/jobs/${segment(id)}/epochs`).then(({ body }) => { if (!left) set(body.epochs); }, () => undefined);
    void load();
    const timer = over ? 0 : setInterval(() => document.hidden || void load(), apart);
    return () => {
      left = true;
      clearInterval(timer);
    };
  }, [id, over]);
  return all;
}

interface Known { detail?: Detail; explanation?: Explanation; home?: string; error?: string }

export function JobPage({ id }: { id: string }) {
  const { jobs } = useStore();
  const now = useNow();
  const listed = jobs.get(id);
  const [known, set] = useState<Known>({});
  const loaded = useRef("");
  useEffect(() => {
    let over = false;
    const load = async () => {
      try {
        const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
        const [detail, explanation, standing] = await Promise.all([
          get<Detail>(`/jobs/${segment(id)}`),
          get<Explanation>(`/jobs/${segment(id)}/explanation`, { zone }),
          get<Standing>(`/jobs/${segment(id)}/standing`),
        ]);
        if (over) return;
        loaded.current = detail.body.job.state;
        set({ detail: detail.body, explanation: explanation.body, home: standing.body.home });
      } catch (err) {
        if (!over && (!loaded.current || (err instanceof Refused && err.status === 404))) set({ error: words(err) });
      }
    };
    void load();
    const timer = setInterval(() => {
      if (!document.hidden && !isOver(loaded.current)) void load();
    }, refresh);
    return () => {
      over = true;
      clearInterval(timer);
    };
    // What has ended may be resumed, so a change of the state in the list loads it again.
  }, [id, listed?.state]);
  const { detail, explanation } = known;
  const epochs = useEpochs(id, isOver(detail?.job.state ?? ""));
  // The figures of a long training are drawn anew when it is loaded again, and not every second.
  const figures = useMemo(() => detail && <>{epochs && <Loss detail={detail} epochs={epochs} />}<EpochEnergy detail={detail} /><EpochTime detail={detail} /></>, [detail, epochs]);
  if (known.error || !detail || !explanation) return unloaded(called(id, listed?.name), known.error);
  const job = detail.job;
  const finish = detail.plan?.predicted?.finish ?? listed?.predicted?.finish;
  const start = detail.plan?.predicted?.start ?? listed?.predicted?.start;
  const [standing, ...sections] = explanation.sections;
  // The record of an array waits while its jobs run; the list counts these.
  const array = listed?.jobs && listed;
  return (
    <>
      <div class="head">
        <h1 tabIndex={-1}>{called(job.id, job.spec.name)}</h1>
        <State state={array ? array.state : job.state} />
        <Actions detail={detail} />
      </div>
      <p class="dim small">{[job.id, job.spec.user].filter(Boolean).join(" · ")}{detail.experiment && <> · trial of <a href={`#/experiments/${segment(detail.experiment)}`}>{detail.experiment}</a></>}</p>
      <ul class="facts big">
        <li><span class="dim">progress</span><Progress part={detail.progress} /></li>
        {start && <li><span class="dim">starts</span><b>{until(start, now)}</b><span class="small dim">{between(start, now)}</span></li>}
        {finish && !isOver(job.state) && <li><span class="dim">ends</span><b>{until(finish, now)}</b><span class="small dim">{between(finish, now)}</span></li>}
        {job.finished_at && isOver(job.state) && <li><span class="dim">ended</span><b>{clock(job.finished_at, now)}</b></li>}
        {array && <li><span class="dim">its jobs</span><a href={`#/jobs?array=${segment(job.id)}`}>{array.message}</a></li>}
        <li><span class="dim">ran</span><b>{duration((array ?? detail).run_seconds)}</b></li>
        {(job.devices?.length ?? 0) > 0 && <li><span class="dim">{isActive(job.state) ? "devices" : "last devices"}</span><b>{job.devices?.join(", ")}</b></li>}
        {array && <li><span class="dim">energy</span><b>{energy(array.energy_uj)}</b></li>}
        {!array && detail.account && <li><span class="dim">energy</span><b>{energy(detail.account.energy_uj)}</b><span class="small dim">mean {watts(detail.account.mean_uw)}</span></li>}
        {!array && detail.account?.cost !== undefined && <li><span class="dim">cost</span><b>{money(detail.account.cost, detail.account.currency)}</b>{detail.account.co2e_g !== undefined && <span class="small dim">{carbon(detail.account.co2e_g)} CO₂e</span>}</li>}
      </ul>
      {standing && !array && <Panel title="Why"><Lines section={standing} /></Panel>}
      <div class="two">
        <Timeline job={job} now={now} />
        {figures}
        <Forecasts job={job} />
      </div>
      {!isOver(job.state) && <WhatIf job={job} />}
      {!array && <Log job={job.id} home={known.home} over={isOver(job.state)} />}
      {!array && <Files job={job.id} home={known.home} />}
      {sections.map((s) => (
        <details class="panel" key={s.title}>
          <summary><h2>{s.title}</h2></summary>
          <Lines section={s} />
        </details>
      ))}
    </>
  );
}

// Lines shows a part of the explanation that `switchyard describe` prints.
function Lines({ section }: { section: Section }) {
  return (
    <>
      {(section.parts ?? []).map((p, i) =>
        p.header ? (
          <div class="scroll" key={i}>
            <table>
              <thead><tr>{p.header.map((h, k) => <th key={k}>{h.toLowerCase()}</th>)}</tr></thead>
              <tbody>{p.rows?.map((r, n) => <tr key={n}>{r.map((c, k) => <td key={k}>{c}</td>)}</tr>)}</tbody>
            </table>
          </div>
        ) : p.text ? (
          <pre class="text" key={i}>{p.text}</pre>
        ) : (
          <dl class="lines" key={i}>
            <dt>{(p.label ?? "").trim().replace(/:$/, "")}</dt>
            <dd>{(p.words ?? "").replace(/^[#.]{20} /, "")}</dd>
          </dl>
        ),
      )}
    </>
  );
}

function Actions({ detail }: { detail: Detail }) {
  const job = detail.job;
  const [priority, edit] = useState<string>();
  const at = `/jobs/${segment(job.id)}`;
  const over = isOver(job.state);
  const stands = ["held", "paused"].includes(job.state);
  const holds = may("hold, pause, resume or requeue", job.spec) && !detail.experiment;
  const old = String(job.spec.priority ?? 50);
  // What runs leaves when it is asked, if it hears that: its code calls the job API or gets a signal.
  const deaf = isActive(job.state) && !detail.report?.spoke && !detail.report?.signal;
  const pause = async () => {
    if (deaf) notice(`it cannot be asked to leave: it has not called the job API, and gets no signal. \`switchyard pause ${job.id} --force\` ends its processes; \`switchyard hold ${job.id}\` only keeps it from starting again`, true);
    else await act(at + "/wanted", { state: "paused" }, isActive(job.state) ? "asked to pause: it leaves at its next save" : "asked to pause: it starts when it is resumed");
  };
  const again = async () => {
    // An id begins with a letter or a digit of ASCII, whatever the name begins with.
    const name = (job.spec.name || job.id).replace(/[^A-Za-z0-9_-]/g, "-").replace(/^[_-]+/, "").slice(0, 40) || "job";
    const id = `${name}-${Array.from(crypto.getRandomValues(new Uint8Array(3)), (b) => b.toString(16).padStart(2, "0")).join("")}`;
    try {
      await post(`/jobs/${segment(id)}/submitted`, detail.submission ?? job.spec);
      notice(`submitted again as ${id}`);
      location.hash = `#/jobs/${id}`;
    } catch (err) {
      notice(words(err), true);
    }
  };
  return (
    <div class="actions" role="toolbar" aria-label="Actions">
      {!over && !stands && holds && <button onClick={() => void pause()}>Pause</button>}
      {(stands || ((job.state === "failed" || job.state === "cancelled") && !job.spec.array)) && holds && <button onClick={() => void act(at + "/wanted", { state: "run" }, "asked to go on")}>Resume</button>}
      {!over && priority === undefined && may("change the spec", job.spec) && <button onClick={() => edit(old)}>Priority {old}</button>}
      {!over && priority !== undefined && (
        <form
          class="inline"
          onSubmit={(e) => {
            e.preventDefault();
            const n = Number(priority);
            void act(at + "/edit_requested", { set: { priority: n } }, `asked for priority ${n}`).then((ok) => ok && edit(undefined));
          }}
        >
          <input type="number" min="0" max="100" step="1" required aria-label="Priority" value={priority} onInput={(e) => edit(e.currentTarget.value)} />
          <button type="submit">Set</button>
          <button type="button" class="quiet" onClick={() => edit(undefined)}>keep {old}</button>
        </form>
      )}
      {may("submit", job.spec) && may("see the spec", job.spec) && <button onClick={(e) => e.detail < 2 && void again()}>Run again</button>}
      {!over && may("cancel", job.spec) && <Sure ask="Cancel…" yes="Yes, cancel it" no="No, keep it" act={() => act(at + "/cancel_requested", {}, "asked to end")} />}
    </div>
  );
}

function Loss({ detail, epochs }: { detail: Detail; epochs: Epoch[] }) {
  const losses = epochs.flatMap((e) => (e.loss === undefined ? [] : [{ x: e.epochs_done, y: e.loss }]));
  const names = [...new Set(epochs.flatMap((e) => Object.keys(e.metrics ?? {})))].sort();
  const [metric, choose] = useState("");
  const shown = metric || (losses.length > 0 ? "loss" : names[0]) || "";
  if (!shown) return <Panel title="Loss"><p class="empty">It has reported no loss and no metric.</p></Panel>;
  const points = shown === "loss" ? losses : epochs.flatMap((e) => { const y = e.metrics?.[shown]; return y === undefined ? [] : [{ x: e.epochs_done, y }]; });
  const c = detail.model?.convergence;
  const last = Math.max(detail.job.spec.max_epochs ?? 0, points.at(-1)?.x ?? 0);
  const at = (h: { b0: number; b1: number; b2: number }, x: number) => (c?.scale ?? 1) * (1 / Math.max(h.b0 * x + h.b1, 1e-9) + h.b2);
  const likely = shown === "loss" ? (c?.likely ?? []) : [];
  const band = c && likely.length > 0
    ? { name: "likely curves", points: Array.from({ length: 60 }, (_, i) => { const x = Math.max(1, (last * i) / 59), ys = [c, ...likely].map((h) => at(h, x)); return { x, low: Math.min(...ys), high: Math.max(...ys) }; }) }
    : undefined;
  const curve = shown === "loss" && c
    ? Array.from({ length: 60 }, (_, i) => { const x = Math.max(1, (last * i) / 59); return { x, y: at(c, x) }; })
    : [];
  return (
    <Panel
      title={shown}
      aside={names.length + (losses.length > 0 ? 1 : 0) > 1 && (
        <select aria-label="Metric" value={shown} onChange={(e) => choose(e.currentTarget.value)}>
          {[...(losses.length > 0 ? ["loss"] : []), ...names].map((n) => <option key={n}>{n}</option>)}
        </select>
      )}
    >
      <Chart title={`${shown} by epoch`} x="epoch" band={band} series={[{ name: shown, points, dots: true }, ...(curve.length > 0 ? [{ name: "fitted curve", points: curve, dashed: true }] : [])]} />
    </Panel>
  );
}

interface Each { epoch: number; joules: number; seconds: number }

// each is the energy of each epoch and the time for which it ran. After a restart, what was trained again counts as well.
function each(detail: Detail): Each[] {
  const epochs = detail.course?.epochs ?? [];
  const started = detail.job.started_at ? Date.parse(detail.job.started_at) : NaN;
  return epochs.map((e, i) => {
    const before = epochs[i - 1];
    const done = Math.max(1, e.epochs_done - (before?.epochs_done ?? 0));
    return { epoch: e.epochs_done, joules: (e.energy_uj - (before?.energy_uj ?? 0)) / 1e6 / done, seconds: ranWithin(detail.job, before ? Date.parse(before.at) : started, Date.parse(e.at)) / 1000 / done };
  });
}

function EpochEnergy({ detail }: { detail: Detail }) {
  const points = each(detail).filter((e) => e.joules > 0).map((e) => ({ x: e.epoch, y: e.joules }));
  if (points.length < 2) return null;
  return <Panel title="Energy of each epoch"><Chart title="joules of each epoch" x="epoch" series={[{ name: "joules", points, dots: true }]} /></Panel>;
}

function EpochTime({ detail }: { detail: Detail }) {
  const points = each(detail).filter((e) => e.seconds > 0).map((e) => ({ x: e.epoch, y: e.seconds }));
  if (points.length < 2) return null;
  return <Panel title="Time of each epoch"><Chart title="seconds that each epoch ran" x="epoch" series={[{ name: "seconds", points, dots: true }]} /></Panel>;
}
