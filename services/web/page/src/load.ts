import { useEffect, useState } from "preact/hooks";
import { get } from "./api";
import { leave, words } from "./store";

const refresh = 5000;

// useLoaded loads an answer again and again until it says that nothing more changes.
export function useLoaded<T>(path: string, over: (t: T) => boolean, every = refresh): { body?: T; problem: string } {
  const [body, set] = useState<T>();
  const [problem, fail] = useState("");
  useEffect(() => {
    let left = false, timer = 0;
    const load = async () => {
      let ended = false;
      try {
        const answer = await get<T>(path);
        if (left) return;
        set(answer.body);
        fail("");
        ended = over(answer.body);
      } catch (err) {
        leave(err);
        if (!left) fail(words(err));
      }
      if (!left && !ended) timer = window.setTimeout(() => void load(), document.hidden ? 4 * every : every);
    };
    void load();
    return () => {
      left = true;
      clearTimeout(timer);
    };
  }, [path]);
  return { body, problem };
}
