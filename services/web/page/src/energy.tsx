import { useEffect, useState } from "preact/hooks";
import { get } from "./api";
import { useWidth } from "./chart";
import { energy } from "./format";
import { JobLink, Panel, save } from "./parts";
import { words } from "./store";
import type { ComponentChildren } from "preact";
import type { Energy, Spent } from "./types";

const refresh = 60_000;

const idle = (s: Spent) => s.idle_uj ?? 0;
const nobody = (s: Spent) => s.unattributed_uj ?? 0;
const whole = (s: Spent) => s.active_uj + idle(s) + nobody(s);
const part = (x: number, of: number) => (of > 0 ? `${((100 * x) / of).toFixed(0)} %` : "");

// csv has a row for each row of the tables, in joules.
function csv(spent: Energy): string {
  const field = (text: string) => (/[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : /^[=+@-]/.test(text) ? `'${text}` : text);
  const rows = (by: string, all: Spent[]) => all.map((s) => [by, field(s.key), field(s.name ?? ""), s.active_uj, idle(s), nobody(s)].map((v) => (typeof v === "number" ? v / 1e6 : v)).join(","));
  return ["by,key,name,active_joules,idle_joules,unattributed_joules", ...rows("day", spent.days), ...rows("user", spent.users), ...rows("node", spent.nodes), ...rows("job", spent.jobs)].join("\r\n") + "\r\n";
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
    const timer = setInterval(() => void load(), refresh);
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
              <Days days={spent.days} />
              <figcaption class="small"><span class="key"><i class="used" />jobs</span><span class="key"><i class="idle" />idle devices</span><span class="key"><i class="nobody" />no job</span></figcaption>
              <details><summary class="small">as a table</summary><Rows title="day" rows={spent.days} of={total} /></details>
            </figure>
          </Panel>
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

function Rows({ title, rows, of, name }: { title: string; rows: Spent[]; of: number; name?: (s: Spent) => ComponentChildren }) {
  return (
    <div class="scroll">
      <table>
        <thead><tr><th>{title}</th><th class="right">used</th><th class="right">idle</th><th class="right">all</th><th class="right">part</th></tr></thead>
        <tbody>{rows.map((s) => <tr key={s.key}><td>{name ? name(s) : s.key || "unknown"}</td><td class="right number">{energy(s.active_uj)}</td><td class="right number dim">{energy(idle(s))}</td><td class="right number">{energy(whole(s))}</td><td class="right number dim">{part(whole(s), of)}</td></tr>)}</tbody>
      </table>
    </div>
  );
}

function Days({ days }: { days: Spent[] }) {
  const { ref, width } = useWidth();
  const height = 170, bottom = 20, top = 16, left = 8;
  const most = Math.max(...days.map(whole));
  const step = Math.min(90, (width - 2 * left) / Math.max(1, days.length));
  const tall = (x: number) => (x / most) * (height - bottom - top);
  return (
    <svg ref={ref} height={height} role="img" aria-label="energy of each day">
      {days.map((d, i) => {
        const x = left + i * step, w = Math.max(2, step * 0.7);
        const a = tall(d.active_uj), b = tall(idle(d)), c = tall(nobody(d)), ground = height - bottom;
        return (
          <g key={d.key}>
            <title>{`${d.key}: ${energy(whole(d))}`}</title>
            <rect class="span used" x={x} width={w} y={ground - a} height={a} />
            <rect class="span idle" x={x} width={w} y={ground - a - b} height={b} />
            <rect class="span nobody" x={x} width={w} y={ground - a - b - c} height={c} />
            {step > 56 && <text x={x + w / 2} y={ground - a - b - c - 4} text-anchor="middle">{energy(whole(d))}</text>}
            {(step > 40 || i % Math.ceil(40 / step) === 0) && <text x={x + w / 2} y={height - 5} text-anchor="middle">{d.key.slice(5)}</text>}
          </g>
        );
      })}
    </svg>
  );
}
