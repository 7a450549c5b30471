import { useEffect, useState } from "preact/hooks";
import { get } from "./api";
import { clock } from "./format";
import { JobLink, Panel } from "./parts";
import { now as time, words } from "./store";
import { Others } from "./whatif";
import type { Allocation, Job, OutlookAnswer, Plan } from "./types";

const places = (a: Allocation) => (a.parts?.length ? a.parts : [{ node: a.node, devices: a.devices }]).map((p) => `${p.node} ${[...p.devices].sort().join(", ")}`).sort().join("; ");

interface Step { job: string; what: string; why: string }

// steps are what one plan changes of the one before it.
function steps(before: Plan, plan: Plan): Step[] {
  const had = new Map((before.allocations ?? []).map((a) => [a.job, a]));
  const all: Step[] = [];
  for (const a of plan.allocations ?? []) {
    const old = had.get(a.job);
    had.delete(a.job);
    const why = a.reason.message + (a.reason.hint ? ` (${a.reason.hint})` : "");
    if (!old) all.push({ job: a.job, what: `gets ${places(a)}`, why });
    else if (places(old) !== places(a)) all.push({ job: a.job, what: `goes from ${places(old)} to ${places(a)}`, why });
  }
  for (const [job, a] of had) {
    const waits = (plan.waiting ?? []).find((w) => w.job === job);
    all.push({ job, what: `leaves ${places(a)}`, why: waits ? (waits.blockers[0]?.message ?? "it waits") : "it has ended, or is not to run" });
  }
  return all;
}

// Difference shows what the newest plan changes of the one before it.
export function Difference({ plan, jobs }: { plan: Plan; jobs: Map<string, Job> }) {
  const [before, set] = useState<Plan>();
  const [problem, fail] = useState("");
  useEffect(() => {
    let left = false;
    get<Plan>("/plan", { at: plan.decided_at }).then(({ body }) => { if (!left) { set(body); fail(""); } }, (err) => { if (!left) fail(words(err)); });
    return () => { left = true; };
  }, [plan.generation]);
  const all = before ? steps(before, plan) : [];
  return (
    <Panel title="What this plan changes" aside={before && before.generation < plan.generation && <span class="dim">compared with plan {before.generation}</span>}>
      {problem && <p class="empty">{problem}</p>}
      {before && all.length === 0 && <p class="empty">Everybody keeps what they have.</p>}
      {all.length > 0 && <div class="scroll"><table>
        <thead><tr><th>job</th><th>change</th><th class="wide">why</th></tr></thead>
        <tbody>{all.slice(0, 100).map((s) => <tr key={s.job}><td><JobLink id={s.job} name={jobs.get(s.job)?.name} /></td><td>{s.what}</td><td class="wide why">{s.why}</td></tr>)}</tbody>
      </table></div>}
      {all.length > 100 && <p class="small dim">and {all.length - 100} more</p>}
    </Panel>
  );
}

// The policies to compare with.
const policies = ["fifo", "srtf", "optimus", "switchyard"];

// Policies asks the planner what other policies would decide now. Nothing is changed.
export function Policies({ plan, jobs }: { plan: Plan; jobs: Map<string, Job> }) {
  const [answer, set] = useState<OutlookAnswer>();
  const [problem, fail] = useState("");
  const [asking, wait] = useState(false);
  const others = policies.filter((p) => p !== plan.policy);
  const ask = async () => {
    wait(true);
    try {
      set((await get<OutlookAnswer>("/plan/whatif", { policies: others.join(",") })).body);
      fail("");
    } catch (err) {
      fail(words(err));
    }
    wait(false);
  };
  const names = (ids: string[]) => ids.slice(0, 4).map((id, i) => <span key={id}>{i > 0 && ", "}<JobLink id={id} name={jobs.get(id)?.name} /></span>);
  return (
    <Panel title="What another policy would do" aside={<button disabled={asking} onClick={() => void ask()}>{answer ? "Ask again" : "Ask the planner"}</button>}>
      {problem && <p class="why" role="alert">{problem}</p>}
      {!answer && <p class="empty">The planner can say whom {others.join(", ")} would start, move or delay now. Asking changes nothing.</p>}
      {answer && (
        <>
          <div class="scroll" role="status"><table class="cards">
            <thead><tr><th>policy</th><th>starts at once</th><th class="wide">others, compared with {plan.policy}</th></tr></thead>
            <tbody>{answer.outlooks.slice(1).map((o) => (
              <tr key={o.policy}>
                <td><b>{o.policy}</b></td>
                {o.refused ? <td colSpan={2} class="why">{o.refused.message}</td> : (
                  <>
                    <td data-label="starts at once">{o.starts?.length ? <>{names(o.starts)}{o.starts.length > 4 && ` and ${o.starts.length - 4} more`}</> : <span class="dim">nobody</span>}</td>
                    <td class="wide" data-label="others"><Others o={o} jobs={jobs} /></td>
                  </>
                )}
              </tr>
            ))}</tbody>
          </table></div>
          <p class="small dim foot">By the planner, {clock(answer.decided_at, time())}: one decision of each policy on the jobs and devices of that moment.</p>
        </>
      )}
    </Panel>
  );
}
