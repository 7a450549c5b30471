import { useState } from "preact/hooks";
import { segment } from "./api";
import { Chart, useWidth } from "./chart";
import { clock, digits, duration, joules, plain } from "./format";
import { JobLink, Panel, unloaded } from "./parts";
import { useLoaded } from "./load";
import { useNow } from "./store";
import type { Series } from "./chart";
import type { Experiment, ExperimentLine, Trial } from "./types";

const goal = (e: ExperimentLine) => `${e.minimise ? "least" : "most"} ${e.objective}`;
const spent = (e: { joules?: number; modelled?: boolean }) => (e.joules ? joules(e.joules) + (e.modelled ? " modelled" : "") : "–");

export function Experiments() {
  const { body, problem } = useLoaded<ExperimentLine[]>("/experiments", () => false);
  const now = useNow();
  return (
    <>
      <div class="head"><h1 tabIndex={-1}>Experiments</h1></div>
      {problem && <p class="why" role="alert">{problem}</p>}
      {body?.length === 0 && <p class="empty">No search has been started: <code>switchyard tune run FILE</code> starts one.</p>}
      {body && body.length > 0 && (
        <section class="panel"><div class="scroll"><table class="cards">
          <thead><tr><th>experiment</th><th>state</th><th>search</th><th>for</th><th class="right">best</th><th class="right">trials</th><th class="right">energy</th><th>took</th><th>submitted</th></tr></thead>
          <tbody>{body.map((e) => (
            <tr key={e.id}>
              <td><a href={`#/experiments/${segment(e.id)}`}>{e.id}</a> <span class="dim small">{e.user}</span></td>
              <td data-label="state">{e.state}{e.message && <div class="small dim">{e.message}</div>}</td>
              <td data-label="search">{e.algorithm}, {e.mode}</td>
              <td data-label="for">{goal(e)}</td>
              <td class="right number" data-label="best">{e.best === undefined ? "–" : digits(e.best)}</td>
              <td class="right number" data-label="trials">{e.trials}{e.running > 0 && <span class="dim"> ({e.running} run)</span>}</td>
              <td class="right number" data-label="energy">{spent(e)}</td>
              <td class="number" data-label="took">{duration(((e.ended_at ? Date.parse(e.ended_at) : now) - Date.parse(e.submitted_at)) / 1000)}</td>
              <td class="number" data-label="submitted">{clock(e.submitted_at, now)}</td>
            </tr>
          ))}</tbody>
        </table></div></section>
      )}
    </>
  );
}

export function ExperimentPage({ id }: { id: string }) {
  const { body: e, problem } = useLoaded<Experiment>(`/experiments/${segment(id)}`, (e) => e.state !== "running");
  const now = useNow();
  if (!e) return unloaded(id, problem);
  const best = e.trial_list.find((t) => t.id === e.best_trial);
  return (
    <>
      <div class="head"><h1 tabIndex={-1}>{e.id}</h1><span>{e.state}</span></div>
      <p class="dim small">{[e.name !== e.id && e.name, e.user, `${e.algorithm}, ${e.mode}`, `for the ${goal(e)}`, e.message].filter(Boolean).join(" · ")}</p>
      <ul class="facts big">
        <li><span class="dim">best</span><b>{e.best === undefined ? "–" : digits(e.best)}</b>{best && <span class="small dim">trial {best.id}: {written(best.params)}</span>}</li>
        <li><span class="dim">trials</span><b>{e.trials}</b><span class="small dim">{e.running} run</span></li>
        <li><span class="dim">energy</span><b>{spent(e)}</b></li>
        <li><span class="dim">{e.ended_at ? "took" : "for"}</span><b>{duration(((e.ended_at ? Date.parse(e.ended_at) : now) - Date.parse(e.submitted_at)) / 1000)}</b></li>
      </ul>
      <div class="two">
        <Curves e={e} />
        <Best e={e} now={now} />
      </div>
      <Parallel e={e} />
      {e.rungs && <Rungs e={e} />}
      <Trials e={e} />
    </>
  );
}

const written = (params: Record<string, string | number>) => Object.entries(params).map(([k, v]) => `${k} ${typeof v === "number" ? plain(v) : v}`).join(", ");

// Curves are the results of all trials by epoch: the best one stands out, the others are thin.
function Curves({ e }: { e: Experiment }) {
  const trials = e.trial_list.filter((t) => t.results.length > 0);
  if (trials.length === 0) return <Panel title="Learning curves"><p class="empty">No trial has a result yet.</p></Panel>;
  const line = (t: Trial): Series => ({ name: `trial ${t.id}`, points: t.results.map((r) => ({ x: r.epoch, y: r.value })), dots: true, thin: t.id !== e.best_trial });
  const best = trials.filter((t) => t.id === e.best_trial), others = trials.filter((t) => t.id !== e.best_trial);
  const epochs = [...new Set(trials.flatMap((t) => t.results.map((r) => r.epoch)))].sort((a, b) => a - b);
  return (
    <Panel title="Learning curves">
      <Chart
        title={`${e.objective} of each trial by epoch`} x="epoch" series={[...others, ...best].map(line)}
        keys={[...(best[0] ? [{ name: `best, trial ${best[0].id}` }] : []), ...(others.length > 0 ? [{ name: others.length === 1 ? "the other trial" : `${others.length} others`, thin: true }] : [])]}
      >
        <table>
          <thead><tr><th>trial</th>{epochs.map((n) => <th key={n} class="right">epoch {n}</th>)}</tr></thead>
          <tbody>{trials.map((t) => <tr key={t.id}><td class="number">trial {t.id}</td>{epochs.map((n) => { const r = t.results.find((r) => r.epoch === n); return <td key={n} class="right number">{r ? digits(r.value) : ""}</td>; })}</tr>)}</tbody>
        </table>
      </Chart>
    </Panel>
  );
}

