import type { Problem } from "./types";

const prefix = "/api/v1";

// Refused is an answer that is no success: what is wrong, what to do, and the seconds after which it may be one.
export class Refused extends Error {
  constructor(readonly status: number, detail: string, readonly fix = "", readonly retryAfter = 0) {
    super(detail);
  }
}

async function send(method: string, path: string, body?: unknown): Promise<Response> {
  const headers: Record<string, string> = {};
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    headers["Idempotency-Key"] = crypto.getRandomValues(new Uint32Array(4)).join("-");
  }
  let response: Response;
  try {
    response = await fetch(prefix + path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), credentials: "same-origin", cache: "no-store" });
  } catch {
    throw new Refused(0, "no answer", "is `switchyard up` running?");
  }
  if (response.ok) return response;
  let problem: Partial<Problem> = {};
  try {
    problem = (await response.json()) as Problem;
  } catch {
    // no problem of this service
  }
  const reasons = (problem.reasons ?? []).map((r) => [r.field, r.message].filter(Boolean).join(": ") + (r.hint ? ` (${r.hint})` : ""));
  throw new Refused(response.status, reasons.length > 0 ? reasons.join("; ") : (problem.detail ?? response.statusText), problem.fix, problem.retry_after_seconds);
}

export interface Answer<T> { body: T; position: string }

export async function get<T>(path: string, query: Record<string, string | number> = {}): Promise<Answer<T>> {
  const text = new URLSearchParams(Object.entries(query).map(([k, v]) => [k, String(v)])).toString();
  const response = await send("GET", path + (text ? "?" + text : ""));
  return { body: (await response.json()) as T, position: response.headers.get("Last-Event-ID") ?? "" };
}

export async function post(path: string, body: unknown): Promise<void> {
  await send("POST", path, body);
}

export const logOut = () => send("DELETE", "/session");

export const segment = encodeURIComponent;

export const stream = (since: string) => new EventSource(`${prefix}/changes?since=${encodeURIComponent(since)}`);
