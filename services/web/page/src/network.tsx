import { useWidth } from "./chart";
import { clock, digits, duration } from "./format";
import { useLoaded } from "./load";
import { JobLink, Panel } from "./parts";
import { useNow, useStore } from "./store";
import type { NetLink, Network } from "./types";

const state = (l: NetLink) => (l.degraded ? (l.kind === "slow" ? "slow" : "lossy") : "recovered");
const figure = (l: { loss_ratio?: number; delay_seconds?: number }) => (l.loss_ratio ? `${digits(100 * l.loss_ratio)} %` : l.delay_seconds ? `${digits(1000 * l.delay_seconds)} ms` : "");
const troubles: Record<string, string> = { Silent: "does not report its counts", Stalled: "its agent gets too little processor time", ClockSkew: "its clock differs from those of others" };

export function NetworkPage() {
  const { body: n, problem } = useLoaded<Network>("/network", () => false);
  const { jobs } = useStore();
  const now = useNow();
  return (
    <>
      <div class="head">
        <h1 tabIndex={-1}>Network</h1>
        {n && n.nodes > 0 && <ul class="facts"><li><b>{n.nodes}</b> nodes probe</li><li><b>{n.flows}</b> paths over <b>{n.probed_links}</b> links</li><li class="dim">{n.judged_at ? `judged ${duration((now - Date.parse(n.judged_at)) / 1000)} ago` : "no recent verdict"}</li></ul>}
      </div>
      {problem && <p class="why" role="alert">{problem}</p>}
      {n && n.nodes === 0 && <p class="empty">No node probes the network: the setting nodeagent.probe_listen gives each agent its addresses.</p>}
      {n && n.nodes > 0 && (
        <>
          {n.vertices.length > 0 && <Panel title="Links"><Drawing n={n} /></Panel>}
          <Panel title="Bad links">
            {n.links.length === 0 ? <p class="empty">No link loses or delays packets.</p> : (
              <div class="scroll"><table class="cards">
                <thead><tr><th>link</th><th>state</th><th class="right">loss or delay</th><th class="right">confidence</th><th>since</th><th class="right">paths over it</th></tr></thead>
                <tbody>{n.links.map((l) => (
                  <tr key={l.id}>
                    <td>{[l.id, ...(l.alike ?? [])].join(" or ")}</td>
                    <td data-label="state"><span class={`state ${l.degraded ? "bad" : ""}`}><span class="sign" aria-hidden="true">{l.degraded ? "✕" : "✓"}</span>{state(l)}</span></td>
                    <td class="right number" data-label="loss or delay">{l.degraded ? figure(l) : "–"}</td>
                    <td class="right number" data-label="confidence">{l.degraded ? `${Math.round(100 * l.confidence_ratio)} %` : "–"}</td>
                    <td class="number" data-label="since">{clock(l.since, now)}</td>
                    <td class="right number" data-label="paths">{l.flows}</td>
                  </tr>
                ))}</tbody>
              </table></div>
            )}
          </Panel>
          <Panel title="Jobs that are kept off them">
            {n.kept_off.length === 0 ? <p class="empty">No job waits or has moved because of a bad link.</p> : (
              <div class="scroll"><table>
                <thead><tr><th>job</th><th>what</th><th>why</th></tr></thead>
                <tbody>{n.kept_off.map((k) => <tr key={k.job}><td><JobLink id={k.job} name={jobs.get(k.job)?.name} /></td><td>{k.waits ? "waits" : "has moved"}</td><td class="why">{k.reason.message}{k.reason.hint && <span class="dim"> ({k.reason.hint})</span>}</td></tr>)}</tbody>
              </table></div>
            )}
          </Panel>
          {n.ailing.length > 0 && (
            <Panel title="Nodes whose probes do not count">
              <div class="scroll"><table>
                <thead><tr><th>node</th><th>why</th></tr></thead>
                <tbody>{n.ailing.map((a) => <tr key={a.node}><td>{a.node}</td><td>{troubles[a.why] ?? a.why}</td></tr>)}</tbody>
              </table></div>
            </Panel>
          )}
        </>
      )}
    </>
  );
}

