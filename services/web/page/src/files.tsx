import { useState } from "preact/hooks";
import { get, segment } from "./api";
import { bytes, clock } from "./format";
import { save } from "./parts";
import { notice, now as time, words } from "./store";
import type { FileList } from "./types";

// A browser holds a file in memory until it is saved.
const largest = 1 << 30;

const raw = (data: string) => Uint8Array.from(atob(data), (c) => c.charCodeAt(0));

// fetchFile reads a file of a job piece by piece.
async function fetchFile(at: string, job: string, path: string) {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  for (let offset = 0; ; ) {
    const { body } = await get<FileList>(at, { job, path, offset });
    const piece = raw(body.data ?? "");
    parts.push(piece);
    offset += piece.length;
    if (piece.length === 0 || offset >= (body.size ?? 0)) break;
  }
  save(path.slice(path.lastIndexOf("/") + 1), "application/octet-stream", parts);
}

// Files lists the checkpoints and other files of a job, for download.
export function Files({ job, home }: { job: string; home?: string }) {
  const [list, set] = useState<FileList>();
  const [problem, fail] = useState("");
  const [busy, load] = useState("");
  if (!home) return null;
  const at = `/nodes/${segment(home)}/files`;
  const show = async () => {
    try {
      set((await get<FileList>(at, { job })).body);
      fail("");
    } catch (err) {
      fail(words(err));
    }
  };
  const download = async (path: string) => {
    load(path);
    try {
      await fetchFile(at, job, path);
    } catch (err) {
      notice(words(err), true);
    }
    load("");
  };
  const files = list?.files ?? [];
  const now = time();
  return (
    <details class="panel" onToggle={(e) => e.currentTarget.open && void show()}>
      <summary><h2>Checkpoints and files</h2></summary>
      {problem && <p class="why" role="alert">{problem}</p>}
      {list && files.length === 0 && <p class="empty">There is no file yet.</p>}
      {files.length > 0 && <div class="scroll"><table>
        <thead><tr><th>file</th><th class="right">size</th><th>written</th><th><span class="hidden">download</span></th></tr></thead>
        <tbody>{files.map((f) => (
          <tr key={f.path}>
            <td>{f.path}</td><td class="right number">{bytes(f.size_bytes)}</td><td class="number">{clock(f.changed_at, now)}</td>
            <td>{f.size_bytes <= largest ? <button disabled={busy !== ""} aria-label={`download ${f.path}`} onClick={() => void download(f.path)}>{busy === f.path ? "loading…" : "Download"}</button> : <span class="dim">switchyard get {job} {f.path}</span>}</td>
          </tr>
        ))}</tbody>
      </table></div>}
      {list?.more && <p class="small dim">These are the newest; there are more.</p>}
    </details>
  );
}
