import { useEffect, useState } from "preact/hooks";
import { Refused, get } from "./api";
import { clock, duration } from "./format";
import { words } from "./store";
import type { Allocation, Minute, Node, Plan } from "./types";

// The slider goes back over a day, in minutes. Minutes that are not over are not kept yet.
const day = 24 * 60;
const least = 2;
// pause is how long the slider stands still before its minute is loaded.
const pause = 150;

export interface Past { at?: number; go: (at?: number) => void; plan?: Plan; nodes?: Node[]; problem: string }

const places = (a: Allocation) => (a.parts?.length ? a.parts : [{ node: a.node, devices: a.devices }]);

// then is a node as it was: who had its devices by the plan in force, and what its meters showed.
function then(node: Node, at: number, plan: Plan | undefined, minute: Minute | undefined): Node {
  const jobs = (plan?.allocations ?? []).flatMap((a) =>
    places(a).filter((p) => p.node === node.id).map((p) => ({ id: a.job, devices: p.devices, state: "", mean_uw: 0, power_methods: [] })));
  const devices = Object.entries(minute?.devices ?? {});
  return {
    ...node,
    devices: node.devices.map((d) => ({ ...d, held_by: undefined })),
    exclusions: [],
    jobs,
    seen_at: new Date(at).toISOString(),
    power: minute && {
      node_uw: minute.node_uw,
      devices_uw: Object.fromEntries(devices.map(([id, d]) => [id, d.power_uw])),
      methods: node.power?.methods ?? [],
      boards: Object.fromEntries(devices.map(([id, d]) => [id, d])),
    },
  };
}

// usePast loads the plan and the meters of a minute of the last day. Without a time it gives no nodes: they are as they
// are now.
export function usePast(nodes: Node[]): Past {
  const [at, go] = useState<number>();
  const [loaded, set] = useState<{ at: number; plan?: Plan; minutes: Minute[] }>();
  const [problem, fail] = useState("");
  useEffect(() => {
    if (at === undefined) {
      set(undefined);
      fail("");
      return;
    }
    let left = false;
    const load = async () => {
      const query = { at: new Date(at).toISOString() };
      try {
        const [plan, minutes] = await Promise.all([
          get<Plan>("/plan", query).then((a) => a.body, (err) => { if (err instanceof Refused && err.status === 404) return undefined; throw err; }),
          get<Minute[]>("/minutes", query),
        ]);
        if (left) return;
        set({ at, plan, minutes: minutes.body });
        fail(!plan && minutes.body.length === 0 ? "Nothing is kept of that time." : "");
      } catch (err) {
        if (!left) fail(words(err));
      }
    };
    const timer = setTimeout(() => void load(), pause);
    return () => {
      left = true;
      clearTimeout(timer);
    };
  }, [at]);
  if (at === undefined || !loaded) return { at: undefined, go, problem };
  return { at: loaded.at, go, plan: loaded.plan, problem, nodes: nodes.map((n) => then(n, loaded.at, loaded.plan, loaded.minutes.find((m) => m.node === n.id))) };
}

export function Slider({ past, now }: { past: Past; now: number }) {
  const [at, move] = useState<number>();
  const set = (minutes: number) => {
    const chosen = minutes < least ? undefined : Math.floor(now / 60_000 - minutes) * 60_000;
    move(chosen);
    past.go(chosen);
  };
  const back = at === undefined ? 0 : Math.floor((now - at) / 60_000);
  const label = at === undefined ? "now" : `${duration(back * 60)} ago, ${clock(new Date(at).toISOString(), now)}`;
  return (
    <div class="slider">
      <label class="small">a day ago <input type="range" min={-day} max={0} step={1} value={-back} aria-label="Time" aria-valuetext={label} onInput={(e) => set(-Number(e.currentTarget.value))} /> now</label>
      <b class="number" role="status">{back < least ? "" : label}</b>
      {back >= least && <button onClick={() => set(0)}>Back to now</button>}
      {past.problem && <span class="why" role="alert">{past.problem}</span>}
    </div>
  );
}
