import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, segment } from "./api";
import { bytes } from "./format";
import { hopeless, pauseAfter } from "./load";
import { Panel, save } from "./parts";
import { words } from "./store";
import type { LogChunk } from "./types";

// The end of the output that is read at first, the text that is held, and the lines that are shown.
const tail = 256 * 1024;
const held = 4 << 20;
const lines = 2000;
// A line is shown up to here: one without an end could stop the browser.
const wide = 5000;
const pause = 1000;

const raw = (data: string | null) => Uint8Array.from(atob(data ?? ""), (c) => c.charCodeAt(0));

// clean takes out the colours and movements that are meant for a terminal. A line that a progress bar wrote again and
// again is shown as it was last.
const clean = (text: string) =>
  text
    .replace(/\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_]/g, "")
    .split("\n")
    .map((l) => l.replace(/\r$/, "").replace(/^.*\r/, ""))
    .map((l) => (l.length > wide ? `${l.slice(0, wide)} … ${l.length - wide} more characters` : l))
    .join("\n");

export function Log({ job, home, over }: { job: string; home?: string; over: boolean }) {
  const [text, show] = useState("");
  const [size, measure] = useState(0);
  const [problem, fail] = useState("");
  const [search, find] = useState("");
  const [follows, follow] = useState(true);
  const box = useRef<HTMLPreElement>(null);
  const at = home ? `/nodes/${segment(home)}/log` : "";
  useEffect(() => {
    if (!at) return;
    let done = false, next = -tail, timer = 0, errors = 0, all = "";
    const decoder = new TextDecoder();
    const read = async () => {
      let more = true;
      try {
        while (more && !done) {
          const { body } = await get<LogChunk>(at, { job, offset: next });
          if (done) return;
          all = (all + decoder.decode(raw(body.data), { stream: true })).slice(-held);
          more = body.next > next && body.next < body.size;
          next = body.next;
          show(all);
          measure(body.size);
          fail("");
          errors = 0;
          if (body.ended && body.next >= body.size) return;
        }
      } catch (err) {
        if (done) return;
        fail(words(err));
        if (hopeless(err)) return;
        errors++;
      }
      if (!done) timer = window.setTimeout(() => void read(), pauseAfter(errors, document.hidden ? 5 * pause : pause));
    };
    void read();
    return () => {
      done = true;
      clearTimeout(timer);
    };
  }, [at, job, over]);
  const shown = useMemo(() => {
    const all = clean(text).split("\n");
    const wanted = search.toLowerCase();
    const found = wanted ? all.filter((l) => l.toLowerCase().includes(wanted)) : all;
    return { found: found.slice(-lines), matches: found.length, all: all.length };
  }, [text, search]);
  useEffect(() => {
    if (follows && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [shown, follows]);
  if (!home) return <Panel title="Output"><p class="empty">It has not started, so it has written nothing.</p></Panel>;
  return (
    <Panel
      title="Output"
      aside={
        <>
          <input type="search" placeholder="search" aria-label="Search the output" value={search} onInput={(e) => find(e.currentTarget.value)} />
          {search && <span class="dim small" role="status">{shown.matches} lines{size > tail && ` in the last ${bytes(Math.min(text.length, size))}; the download has all`}</span>}
          <label class="small"><input type="checkbox" checked={follows} onChange={(e) => follow(e.currentTarget.checked)} /> follow</label>
          <button onClick={() => void download(at, job, fail)}>Download{size > 0 ? ` ${bytes(size)}` : ""}</button>
        </>
      }
    >
      {problem && <p class="why" role="alert">{problem}</p>}
      <pre class="log" role="region" ref={box} tabIndex={0} aria-label="Output of the job" onWheel={(e) => e.deltaY < 0 && follow(false)}>
        {shown.found.map((l, i) => <Marked key={i} line={l} search={search} />)}
      </pre>
    </Panel>
  );
}

function Marked({ line, search }: { line: string; search: string }) {
  const at = search ? line.toLowerCase().indexOf(search.toLowerCase()) : -1;
  if (at < 0) return <>{line}{"\n"}</>;
  return <>{line.slice(0, at)}<mark>{line.slice(at, at + search.length)}</mark>{line.slice(at + search.length)}{"\n"}</>;
}

async function download(at: string, job: string, fail: (words: string) => void) {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  try {
    for (let next = 0; ; ) {
      const { body } = await get<LogChunk>(at, { job, offset: next });
      parts.push(raw(body.data));
      if (body.next <= next || body.next >= body.size) break;
      next = body.next;
    }
  } catch (err) {
    fail(words(err));
    return;
  }
  save(`${job}.log`, "text/plain", parts);
}
