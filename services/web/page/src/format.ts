import type { Moment } from "./types";

export function duration(seconds: number): string {
  if (!Number.isFinite(seconds)) return "–";
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} m ${String(s % 60).padStart(2, "0")} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${String(Math.floor((s % 3600) / 60)).padStart(2, "0")} m`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export function clock(iso: string, now: number): string {
  const t = new Date(iso);
  const time = t.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
  if (t.toDateString() === new Date(now).toDateString()) return time;
  return t.toLocaleDateString([], { day: "numeric", month: "short" }) + " " + time;
}

// until is the time to a predicted moment, with half of its interval.
export function until(m: Moment | undefined, now: number): string {
  if (!m) return "";
  const at = Date.parse(m.expected) - now;
  if (at < 1000) return "any moment";
  const spread = (Date.parse(m.high) - Date.parse(m.low)) / 2000;
  return spread >= 1 ? `in ${duration(at / 1000)} ± ${duration(spread)}` : `in ${duration(at / 1000)}`;
}

// between is the interval of a predicted moment, with seconds if it is short.
export function between(m: Moment, now: number): string {
  const short = Date.parse(m.high) - Date.parse(m.low) < 600_000;
  const of = (iso: string) => (short ? new Date(iso).toLocaleTimeString([], { hour12: false }) : clock(iso, now));
  return `between ${of(m.low)} and ${of(m.high)}`;
}

export const energy = (microjoules: number) => joules(microjoules / 1e6);

export function joules(j: number): string {
  if (j === 0) return "–";
  for (const [unit, size] of [["MWh", 3.6e9], ["kWh", 3.6e6], ["Wh", 3600]] as const) {
    if (j >= size) return `${digits(j / size)} ${unit}`;
  }
  return `${digits(j)} J`;
}

export function carbon(grams: number): string {
  for (const [unit, size] of [["t", 1e6], ["kg", 1000]] as const) {
    if (grams >= size) return `${digits(grams / size)} ${unit}`;
  }
  return grams > 0 && grams < 0.01 ? "< 0.01 g" : `${digits(grams)} g`;
}

export const money = (cost: number, currency = "") => `${cost > 0 && cost < 0.01 ? "< 0.01" : digits(cost)} ${currency}`;

export const watts = (microwatts: number) => `${digits(microwatts / 1e6)} W`;

export function bytes(n: number): string {
  for (const [unit, size] of [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]] as const) {
    if (n >= size) return `${digits(n / size)} ${unit}`;
  }
  return `${n} B`;
}

export function digits(x: number): string {
  if (x === 0) return "0";
  const a = Math.abs(x);
  if (a >= 100) return x.toFixed(0);
  if (a >= 10) return x.toFixed(1);
  if (a >= 0.01) return x.toFixed(2);
  return x.toPrecision(2);
}

// plain is a number as a person writes it: whole ones without a point.
export const plain = (x: number) => (Number.isInteger(x) && Math.abs(x) < 1e6 ? String(x) : digits(x));

export const percent = (part: number) => `${Math.floor(100 * part + 1e-6)} %`;