// Best is the best result so far, over time or over the energy of all trials.
function Best({ e, now }: { e: Experiment; now: number }) {
  const [by, choose] = useState<"time" | "energy">("time");
  const last = e.course.at(-1);
  if (!last) return <Panel title="Best so far"><p class="empty">No trial has a result yet.</p></Panel>;
  const end = by === "time" ? ((e.ended_at ? Date.parse(e.ended_at) : now) - Date.parse(e.submitted_at)) / 1000 : e.joules;
  const at = (x: { seconds: number; joules: number }) => (by === "time" ? x.seconds : x.joules);
  const unit = by === "time" ? (end > 7200 ? { name: "hours", size: 3600 } : end > 120 ? { name: "minutes", size: 60 } : { name: "seconds", size: 1 }) : end > 3.6e6 ? { name: "kWh", size: 3.6e6 } : end > 3600 ? { name: "Wh", size: 3600 } : { name: "joules", size: 1 };
  // A step for each improvement, on to the end.
  const points = e.course.flatMap((c, i) => { const next = e.course[i + 1]; return [{ x: at(c) / unit.size, y: c.value }, { x: (next ? at(next) : Math.max(end, at(c))) / unit.size, y: c.value }]; });
  return (
    <Panel
      title="Best so far"
      aside={<select aria-label="Over" value={by} onChange={(ev) => choose(ev.currentTarget.value as "time" | "energy")}><option value="time">over time</option><option value="energy">over energy</option></select>}
    >
      <Chart title={`best ${e.objective} over ${by}`} x={unit.name} series={[{ name: `best ${e.objective}`, points }]}>
        <table>
          <thead><tr><th>after</th><th class="right">energy of all trials</th><th>trial</th><th class="right">{e.objective}</th></tr></thead>
          <tbody>{e.course.map((c, i) => <tr key={i}><td class="number">{duration(c.seconds)}</td><td class="right number">{c.joules ? joules(c.joules) : "–"}</td><td>trial {c.trial}</td><td class="right number">{digits(c.value)}</td></tr>)}</tbody>
        </table>
      </Chart>
    </Panel>
  );
}

interface Axis { name: string; place: (t: Trial) => number | undefined; marks: { at: number; text: string }[] }

// axisOf puts the values of a parameter between 0 and 1: numbers by their size, or that of their logarithms, texts and few
// numbers in their order.
function axisOf(name: string, values: (string | number)[], log: boolean, of: (t: Trial) => string | number | undefined): Axis {
  const distinct = [...new Set(values)];
  const few = distinct.length <= 6 || distinct.some((v) => typeof v === "string");
  if (few) {
    distinct.sort((a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a) < String(b) ? -1 : 1));
    const at = (v: string | number) => (distinct.length === 1 ? 0.5 : distinct.indexOf(v) / (distinct.length - 1));
    return { name, place: (t) => { const v = of(t); return v === undefined ? undefined : at(v); }, marks: distinct.map((v) => ({ at: at(v), text: typeof v === "number" ? plain(v) : v })) };
  }
  const numbers = distinct as number[];
  const scale = (v: number) => (log && v > 0 ? Math.log10(v) : v);
  const low = Math.min(...numbers), high = Math.max(...numbers);
  const at = (v: number) => (scale(v) - scale(low)) / (scale(high) - scale(low));
  return { name, place: (t) => { const v = of(t); return typeof v === "number" ? at(v) : undefined; }, marks: [low, high].map((v) => ({ at: at(v), text: plain(v) })) };
}

