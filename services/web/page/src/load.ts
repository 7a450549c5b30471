import { useEffect, useState } from "preact/hooks";
import { Refused, get } from "./api";
import { leave, words } from "./store";

const refresh = 5000;
// longest is the pause up to which those after errors grow.
const longest = 30_000;

// hopeless reports whether asking again has the same answer; each refusal is written into the audit.
export const hopeless = (err: unknown) => err instanceof Refused && [401, 403, 404].includes(err.status);

// pauseAfter is the pause after some errors in a row.
export const pauseAfter = (errors: number, pause: number) => Math.max(pause, Math.min(longest, pause * 2 ** errors));

// useLoaded loads an answer again and again until it says that nothing more changes, or is refused.
export function useLoaded<T>(path: string, over: (t: T) => boolean, every = refresh): { body?: T; problem: string } {
  const [body, set] = useState<T>();
  const [problem, fail] = useState("");
  useEffect(() => {
    let left = false, timer = 0, errors = 0;
    const load = async () => {
      let ended = false;
      try {
        const answer = await get<T>(path);
        if (left) return;
        set(answer.body);
        fail("");
        errors = 0;
        ended = over(answer.body);
      } catch (err) {
        leave(err);
        if (!left) fail(words(err));
        ended = hopeless(err);
        errors++;
      }
      if (!left && !ended) timer = window.setTimeout(() => void load(), pauseAfter(errors, document.hidden ? 4 * every : every));
    };
    void load();
    return () => {
      left = true;
      clearTimeout(timer);
    };
  }, [path]);
  return { body, problem };
}
