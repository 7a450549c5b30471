import { useEffect } from "preact/hooks";
import { clock, duration } from "./format";
import { useLoaded } from "./load";
import { JobLink, isOver } from "./parts";
import { renewNodes, useNow, useStore } from "./store";
import type { ComponentChildren } from "preact";
import type { About } from "./types";

// A job that failed asks for a person for a day.
const recent = 24 * 3600 * 1000;
// The agent of a node writes every few seconds.
const silent = 30_000;
const look = 15_000;

// Banner names what needs a person.
export function Banner() {
  const { order, nodes, looked, live, problem } = useStore();
  const now = useNow();
  const { body: about } = useLoaded<About>("", () => false, look);
  // An agent that is away changes nothing, so no event says it.
  useEffect(() => {
    const timer = setInterval(() => document.hidden || renewNodes(), look);
    return () => clearInterval(timer);
  }, []);
  const lines: { key: string; what: ComponentChildren; bad?: boolean }[] = [];
  if (live === "away") {
    lines.push({ key: "away", bad: true, what: <>Switchyard does not answer; what you see may be old. The page tries again by itself. {problem && <span class="dim">{problem}</span>}</> });
  }
  if (about?.trouble) lines.push({ key: "trouble", bad: true, what: <>The bus stores nothing: {about.trouble}</> });
  for (const n of nodes) {
    const age = looked - Date.parse(n.seen_at);
    if (age > silent) lines.push({ key: "n" + n.id, bad: true, what: <>The agent of node <b>{n.name || n.id}</b> is away for {duration(age / 1000)}.</> });
    if (n.disk_trouble) lines.push({ key: "f" + n.id, bad: true, what: <>The disk of node <b>{n.name || n.id}</b> is full, and no job is started there: {n.disk_trouble}</> });
    if (n.reports_waiting) lines.push({ key: "r" + n.id, what: <>Node <b>{n.name || n.id}</b> holds {n.reports_waiting} reports that the bus does not take.</> });
    for (const [meter, why] of Object.entries(n.meter_troubles ?? {})) lines.push({ key: "m" + n.id + meter, what: <>Meter {meter} of node <b>{n.name || n.id}</b> does not work: {why}</> });
  }
  const quiet = order.filter((j) => j.reason === "Silent");
  for (const j of quiet.slice(0, 3)) lines.push({ key: "s" + j.id, bad: true, what: <><JobLink id={j.id} name={j.name} /> is silent: {j.message}</> });
  const unfinished = order.filter((j) => !isOver(j.state) && !j.jobs);
  const late = unfinished.filter((j) => j.deadline && Date.parse(j.deadline) < now);
  for (const j of late.slice(0, 3)) lines.push({ key: "d" + j.id, bad: true, what: <><JobLink id={j.id} name={j.name} /> has passed its deadline {clock(j.deadline ?? "", now)}; it is {j.state}.</> });
  const long = unfinished.filter((j) => j.estimated_hours && j.run_seconds > 3600 * j.estimated_hours);
  for (const j of long.slice(0, 3)) lines.push({ key: "e" + j.id, what: <><JobLink id={j.id} name={j.name} /> has run for {duration(j.run_seconds)}; {j.estimated_hours} h were estimated.</> });
  const failed = order.filter((j) => j.state === "failed" && j.finished_at && now - Date.parse(j.finished_at) < recent);
  const first = failed[0];
  if (first) {
    lines.push({
      key: "failed",
      what: failed.length === 1
        ? <><JobLink id={first.id} name={first.name} /> failed: {first.message}</>
        : <><a href="#/jobs?state=failed">{failed.length} jobs failed</a> within a day, last <JobLink id={first.id} name={first.name} />: {first.message}</>,
    });
  }
  if (lines.length === 0) return null;
  return (
    <section class="banner" aria-label="What needs a person">
      <ul>
        {lines.map((l) => (
          <li key={l.key} class={l.bad ? "bad" : ""}><span class="sign" aria-hidden="true">{l.bad ? "✕" : "!"}</span><span>{l.what}</span></li>
        ))}
      </ul>
    </section>
  );
}
