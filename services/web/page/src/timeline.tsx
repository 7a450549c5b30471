import { useWidth } from "./chart";
import { clock, duration } from "./format";
import { Panel, State, kindOf, isActive, isOver } from "./parts";
import type { Change, JobRecord } from "./types";

interface Stretch { from: number; to: number; change: Change }

// stretches are the times between the changes of a job that follow each other.
function stretches(job: JobRecord, now: number): Stretch[] {
  const changes = job.history ?? [];
  const end = isOver(job.state) && job.finished_at ? Date.parse(job.finished_at) : now;
  const all: Stretch[] = [];
  for (const [i, change] of changes.entries()) {
    const from = Date.parse(change.at);
    const next = changes[i + 1];
    const last = all.at(-1);
    const to = next ? Date.parse(next.at) : end;
    if (last && last.change.state === change.state && String(last.change.devices) === String(change.devices)) last.to = to;
    else all.push({ from, to: Math.max(from, to), change });
  }
  return all.filter((s) => s.to > s.from);
}

// ranWithin is how long a job had devices between two times, in milliseconds.
export function ranWithin(job: JobRecord, from: number, to: number): number {
  return stretches(job, to).filter((s) => isActive(s.change.state)).reduce((sum, s) => sum + Math.max(0, Math.min(s.to, to) - Math.max(s.from, from)), 0);
}

// Timeline shows the states of a job and its devices over time.
export function Timeline({ job, now }: { job: JobRecord; now: number }) {
  const { ref, width } = useWidth();
  const all = stretches(job, now);
  const first = all[0], last = all.at(-1);
  if (!first || !last) return <Panel title="Timeline"><p class="empty">Nothing has happened yet.</p></Panel>;
  const row = 22, left = 64;
  const devices = [...new Set(all.flatMap((s) => s.change.devices ?? []))].sort();
  const sx = (t: number) => left + ((t - first.from) / Math.max(1, last.to - first.from)) * (width - left - 4);
  const rows = ["state", ...devices];
  const height = rows.length * row + 22;
  return (
    <Panel title="Timeline">
      <figure class="chart">
        <svg ref={ref} height={height} role="img" aria-label="states and devices over time">
          {rows.map((name, i) => <text key={name} x={left - 8} y={i * row + 15} text-anchor="end">{name}</text>)}
          {all.map((s, i) => (
            <rect key={i} class={`span ${kindOf(s.change.state)}`} x={sx(s.from)} width={Math.max(1, sx(s.to) - sx(s.from) - 0.5)} y={4} height={row - 8} rx="2">
              <title>{`${s.change.state} for ${duration((s.to - s.from) / 1000)}`}</title>
            </rect>
          ))}
          {devices.flatMap((d, k) =>
            all.filter((s) => s.change.devices?.includes(d)).map((s) => (
              <rect key={d + s.from} class="span runs" x={sx(s.from)} width={Math.max(1, sx(s.to) - sx(s.from) - 0.5)} y={(k + 1) * row + 4} height={row - 8} rx="2">
                <title>{`${d}, attempt ${s.change.attempt ?? ""}, for ${duration((s.to - s.from) / 1000)}`}</title>
              </rect>
            )),
          )}
          <text x={left} y={height - 4}>{clock(job.submitted_at, now)}</text>
          <text x={width - 4} y={height - 4} text-anchor="end">{isOver(job.state) ? clock(new Date(last.to).toISOString(), now) : "now"}</text>
        </svg>
        <details>
          <summary class="small">as a table</summary>
          <div class="scroll"><table>
            <thead><tr><th>at</th><th>state</th><th>attempt</th><th>devices</th><th class="right">for</th></tr></thead>
            <tbody>{all.map((s, i) => <tr key={i}><td>{clock(s.change.at, now)}</td><td><State state={s.change.state} /></td><td>{s.change.attempt ?? ""}</td><td>{s.change.devices?.join(", ")}</td><td class="right number">{duration((s.to - s.from) / 1000)}</td></tr>)}</tbody>
          </table></div>
        </details>
      </figure>
    </Panel>
  );
}
