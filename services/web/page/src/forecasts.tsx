import { useEffect, useState } from "preact/hooks";
import { get, segment } from "./api";
import { Chart } from "./chart";
import { clock, duration } from "./format";
import { Panel, isOver } from "./parts";
import { now as time } from "./store";
import type { Forecast, JobRecord } from "./types";

const refresh = 30_000;

// Forecasts shows when plans predicted that a job ends, over its life, and when it ended.
export function Forecasts({ job }: { job: JobRecord }) {
  const [all, set] = useState<Forecast[]>([]);
  const over = isOver(job.state);
  useEffect(() => {
    let left = false;
    const load = () => get<Forecast[]>(`/jobs/${segment(job.id)}/forecasts`).then(({ body }) => { if (!left) set(body); }, () => undefined);
    void load();
    const timer = over ? 0 : setInterval(() => void load(), refresh);
    return () => {
      left = true;
      clearInterval(timer);
    };
  }, [job.id, over]);
  if (all.length < 2) return null;
  const first = Date.parse(job.submitted_at);
  const now = time();
  // Minutes or hours since the submission, whichever a person reads more easily.
  const hours = (Date.parse(all.at(-1)?.finish?.high ?? "") - first) / 3600e3 > 3;
  const since = (iso: string) => (Date.parse(iso) - first) / (hours ? 3600e3 : 60e3);
  const unit = hours ? "hours" : "minutes";
  const points = all.flatMap((f) => (f.finish ? [{ x: since(f.at), y: since(f.finish.expected) }] : []));
  const band = { name: "interval", points: all.flatMap((f) => (f.finish ? [{ x: since(f.at), low: since(f.finish.low), high: since(f.finish.high) }] : [])) };
  const came = over && job.finished_at ? since(job.finished_at) : undefined;
  const end = { name: "when it ended", dashed: true, points: came === undefined ? [] : [{ x: 0, y: came }, { x: came, y: came }] };
  return (
    <Panel title="Predicted end over its life">
      <Chart title={`predicted end in ${unit} since the submission`} x={`${unit} since the submission`} band={band} series={[{ name: `predicted end, in ${unit}`, points, dots: true }, ...(came === undefined ? [] : [end])]}>
        <table>
          <thead><tr><th>at</th><th>predicted end</th><th>interval</th>{came !== undefined && <th class="right">off by</th>}</tr></thead>
          <tbody>{all.map((f) => f.finish && (
            <tr key={f.at}>
              <td>{clock(f.at, now)}</td><td>{clock(f.finish.expected, now)}</td><td class="dim">{clock(f.finish.low, now)} to {clock(f.finish.high, now)}</td>
              {came !== undefined && <td class="right number">{duration(Math.abs(Date.parse(f.finish.expected) - Date.parse(job.finished_at ?? "")) / 1000)}</td>}
            </tr>
          ))}</tbody>
        </table>
      </Chart>
    </Panel>
  );
}
