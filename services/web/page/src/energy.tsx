import { useEffect, useState } from "preact/hooks";
import { get } from "./api";
import { useWidth } from "./chart";
import { carbon, energy } from "./format";
import { JobLink, Meter, Panel, save } from "./parts";
import { words } from "./store";
import type { ComponentChildren } from "preact";
import type { Energy, EnergyQuota, Spent } from "./types";

const refresh = 60_000;

const idle = (s: Spent) => s.idle_uj ?? 0;
const nobody = (s: Spent) => s.unattributed_uj ?? 0;
const whole = (s: Spent) => s.active_uj + idle(s) + nobody(s);
const part = (x: number, of: number) => (of > 0 ? `${((100 * x) / of).toFixed(0)} %` : "");

// csv has a row for each row of the tables, in joules, and in grams where the carbon is known.
function csv(spent: Energy): string {
  // As libs/sheet does: a spreadsheet runs a cell that begins like a formula, in quotes too.
  const plain = (text: string) => (/^[=+\-@\t\r\n|%＝＋－＠]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text);
  const field = (text: string) => { const p = plain(text); return /[",\n\r]/.test(p) ? `"${p.replace(/"/g, '""')}"` : p; };
  const rows = (by: string, all: Spent[]) => all.map((s) => [by, field(s.key), field(s.name ?? ""), s.active_uj / 1e6, idle(s) / 1e6, nobody(s) / 1e6, s.co2e_g ?? ""].join(","));
  return ["by,key,name,active_joules,idle_joules,unattributed_joules,co2e_grams", ...rows("day", spent.days), ...rows("user", spent.users), ...rows("node", spent.nodes), ...rows("job", spent.jobs)].join("\r\n") + "\r\n";
}

export function EnergyPage() {
  const [days, choose] = useState(30);
  const [spent, set] = useState<Energy>();
  const [problem, fail] = useState("");
  useEffect(() => {
    let over = false;
    const load = async () => {
      try {
        const { body } = await get<Energy>("/energy", { days, zone: Intl.DateTimeFormat().resolvedOptions().timeZone });
        if (!over) {
          set(body);
          fail("");
        }
      } catch (err) {
        if (!over) fail(words(err));
      }
    };
    void load();
    const timer = setInterval(() => document.hidden || void load(), refresh);
    return () => {
      over = true;
      clearInterval(timer);
    };
  }, [days]);
  const total = spent ? whole(spent.total) : 0;
  return (
    <>
      <div class="head">
        <h1 tabIndex={-1}>Energy</h1>
        {spent && (
          <ul class="facts">
            <li><b>{energy(total)}</b> in all</li>
            <li><b>{part(spent.total.active_uj, total)}</b> used by jobs</li>
            <li><b>{part(idle(spent.total), total)}</b> of devices that did not work</li>
            <li><b>{part(nobody(spent.total), total)}</b> of no job</li>
            {spent.total.co2e_g !== undefined && <li><b>{carbon(spent.total.co2e_g)}</b> CO₂e</li>}
            <li class="dim">{(spent.methods ?? []).every((m) => m === "modelled") ? "modelled, not measured" : "by " + (spent.methods ?? []).join(", ")}</li>
          </ul>
        )}
        {spent && total > 0 && <button onClick={() => save(`energy-${days}-days.csv`, "text/csv", [csv(spent)])}>CSV</button>}
        <select aria-label="Days" value={days} onChange={(e) => choose(Number(e.currentTarget.value))}>
          {[1, 7, 30, 90].map((n) => <option key={n} value={n}>{n === 1 ? "today" : `${n} days`}</option>)}
        </select>
      </div>
      {problem && <p class="why" role="alert">{problem}</p>}
      {spent && total === 0 && <p class="empty">No hour of these days is in the ledger yet.</p>}
      {spent && total > 0 && (
        <>
          <Panel title="By day">
            <figure class="chart">
              <Days days={spent.days} budget={budget(spent)} />
              <figcaption class="small">
                <span class="key"><i class="used" />jobs</span><span class="key"><i class="idle" />idle devices</span><span class="key"><i class="nobody" />no job</span>
                {budget(spent) > 0 && <span class="key budget"><svg width="18" height="8" aria-hidden="true"><line class="budget" x1="0" x2="18" y1="4" y2="4" /></svg>{energy(budget(spent))} a day: the power budget of {spent.power_budget_watts} W for devices{budget(spent) > beyond * Math.max(...spent.days.map(whole)) && ", higher than drawn"}</span>}
                {spent.days.some((d) => d.co2e_g !== undefined) && <span class="key"><svg width="18" height="8" aria-hidden="true"><line class="carbon" x1="0" x2="18" y1="4" y2="4" /><circle class="carbon" cx="9" cy="4" r="3" /></svg>carbon</span>}
              </figcaption>
              <details><summary class="small">as a table</summary><Rows title="day" rows={spent.days} of={total} /></details>
            </figure>
          </Panel>
          {spent.quotas.length > 0 && <Quotas quotas={spent.quotas} />}
          <div class="three">
            <Panel title="by user"><Rows title="user" rows={spent.users} of={total} /></Panel>
            <Panel title="by node"><Rows title="node" rows={spent.nodes} of={total} /></Panel>
            <Panel title="by job"><Rows title="job" rows={spent.jobs} of={total} name={(s) => <JobLink id={s.key} name={s.name} />} /></Panel>
          </div>
        </>
      )}
    </>
  );
}

// budget is the energy of a day at the power that the plan lets all devices draw; 0 without a bound.
const budget = (spent: Energy) => (spent.power_budget_watts ?? 0) * 86400e6;

// beyond is how much taller than the tallest day a budget may be in the drawing.
const beyond = 2;

// Quotas shows what tenants have used of what they may use in a month.
function Quotas({ quotas }: { quotas: EnergyQuota[] }) {
  return (
    <Panel title={`Budgets of tenants in ${quotas[0]?.month}`}>
      <div class="scroll">
        <table>
          <thead><tr><th>tenant</th><th class="right">used</th><th class="right">budget</th><th class="right">part</th><th class="rung">used of the budget</th></tr></thead>
          <tbody>{quotas.map((q) => {
            const most = q.energy_kwh_per_month * 3.6e12;
            return (
              <tr key={q.tenant}>
                <td>{q.tenant}</td><td class="right number">{energy(q.used_uj)}</td><td class="right number">{energy(most)}</td>
                <td class={`right number ${q.used_uj >= most ? "bad" : ""}`}>{part(q.used_uj, most) || "–"}{q.used_uj >= most && " used up: its jobs that wait go on waiting"}</td>
                <td><Meter value={q.used_uj} most={most} label={`${q.tenant} has used ${part(q.used_uj, most)} of its budget`} kind={q.used_uj > 0.9 * most ? "high" : ""} /></td>
              </tr>
            );
          })}</tbody>
        </table>
      </div>
    </Panel>
  );
}

function Rows({ title, rows, of, name }: { title: string; rows: Spent[]; of: number; name?: (s: Spent) => ComponentChildren }) {
  const known = rows.some((s) => s.co2e_g !== undefined);
  return (
    <div class="scroll">
      <table>
        <thead><tr><th>{title}</th><th class="right">used</th><th class="right">idle</th><th class="right">all</th><th class="right">part</th>{known && <th class="right">CO₂e</th>}</tr></thead>
        <tbody>{rows.map((s) => (
          <tr key={s.key}>
            <td>{name ? name(s) : s.key || "unknown"}</td><td class="right number">{energy(s.active_uj)}</td><td class="right number dim">{energy(idle(s))}</td><td class="right number">{energy(whole(s))}</td><td class="right number dim">{part(whole(s), of)}</td>
            {known && <td class="right number">{s.co2e_g === undefined ? "unknown" : carbon(s.co2e_g)}</td>}
          </tr>
        ))}</tbody>
      </table>
    </div>
  );
}

// Days draws what each day took, the budget of a day as a line, and the carbon of each day as another, on a scale of its own
// at the right.
function Days({ days, budget }: { days: Spent[]; budget: number }) {
  const { ref, width } = useWidth();
  const emitted = Math.max(0, ...days.map((d) => d.co2e_g ?? 0));
  const height = 190, bottom = 20, top = 20, left = 8, right = emitted > 0 ? 62 : 8;
  const tallest = Math.max(...days.map(whole));
  // A budget far above all days would leave nothing to see of them: its line is then at the top, and the legend says so.
  const most = Math.max(tallest, Math.min(budget, beyond * tallest));
  const step = Math.min(90, (width - left - right) / Math.max(1, days.length));
  const tall = (x: number, of: number) => (x / of) * (height - bottom - top);
  const ground = height - bottom, end = left + days.length * step;
  const points = days.flatMap((d, i) => (d.co2e_g === undefined || emitted === 0 ? [] : [{ d, x: left + (i + 0.35) * step, y: ground - tall(d.co2e_g, emitted) }]));
  return (
    <svg ref={ref} height={height} role="img" aria-label="energy of each day">
      {days.map((d, i) => {
        const x = left + i * step, w = Math.max(2, step * 0.7);
        const a = tall(d.active_uj, most), b = tall(idle(d), most), c = tall(nobody(d), most);
        return (
          <g key={d.key}>
            <title>{`${d.key}: ${energy(whole(d))}`}</title>
            <rect class="span used" x={x} width={w} y={ground - a} height={a} />
            <rect class="span idle" x={x} width={w} y={ground - a - b} height={b} />
            <rect class="span nobody" x={x} width={w} y={ground - a - b - c} height={c} />
            {step > 56 && <text class="over" x={x + w / 2} y={ground - a - b - c - 4} text-anchor="middle">{energy(whole(d))}</text>}
            {(step > 40 || i % Math.ceil(40 / step) === 0) && <text x={x + w / 2} y={height - 5} text-anchor="middle">{d.key.slice(5)}</text>}
          </g>
        );
      })}
      {budget > 0 && <line class="budget" x1={left} x2={end} y1={ground - tall(Math.min(budget, most), most)} y2={ground - tall(Math.min(budget, most), most)}><title>{`budget: ${energy(budget)} a day`}</title></line>}
      {points.length > 0 && (
        <g>
          <polyline class="carbon" points={points.map((p) => `${p.x.toFixed(1)},${p.y.toFixed(1)}`).join(" ")} />
          {points.map((p) => <circle key={p.d.key} class="carbon" cx={p.x} cy={p.y} r="3"><title>{`${p.d.key}: ${carbon(p.d.co2e_g ?? 0)} CO₂e`}</title></circle>)}
          <text x={end + 4} y={top + 4}>{carbon(emitted)}</text>
          <text x={end + 4} y={top + 16}>CO₂e</text>
          <text x={end + 4} y={ground}>0</text>
        </g>
      )}
    </svg>
  );
}
