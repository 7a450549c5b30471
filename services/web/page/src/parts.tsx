import { useState } from "preact/hooks";
import { percent } from "./format";
import { store } from "./store";
import type { ComponentChildren } from "preact";

// kinds groups the states of jobs by what they mean to a person; each has a sign of its own besides its colour.
const kinds: Record<string, { kind: string; sign: string }> = {
  submitted: { kind: "waits", sign: "○" },
  queued: { kind: "waits", sign: "○" },
  held: { kind: "stands", sign: "‖" },
  paused: { kind: "stands", sign: "‖" },
  starting: { kind: "runs", sign: "◔" },
  profiling: { kind: "runs", sign: "◑" },
  running: { kind: "runs", sign: "●" },
  preempting: { kind: "moves", sign: "◐" },
  preempted: { kind: "moves", sign: "◌" },
  recovering: { kind: "moves", sign: "↻" },
  succeeded: { kind: "done", sign: "✓" },
  failed: { kind: "bad", sign: "✕" },
  cancelled: { kind: "over", sign: "–" },
  rejected: { kind: "bad", sign: "⊘" },
};

export const states = Object.keys(kinds);
export const isOver = (state: string) => ["succeeded", "failed", "cancelled", "rejected"].includes(state);
export const isActive = (state: string) => ["starting", "profiling", "running", "preempting"].includes(state);
export const kindOf = (state: string) => kinds[state]?.kind ?? "waits";

export function State({ state }: { state: string }) {
  const k = kinds[state] ?? { kind: "waits", sign: "?" };
  return (
    <span class={`state ${k.kind}`}>
      <span aria-hidden="true" class="sign">{k.sign}</span>
      {state}
    </span>
  );
}

export function Progress({ part, label }: { part?: number; label?: string }) {
  if (part === undefined) return <span class="dim">–</span>;
  return (
    <span class="progress">
      <span class="bar" role="progressbar" aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.floor(100 * part)} aria-label={label ?? "progress"}>
        <span style={{ width: `${Math.min(100, 100 * part)}%` }} />
      </span>
      <span class="number">{percent(part)}</span>
    </span>
  );
}

// Meter is a thin bar of a value within a bound.
export function Meter({ value, most, label, kind }: { value: number; most: number; label: string; kind?: string }) {
  const part = most > 0 ? Math.min(1, Math.max(0, value / most)) : 0;
  return (
    <span class={`meter ${kind ?? ""}`} role="img" aria-label={label} title={label}>
      <span style={{ width: `${100 * part}%` }} />
    </span>
  );
}

export function Panel({ title, aside, children, class: more }: { title: string; aside?: ComponentChildren; children: ComponentChildren; class?: string }) {
  return (
    <section class={`panel ${more ?? ""}`}>
      <header>
        <h2>{title}</h2>
        {aside && <div class="aside">{aside}</div>}
      </header>
      {children}
    </section>
  );
}

// Sure is a button that asks before it acts. Where it was pressed is then the one that keeps things as they are, and the
// second press of a double-click answers nothing: so a double-click only asks.
export function Sure({ ask, yes, no, act }: { ask: string; yes: string; no: string; act: () => Promise<unknown> }) {
  const [asked, set] = useState(false);
  return (
    <>
      <button key="ask" onClick={(e) => e.detail < 2 && set(!asked)}>{asked ? no : ask}</button>
      {asked && <button key="yes" class="danger" onClick={(e) => e.detail < 2 && void act().then(() => set(false))}>{yes}</button>}
    </>
  );
}

// called is what people call a job. The jobs of an array have one name, and each an index.
export function called(id: string, name?: string): string {
  const index = store.jobs.get(id)?.array_member?.index;
  return name && index !== undefined ? `${name}[${index}]` : name || id;
}

export const JobLink = ({ id, name }: { id: string; name?: string }) => (
  <a href={`#/jobs/${encodeURIComponent(id)}`} title={id}>
    {called(id, name)}
  </a>
);

// unloaded stands for what is not loaded, with the heading that has the focus. It is no component: the heading would not
// stay the same element once the rest is there.
export const unloaded = (title: string, problem?: string) => (
  <>
    <div class="head"><h1 tabIndex={-1}>{title}</h1></div>
    <p class="empty" role={problem ? "alert" : undefined}>{problem || "Loading…"}</p>
  </>
);

// save lets the browser download what the page holds.
export function save(name: string, type: string, parts: BlobPart[]) {
  const url = URL.createObjectURL(new Blob(parts, { type }));
  const a = document.createElement("a");
  a.href = url;
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