// Drawing puts each tier in a row, the nodes below. What is wrong with a link stands beside it, not in its colour alone.
function Drawing({ n }: { n: Network }) {
  const { ref, width } = useWidth();
  const top = Math.max(...n.vertices.map((v) => v.tier));
  const tiers = Array.from({ length: top + 1 }, (_, t) => n.vertices.map((v, i) => ({ ...v, i })).filter((v) => v.tier === t));
  const row = 96, margin = 26, height = 2 * margin + top * row + 8;
  const places = n.vertices.map(() => ({ x: 0, y: 0 }));
  tiers.forEach((tier, t) => tier.forEach((v, k) => (places[v.i] = { x: ((k + 0.5) / tier.length) * width, y: margin + (top - t) * row })));
  const at = (i: number) => places[i] ?? { x: 0, y: 0 };
  const bad = n.edges.filter((e) => e.loss_ratio || e.delay_seconds);
  const room = Math.max(6, Math.floor(width / Math.max(...tiers.map((t) => t.length)) / 7));
  const short = (name: string) => (name.length > room ? name.slice(0, room - 1) + "…" : name);
  return (
    <figure class="chart">
      <svg ref={ref} height={height} role="img" aria-label={`${n.vertices.length} nodes and switches, ${n.edges.length} links, ${bad.length} of them bad`}>
        {[...n.edges].sort((a, b) => (a.loss_ratio ?? 0) - (b.loss_ratio ?? 0)).map((e) => {
          const a = at(e.a), b = at(e.b);
          return <line key={e.id} class={`wire ${e.loss_ratio ? "lossy" : e.delay_seconds ? "slow" : ""}`} x1={a.x} y1={a.y} x2={b.x} y2={b.y}><title>{`${n.vertices[e.a]?.name} – ${n.vertices[e.b]?.name}: ${figure(e) || "well"}`}</title></line>;
        })}
        {bad.map((e) => {
          const a = at(e.a), b = at(e.b);
          return <text key={e.id} class="over fault" x={(a.x + b.x) / 2} y={(a.y + b.y) / 2 + 4} text-anchor="middle">{figure(e)}</text>;
        })}
        {n.vertices.map((v, i) => (
          <g key={v.name}>
            {v.tier === 0 ? <rect class="vertex" x={at(i).x - 5} y={at(i).y - 5} width="10" height="10" rx="2" /> : <circle class="vertex" cx={at(i).x} cy={at(i).y} r="5" />}
            <text class="over" x={at(i).x} y={at(i).y + (v.tier === 0 ? 20 : -10)} text-anchor="middle">{short(v.name)}<title>{v.name}</title></text>
          </g>
        ))}
      </svg>
      <figcaption class="small">
        <span class="key"><svg width="18" height="8" aria-hidden="true"><line class="wire" x1="0" x2="18" y1="4" y2="4" /></svg>well</span>
        <span class="key"><svg width="18" height="8" aria-hidden="true"><line class="wire slow" x1="0" x2="18" y1="4" y2="4" /></svg>slow</span>
        <span class="key"><svg width="18" height="8" aria-hidden="true"><line class="wire lossy" x1="0" x2="18" y1="4" y2="4" /></svg>loses packets</span>
        <span class="dim">squares are nodes, circles switches</span>
      </figcaption>
      <details>
        <summary class="small">as a table</summary>
        <div class="scroll"><table>
          <thead><tr><th>from</th><th>to</th><th>link</th><th class="right">loss or delay</th></tr></thead>
          <tbody>{n.edges.map((e) => <tr key={e.id}><td>{n.vertices[e.a]?.name}</td><td>{n.vertices[e.b]?.name}</td><td>{e.id}</td><td class="right number">{figure(e) || "well"}</td></tr>)}</tbody>
        </table></div>
      </details>
    </figure>
  );
}
