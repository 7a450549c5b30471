import { useEffect } from "preact/hooks";
import { Slider, usePast } from "./past";
import { bytes, clock, duration, until, watts } from "./format";
import { JobLink, Meter, Panel, Progress, State, isActive, isOver, kindOf } from "./parts";
import { renewNodes, useNow, useStore } from "./store";
import type { Device, Exclusion, Job, Node, NodeJob, Plan } from "./types";

const refresh = 3000;
const silent = 30_000;
// most is the number of waiting jobs that are listed.
const most = 50;

export function Yard() {
  const { nodes: present, looked, order, plan: newest } = useStore();
  const past = usePast(present);
  const time = useNow();
  const nodes = past.nodes ?? present, plan = past.nodes ? past.plan : newest, now = past.at ?? time;
  useEffect(() => {
    const timer = setInterval(() => document.hidden || renewNodes(), refresh);
    return () => clearInterval(timer);
  }, []);
  const devices = nodes.flatMap((n) => n.devices.map((d) => ({ n, d })));
  const busy = devices.filter(({ n, d }) => n.jobs.some((j) => j.devices.includes(d.id))).length;
  const power = nodes.reduce((sum, n) => sum + (n.power?.node_uw ?? 0), 0);
  const waiting = order.filter((j) => !isOver(j.state) && !isActive(j.state) && !j.jobs);
  return (
    <>
      <div class="head">
        <h1 tabIndex={-1}>Yard</h1>
        <ul class="facts">
          <li><b>{busy}</b> of {devices.length} devices {past.at ? "held" : "busy"}</li>
          <li><b>{past.at ? (plan?.allocations ?? []).length : order.filter((j) => isActive(j.state) && !j.jobs).length}</b> {past.at ? "had devices" : "running"}</li>
          <li><b>{past.at ? (plan?.waiting ?? []).length : waiting.length}</b> waiting</li>
          {power > 0 && <li><b>{watts(power)}</b> {past.at ? "then" : "now"}</li>}
          {plan && plan.generation > 0 && <li class="dim">plan {plan.generation} by {plan.policy}, {clock(plan.decided_at, now)}</li>}
        </ul>
      </div>
      <Slider past={past} now={time} />
      <div class="yard">
        <div class="nodes">
          {nodes.length === 0 && <p class="empty">No node has reported yet.</p>}
          {nodes.map((n) => <NodeRow key={n.id} node={n} looked={past.at ?? looked} now={now} />)}
        </div>
        {past.at ? <QueueThen plan={past.plan} /> : <Queue now={now} />}
      </div>
    </>
  );
}

function NodeRow({ node, looked, now }: { node: Node; looked: number; now: number }) {
  const away = looked - Date.parse(node.seen_at);
  const whole = node.exclusions.filter((e) => !e.devices?.length && !e.job);
  return (
    <section class={`panel node ${away > silent ? "away" : ""}`} aria-label={`node ${node.name || node.id}`}>
      <header>
        <h2>{node.name || node.id}</h2>
        <div class="aside">
          {away > silent && <span class="flag bad">agent away for {duration(away / 1000)}</span>}
          {node.power && <span title={node.power.methods.join(", ")}>{watts(node.power.node_uw)}{node.power.methods.every((m) => m === "modelled") ? " modelled" : ""}</span>}
          <span class="dim">{node.cores} cores, {bytes(node.memory_bytes)}</span>
        </div>
      </header>
      {whole.map((e, i) => <Why key={i} exclusion={e} now={now} />)}
      <ul class="tiles">
        {node.devices.map((d) => <Tile key={d.id} node={node} device={d} away={away > silent} now={now} />)}
      </ul>
    </section>
  );
}

function Why({ exclusion: e, now }: { exclusion: Exclusion; now: number }) {
  return (
    <p class="why">
      <span class="sign" aria-hidden="true">⊘</span> set aside: {e.reason.message}
      {e.reason.hint && <span class="dim"> ({e.reason.hint})</span>}
      {e.until && <span class="dim"> until {clock(e.until, now)}</span>}
    </p>
  );
}

function Tile({ node, device: d, away, now }: { node: Node; device: Device; away: boolean; now: number }) {
  const jobs = node.jobs.filter((j) => j.devices.includes(d.id));
  const aside = node.exclusions.filter((e) => e.devices?.includes(d.id));
  const board = node.power?.boards?.[d.id];
  const power = node.power?.devices_uw[d.id];
  const limit = board?.limit_w ?? d.busy_watts;
  const first = jobs[0];
  const status = away ? "away" : aside.length > 0 ? "aside" : first ? kindOf(first.state) : "free";
  return (
    <li class={`tile ${status}`}>
      <div class="device">
        <b>{d.id}</b>
        <span class="dim" title={d.model}>{d.simulated ? "simulated" : (d.model ?? d.kind)}</span>
      </div>
      {jobs.map((j) => <Holder key={j.id} job={j} now={now} />)}
      {jobs.length === 0 && !d.held_by && aside.length === 0 && <div class="free">{away ? "unknown" : "free"}</div>}
      {d.held_by && <div class="why">held by {d.held_by}</div>}
      {aside.map((e, i) => <Why key={i} exclusion={e} now={now} />)}
      {board?.sm_util_ratio !== undefined && <Gauge name="use" words={`${Math.round(100 * board.sm_util_ratio)} %`} value={board.sm_util_ratio} most={1} />}
      {board?.memory_used_bytes !== undefined && d.memory_bytes ? <Gauge name="memory" words={`${bytes(board.memory_used_bytes)} of ${bytes(d.memory_bytes)}`} value={board.memory_used_bytes} most={d.memory_bytes} /> : null}
      {power !== undefined && <Gauge name="power" words={watts(power) + (limit ? ` of ${Math.round(limit)} W` : "")} value={power / 1e6} most={limit ?? 0} />}
      {board?.throttle?.length ? <div class="why">slowed by {board.throttle.join(", ")}</div> : null}
    </li>
  );
}

