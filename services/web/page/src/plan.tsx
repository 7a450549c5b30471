import { useWidth } from "./chart";
import { Difference, Policies } from "./policies";
import { clock, until } from "./format";
import { JobLink, Panel, State } from "./parts";
import { useNow, useStore } from "./store";
import type { Allocation, Job } from "./types";

interface Bar { row: string; job: string; from: number; to?: number; low?: number; high?: number }

const places = (a: Allocation) => (a.parts?.length ? a.parts : [{ node: a.node, devices: a.devices }]);

export function PlanPage() {
  const { plan, jobs, nodes } = useStore();
  const now = useNow();
  if (!plan || plan.generation === 0) return <><div class="head"><h1 tabIndex={-1}>Plan</h1></div><p class="empty">Nothing has been planned yet.</p></>;
  const decided = Date.parse(plan.decided_at);
  const given = plan.allocations ?? [], waiting = plan.waiting ?? [];
  const bars: Bar[] = [];
  for (const a of given) {
    const f = a.forecast?.finish;
    for (const p of places(a)) {
      for (const d of p.devices) {
        bars.push({ row: `${p.node} ${d}`, job: a.job, from: now, to: f ? decided + 1000 * f.expected : undefined, low: f && decided + 1000 * f.low, high: f && decided + 1000 * f.high });
      }
    }
  }
  const rows = nodes.flatMap((n) => n.devices.map((d) => `${n.id} ${d.id}`));
  const next = waiting.slice(0, 30);
  const ends = [...bars.map((b) => b.to ?? 0), ...next.map((w) => (w.forecast?.finish ? decided + 1000 * w.forecast.finish.expected : 0))];
  const end = Math.max(now + 60_000, ...ends.filter((t) => t < now + 30 * 86400e3)) + 5_000;
  return (
    <>
      <div class="head">
        <h1 tabIndex={-1}>Plan</h1>
        <ul class="facts"><li>plan <b>{plan.generation}</b> by {plan.policy}, {clock(plan.decided_at, now)}</li><li><b>{given.length}</b> {given.length === 1 ? "job holds" : "jobs hold"} devices</li><li><b>{waiting.length}</b> {waiting.length === 1 ? "waits" : "wait"}</li></ul>
      </div>
      <Panel title="Now and predicted">
        <figure class="chart">
          <Gantt rows={rows} bars={bars} jobs={jobs} from={now} to={end} waiting={next.map((w) => ({
            job: w.job,
            start: w.forecast?.start ? decided + 1000 * w.forecast.start.expected : undefined,
            end: w.forecast?.finish ? decided + 1000 * w.forecast.finish.expected : undefined,
          }))} />
          <figcaption class="small dim">Full bars hold their devices and end as predicted; dashed ones wait and are predicted to start then. The tables below have the same.</figcaption>
        </figure>
      </Panel>
      <Difference plan={plan} jobs={jobs} />
      <Policies plan={plan} jobs={jobs} />
      <Panel title="Who holds what, and why">
        <div class="scroll"><table class="cards">
          <thead><tr><th>job</th><th>state</th><th>devices</th><th>ends</th><th>why</th></tr></thead>
          <tbody>{given.map((a) => {
            const j = jobs.get(a.job);
            return <tr key={a.job}><td><JobLink id={a.job} name={j?.name} /></td><td data-label="state">{j && <State state={j.state} />}</td><td data-label="devices">{places(a).map((p) => `${p.node} ${p.devices.join(", ")}`).join("; ")}</td><td class="number" data-label="ends">{until(j?.predicted?.finish, now) || <span class="dim">unknown</span>}</td><td class="why" data-label="why">{a.reason.message}{a.reason.hint && <span class="dim"> ({a.reason.hint})</span>}</td></tr>;
          })}</tbody>
        </table></div>
        {given.length === 0 && <p class="empty">Nobody holds a device.</p>}
      </Panel>
      <Panel title="Who waits, and for what">
        <div class="scroll"><table class="cards">
          <thead><tr><th>#</th><th>job</th><th>starts</th><th>because</th></tr></thead>
          <tbody>{waiting.slice(0, 500).map((w, i) => {
            const j = jobs.get(w.job);
            return <tr key={w.job}><td>{i + 1}</td><td data-label="job"><JobLink id={w.job} name={j?.name} /></td><td class="number" data-label="starts">{until(j?.predicted?.start, now) || <span class="dim">unknown</span>}</td><td class="why" data-label="because">{w.blockers.map((b) => b.message + (b.hint ? ` (${b.hint})` : "")).join("; ")}</td></tr>;
          })}</tbody>
        </table></div>
        {waiting.length === 0 && <p class="empty">Nobody waits.</p>}
      </Panel>
    </>
  );
}