// Parallel draws each trial as a line over its parameters and its result. The table of the trials has the same.
function Parallel({ e }: { e: Experiment }) {
  const { ref, width } = useWidth();
  const trials = e.trial_list.filter((t) => t.value !== undefined && !t.broken);
  const axes = e.parameters.flatMap((p) => {
    const values = trials.flatMap((t) => t.params[p.name] ?? []);
    return values.length > 0 ? [axisOf(p.name, values, p.kind.startsWith("log"), (t) => t.params[p.name])] : [];
  });
  if (trials.length < 2 || axes.length === 0) return null;
  const results = trials.map((t) => t.value ?? 0);
  const low = Math.min(...results), high = Math.max(...results);
  axes.push({ name: e.objective, place: (t) => (high > low ? ((t.value ?? low) - low) / (high - low) : 0.5), marks: high > low ? [low, high].map((v, i) => ({ at: i, text: digits(v) })) : [{ at: 0.5, text: digits(low) }] });
  const height = 250, top = 30, bottom = 12, left = 56, right = 64;
  const sx = (i: number) => left + (i / (axes.length - 1)) * (width - left - right);
  const sy = (part: number) => height - bottom - part * (height - top - bottom);
  const ordered = [...trials].sort((a, b) => Number(a.id === e.best_trial) - Number(b.id === e.best_trial));
  return (
    <Panel title="Parameters and result">
      <figure class="chart">
        <svg ref={ref} height={height} role="img" aria-label="each trial as a line over its parameters and its result">
          {ordered.map((t) => {
            const points = axes.flatMap((a, i) => { const p = a.place(t); return p === undefined ? [] : [`${sx(i).toFixed(1)},${sy(p).toFixed(1)}`]; });
            return <polyline key={t.id} class={`trial ${t.id === e.best_trial ? "best" : ""}`} points={points.join(" ")}><title>{`trial ${t.id}: ${written(t.params)}: ${digits(t.value ?? NaN)}`}</title></polyline>;
          })}
          {axes.map((a, i) => (
            <g key={a.name}>
              <line class="axis" x1={sx(i)} x2={sx(i)} y1={top} y2={height - bottom} />
              <text x={sx(i)} y={14} text-anchor={i === 0 ? "start" : i === axes.length - 1 ? "end" : "middle"} dx={i === 0 ? 8 - left : i === axes.length - 1 ? right - 8 : 0} class="name">{a.name}</text>
              {a.marks.map((m) => <text key={m.text} class="over" x={sx(i) + (i === axes.length - 1 ? 8 : -8)} y={sy(m.at) + 4} text-anchor={i === axes.length - 1 ? "start" : "end"}>{m.text}</text>)}
            </g>
          ))}
        </svg>
        <figcaption class="small dim">The thick line is the best trial. The table of the trials has the same.</figcaption>
      </figure>
    </Panel>
  );
}

function Rungs({ e }: { e: Experiment }) {
  const most = Math.max(...(e.rungs ?? []).map((r) => r.reached), 1);
  return (
    <Panel title="Rungs">
      <div class="scroll"><table>
        <thead><tr><th>after</th><th class="right">trials</th><th class="rung"><span class="dim">of all that came so far</span></th><th class="right">went on</th><th class="right">best {e.objective}</th></tr></thead>
        <tbody>{e.rungs?.map((r) => (
          <tr key={r.epochs}>
            <td class="number">{r.epochs === 1 ? "1 epoch" : `${r.epochs} epochs`}</td><td class="right number">{r.reached}</td>
            <td class="rung"><span class="meter" aria-hidden="true"><span style={{ width: `${(100 * r.reached) / most}%` }} /></span></td>
            <td class="right number">{r.went_on}</td><td class="right number">{r.best === undefined ? "–" : digits(r.best)}</td>
          </tr>
        ))}</tbody>
      </table></div>
    </Panel>
  );
}

function Trials({ e }: { e: Experiment }) {
  const sign = e.minimise ? 1 : -1;
  const place = (t: Trial) => (t.value === undefined || t.broken ? Infinity : sign * t.value);
  const trials = [...e.trial_list].sort((a, b) => Number(b.id === e.best_trial) - Number(a.id === e.best_trial) || place(a) - place(b) || a.id - b.id);
  const names = e.parameters.map((p) => p.name).filter((n) => trials.some((t) => t.params[n] !== undefined));
  const show = (v: string | number | undefined) => (v === undefined ? "" : typeof v === "number" ? plain(v) : v);
  return (
    <Panel title="Trials">
      <div class="scroll"><table class="cards">
        <thead><tr><th>trial</th><th>state</th><th class="right">epochs</th><th class="right">{e.objective}</th>{names.map((n) => <th key={n} class="right">{n}</th>)}<th class="right">trained</th><th class="right">energy</th></tr></thead>
        <tbody>{trials.map((t) => (
          <tr key={t.id}>
            <td class="number"><JobLink id={t.job} name={`trial ${t.id}`} />{t.id === e.best_trial && <b> best</b>}</td>
            <td data-label="state">{t.state}{t.reason && <div class="small dim">{t.reason}</div>}</td>
            <td class="right number" data-label="epochs">{t.results.at(-1)?.epoch ?? 0} of {t.epochs}</td>
            <td class="right number" data-label={e.objective}>{t.value === undefined ? "–" : digits(t.value)}{t.broken && <div class="small dim">breaks a constraint</div>}</td>
            {names.map((n) => <td key={n} class="right number" data-label={n}>{show(t.params[n])}</td>)}
            <td class="right number" data-label="trained">{duration(t.seconds)}</td>
            <td class="right number" data-label="energy">{t.joules ? joules(t.joules) : "–"}</td>
          </tr>
        ))}</tbody>
      </table></div>
    </Panel>
  );
}