function Gauge({ name, words, value, most }: { name: string; words: string; value: number; most: number }) {
  return (
    <div class="gauge">
      <span class="dim">{name}</span>
      {most > 0 ? <Meter value={value} most={most} label={`${name} ${words}`} kind={value / most > 0.9 ? "high" : ""} /> : <span />}
      <span class="number">{words}</span>
    </div>
  );
}

function Holder({ job: held, now }: { job: NodeJob; now: number }) {
  const { jobs } = useStore();
  const job = jobs.get(held.id);
  if (!held.state) return <div class="holder"><div class="who"><JobLink id={held.id} name={job?.name} /></div><div class="small dim">{job?.user}</div></div>;
  const shares = (held.memory_bytes ?? 0) > 0;
  return (
    <div class="holder">
      <div class="who"><JobLink id={held.id} name={job?.name} /><State state={job?.state ?? held.state} /></div>
      <Progress part={job?.progress} label={`progress of ${job?.name || held.id}`} />
      {job?.reason === "Silent" && <div class="why bad">silent: {job.message}</div>}
      <div class="small dim">
        {[
          job?.user,
          job && job.predicted?.finish ? "ends " + until(job.predicted.finish, now) : "",
          held.gpus_busy ? `uses ${Math.round(100 * held.gpus_busy)} %` : held.processors_busy ? `uses ${held.processors_busy.toFixed(1)} cores` : "",
          shares ? `${held.memory_used_bytes ? bytes(held.memory_used_bytes) + " of its " : "its part: "}${bytes(held.memory_bytes ?? 0)}` : "",
        ].filter(Boolean).join(" · ")}
      </div>
    </div>
  );
}

// QueueThen lists the jobs that waited by a plan of the past.
function QueueThen({ plan }: { plan?: Plan }) {
  const { jobs } = useStore();
  const all = plan?.waiting ?? [];
  return (
    <Panel title="Queue then" aside={<span class="dim">{all.length}</span>} class="queue">
      {all.length === 0 && <p class="empty">Nothing waited.</p>}
      <ol>{all.slice(0, most).map((w) => (
        <li key={w.job}>
          <div class="who"><JobLink id={w.job} name={jobs.get(w.job)?.name} /></div>
          <div class="small dim">{w.blockers[0]?.message}</div>
        </li>
      ))}</ol>
    </Panel>
  );
}

// Queue lists the waiting jobs in the order in which the plan would serve them.
function Queue({ now }: { now: number }) {
  const { plan, jobs, order } = useStore();
  const planned = (plan?.waiting ?? []).map((w) => ({ w, job: jobs.get(w.job) })).filter((x): x is { w: typeof x.w; job: Job } => x.job !== undefined && !isOver(x.job.state));
  const known = new Set(planned.map((x) => x.job.id));
  const rest = order.filter((j) => ["submitted", "queued", "held", "paused", "preempted", "recovering"].includes(j.state) && !known.has(j.id) && !j.jobs);
  return (
    <Panel title="Queue" aside={<span class="dim">{planned.length + rest.length}</span>} class="queue">
      {planned.length + rest.length === 0 && <p class="empty">Nothing waits.</p>}
      <ol>
        {planned.slice(0, most).map(({ w, job }) => (
          <li key={job.id}>
            <div class="who"><JobLink id={job.id} name={job.name} /><State state={job.state} /></div>
            <div class="small">{job.predicted?.start ? "starts " + until(job.predicted.start, now) : "start unknown"}{job.predicted?.finish && <span class="dim"> · ends {until(job.predicted.finish, now)}</span>}</div>
            <div class="small dim">{w.blockers[0]?.message ?? job.message}</div>
          </li>
        ))}
        {rest.slice(0, most).map((job) => (
          <li key={job.id}>
            <div class="who"><JobLink id={job.id} name={job.name} /><State state={job.state} /></div>
            <div class="small dim">{job.message}</div>
          </li>
        ))}
      </ol>
      {planned.length + rest.length > most && <p><a href="#/jobs?state=waiting">all that wait</a></p>}
    </Panel>
  );
}