function Gantt({ rows, bars, waiting, jobs, from, to }: { rows: string[]; bars: Bar[]; waiting: { job: string; start?: number; end?: number }[]; jobs: Map<string, Job>; from: number; to: number }) {
  const left = 130, row = 24;
  const { ref, width } = useWidth();
  const sx = (t: number) => left + (Math.min(Math.max(t, from), to) - from) / (to - from) * (width - left - 8);
  const height = (rows.length + waiting.length) * row + 24;
  const name = (id: string) => jobs.get(id)?.name || id;
  const tick = (t: number) => (to - from < 240_000 ? new Date(t).toLocaleTimeString([], { hour12: false }) : clock(new Date(t).toISOString(), from));
  return (
    <svg ref={ref} height={height} role="group" aria-label="devices and waiting jobs over the predicted time">
      {rows.map((r, i) => <g key={r}><text x={left - 8} y={i * row + 16} text-anchor="end">{r}</text><line class="grid" x1={left} x2={width - 8} y1={(i + 1) * row} y2={(i + 1) * row} /></g>)}
      {bars.map((b) => {
        const i = rows.indexOf(b.row);
        const beside = bars.filter((o) => o.row === b.row);
        const part = beside.indexOf(b), each = (row - 6) / beside.length;
        const x1 = sx(b.to ?? to);
        return (
          <a key={b.row + b.job} href={`#/jobs/${encodeURIComponent(b.job)}`}>
            <rect class={`span runs ${b.to === undefined ? "open" : ""}`} x={left} width={Math.max(2, x1 - left)} y={i * row + 3 + part * each} height={each - 1} rx="2"><title>{name(b.job)}</title></rect>
            {b.low !== undefined && b.high !== undefined && <line class="whisker" x1={sx(b.low)} x2={sx(b.high)} y1={i * row + 1 + (part + 1) * each} y2={i * row + 1 + (part + 1) * each} />}
            {x1 - left > 60 && each > 9 && <text class="on" x={left + 6} y={i * row + 3 + part * each + each / 2 + 4}>{name(b.job)}</text>}
          </a>
        );
      })}
      {waiting.map((w, k) => {
        const y = (rows.length + k) * row, x0 = sx(w.start ?? from), x1 = sx(w.end ?? to);
        return (
          <a key={w.job} href={`#/jobs/${encodeURIComponent(w.job)}`}>
            <text x={left - 8} y={y + 16} text-anchor="end" class="link">{name(w.job).slice(0, 18)}</text>
            {w.start === undefined ? <text x={left + 6} y={y + 16}>nobody knows when</text> : <rect class="span waits" x={x0} width={Math.max(2, x1 - x0)} y={y + 4} height={row - 9} rx="2"><title>{name(w.job)}</title></rect>}
          </a>
        );
      })}
      {(width < 480 ? [0, 1] : width < 720 ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]).map((p) => <text key={p} x={left + p * (width - left - 8)} y={height - 4} text-anchor={p === 0 ? "start" : p === 1 ? "end" : "middle"}>{p === 0 ? "now" : tick(from + p * (to - from))}</text>)}
    </svg>
  );
}
