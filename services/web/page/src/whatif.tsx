import { useState } from "preact/hooks";
import { get, segment } from "./api";
import { clock, duration, joules, until } from "./format";
import { JobLink, Panel } from "./parts";
import { now as time, useStore, words } from "./store";
import type { Job, JobRecord, Moment, OutlookAnswer, Outlook } from "./types";

// The numbers of devices that are tried.
const devices = [1, 2, 4];

// named says in which way a variant differs.
function named(o: Outlook): string {
  if (o.devices) return o.devices === 1 ? "on 1 device" : `on ${o.devices} devices`;
  if (o.priority !== undefined) return `with priority ${o.priority}`;
  return o.share ? "sharing devices" : "as it is";
}

// WhatIf asks the planner what would become of a job, and of the others, if it were different. Nothing is changed.
export function WhatIf({ job }: { job: JobRecord }) {
  const old = job.spec.priority ?? 50;
  const [priority, choose] = useState(String(Math.min(100, old + 20)));
  const [answer, set] = useState<OutlookAnswer>();
  const [problem, fail] = useState("");
  const [asking, wait] = useState(false);
  const ask = async () => {
    wait(true);
    try {
      const { body } = await get<OutlookAnswer>(`/jobs/${segment(job.id)}/whatif`, { devices: devices.join(","), priority, share: "true" });
      set(body);
      fail("");
    } catch (err) {
      fail(words(err));
    }
    wait(false);
  };
  return (
    <Panel
      title="What if"
      aside={
        <form class="inline" onSubmit={(e) => { e.preventDefault(); void ask(); }}>
          <label class="small">priority <input type="number" min="0" max="100" step="1" required value={priority} onInput={(e) => choose(e.currentTarget.value)} /></label>
          <button type="submit" disabled={asking}>{answer ? "Ask again" : "Ask the planner"}</button>
        </form>
      }
    >
      {problem && <p class="why" role="alert">{problem}</p>}
      {!answer && <p class="empty">The planner can say when it would end {devices.map((n) => `on ${n}`).join(", ")} devices, with another priority, or on devices that it shares, and who would end later by that. Asking changes nothing.</p>}
      {answer && <Outlooks answer={answer} />}
    </Panel>
  );
}

function Outlooks({ answer }: { answer: OutlookAnswer }) {
  const { jobs } = useStore();
  const now = time();
  const asIs = answer.outlooks[0]?.predicted?.finish;
  return (
    <>
      <div class="scroll" role="status">
        <table class="cards">
          <thead><tr><th>variant</th><th>starts</th><th>ends</th><th>compared</th><th>energy from now on</th><th>others</th></tr></thead>
          <tbody>{answer.outlooks.map((o, i) => (
            <tr key={i}>
              <td class="number"><b>{named(o)}</b></td>
              {o.refused ? <td colSpan={5} class="why">{o.refused.message}{o.refused.hint && <span class="dim"> ({o.refused.hint})</span>}</td> : (
                <>
                  <td data-label="starts">{o.allocation ? "has devices at once" : o.predicted?.start ? <When at={o.predicted.start} now={now} /> : <span class="dim">unknown</span>}<Blockers o={o} /></td>
                  <td data-label="ends">{o.predicted?.finish ? <When at={o.predicted.finish} now={now} /> : <span class="dim">unknown</span>}</td>
                  <td class="number" data-label={i > 0 ? "compared" : undefined}>{i > 0 && <Compared at={o.predicted?.finish} to={asIs} />}</td>
                  <td class="number" data-label="energy">{o.energy ? <>{joules(o.energy.joules)}<div class="small dim">{joules(o.energy.low_joules)} to {joules(o.energy.high_joules)}</div></> : <span class="dim">unknown</span>}</td>
                  <td data-label={i > 0 ? "others" : undefined}>{i > 0 && <Others o={o} jobs={jobs} />}</td>
                </>
              )}
            </tr>
          ))}</tbody>
        </table>
      </div>
      <p class="small dim foot">By the planner, {clock(answer.decided_at, now)}. The truth lies in eight of ten cases within an interval. Energy is what its devices draw at most. Others are compared with the job as it is.</p>
    </>
  );
}

function When({ at, now }: { at: Moment; now: number }) {
  return <><span class="number">{until(at, now)}</span><div class="small dim">{clock(at.low, now)} to {clock(at.high, now)}</div></>;
}

function Blockers({ o }: { o: Outlook }) {
  const first = o.waiting?.blockers[0];
  return first ? <div class="small dim">{first.message}</div> : null;
}

function Compared({ at, to }: { at?: Moment; to?: Moment }) {
  if (!at || !to) return <span class="dim">–</span>;
  const later = (Date.parse(at.expected) - Date.parse(to.expected)) / 1000;
  if (Math.abs(later) < 1) return <span class="dim">the same</span>;
  return <>{duration(Math.abs(later))} {later > 0 ? "later" : "sooner"}</>;
}

// Others says who would end later or sooner, who would move, and whom that leaves without devices.
export function Others({ o, jobs }: { o: Outlook; jobs: Map<string, Job> }) {
  const shifted = o.shifted ?? [];
  const moved = (o.moved ?? []).filter((m) => !shifted.some((s) => s.job === m.job));
  if (shifted.length + moved.length === 0) return <span class="dim">nobody ends later or sooner</span>;
  const most = 4;
  const more = shifted.length - Math.min(most, shifted.length) + (o.shifted_more ?? 0);
  return (
    <ul class="small">
      {shifted.slice(0, most).map((s) => (
        <li key={s.job}><JobLink id={s.job} name={jobs.get(s.job)?.name} /> {!s.finish ? "would not end in sight" : <>ends <b>{duration(Math.abs(s.seconds ?? 0))}</b> {(s.seconds ?? 0) > 0 ? "later" : "sooner"}</>}</li>
      ))}
      {more > 0 && <li class="dim">and {more} more</li>}
      {moved.map((m) => <li key={m.job}><JobLink id={m.job} name={jobs.get(m.job)?.name} /> {m.places?.length ? "moves to other devices" : "leaves its devices"}{m.reason?.message && <span class="dim">: {m.reason.message}</span>}</li>)}
    </ul>
  );
}
