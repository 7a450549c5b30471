import { useEffect, useRef, useState } from "preact/hooks";
import { digits, plain } from "./format";
import type { ComponentChildren } from "preact";

interface Point { x: number; y: number }
export interface Band { name: string; points: { x: number; low: number; high: number }[] }
export interface Series { name: string; points: Point[]; dots?: boolean; dashed?: boolean; thin?: boolean }
export interface Key { name: string; dashed?: boolean; thin?: boolean }

// ticks are round values that divide a range into about n parts.
function ticks(low: number, high: number, n: number): number[] {
  if (!(high > low)) return [low];
  const raw = (high - low) / n;
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * size).find((s) => s >= raw) ?? raw;
  const all: number[] = [];
  for (let i = Math.ceil(low / step - 1e-6); i * step <= high + step / 1e6; i++) all.push(Number((i * step).toPrecision(12)));
  return all;
}

// A thin line is one of many, a dashed one belongs to another.
const look = (k: Key) => (k.thin ? "thin" : k.dashed ? "s1" : "");

// extent is the least and the largest of values, of which there may be more than a function takes arguments.
const extent = (values: number[]): [number, number] => values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);

const height = 220, left = 48, bottom = 24, top = 8, right = 12;

// useWidth is the width of a drawing, so that its text is as large as that around it.
export function useWidth() {
  const ref = useRef<SVGSVGElement>(null);
  const [width, set] = useState(560);
  useEffect(() => {
    const e = ref.current;
    if (!e) return;
    const watch = new ResizeObserver(([entry]) => entry && set(Math.max(280, Math.round(entry.contentRect.width))));
    watch.observe(e);
    return () => watch.disconnect();
  }, []);
  return { ref, width };
}

// Chart draws lines, and below them a table: the given one, or the first series. keys are the legend, if it is not one line
// for each series. A band lies behind the lines.
export function Chart({ title, x, series, band, keys, children }: { title: string; x: string; series: Series[]; band?: Band; keys?: Key[]; children?: ComponentChildren }) {
  const { ref, width } = useWidth();
  const between = band?.points ?? [];
  const [opened, open] = useState(false);
  const all = [...series.flatMap((s) => s.points), ...between.flatMap((p) => [{ x: p.x, y: p.low }, { x: p.x, y: p.high }])];
  let [x0, x1] = extent(all.map((p) => p.x)), [y0, y1] = extent(all.map((p) => p.y).filter(Number.isFinite));
  if (x0 === x1) [x0, x1] = [x0 - 1, x1 + 1];
  if (y0 === y1) [y0, y1] = [y0 - 1, y1 + 1];
  const sx = (v: number) => left + ((v - x0) / (x1 - x0)) * (width - left - right);
  const sy = (v: number) => height - bottom - ((v - y0) / (y1 - y0)) * (height - bottom - top);
  const first = series[0];
  return (
    <figure class="chart">
      <svg ref={ref} height={height} role="img" aria-label={title}>
        {ticks(y0, y1, 4).map((v) => <g key={v}><line class="grid" x1={left} x2={width - right} y1={sy(v)} y2={sy(v)} /><text x={left - 6} y={sy(v) + 4} text-anchor="end">{digits(v)}</text></g>)}
        {ticks(x0, x1, 6).filter((v) => x !== "epoch" || Number.isInteger(v)).map((v) => <text key={v} x={sx(v)} y={height - 6} text-anchor="middle">{plain(v)}</text>)}
        {between.length > 1 && <polygon class="band" points={[...between.map((p) => `${sx(p.x).toFixed(1)},${sy(p.high).toFixed(1)}`), ...between.slice().reverse().map((p) => `${sx(p.x).toFixed(1)},${sy(p.low).toFixed(1)}`)].join(" ")} />}
        {series.map((s) => (
          <g key={s.name} class={`series ${look(s)}`}>
            <polyline points={s.points.filter((p) => Number.isFinite(p.y)).map((p) => `${sx(p.x).toFixed(1)},${sy(p.y).toFixed(1)}`).join(" ")} stroke-dasharray={s.dashed ? "5 4" : undefined} />
            {s.dots && s.points.length < 80 && s.points.map((p) => <circle key={p.x} cx={sx(p.x)} cy={sy(p.y)} r="2.5"><title>{`${x} ${p.x}: ${digits(p.y)}`}</title></circle>)}
          </g>
        ))}
      </svg>
      <figcaption class="small">
        {(keys ?? series).map((s: Key) => <span key={s.name} class={`key ${look(s)}`}><svg width="18" height="8" aria-hidden="true"><line x1="0" x2="18" y1="4" y2="4" stroke-dasharray={s.dashed ? "5 4" : undefined} /></svg>{s.name}</span>)}
        {band && between.length > 1 && <span class="key"><i class="band" />{band.name}</span>}
        <span class="dim">by {x}</span>
      </figcaption>
      {first && (
        <details onToggle={(e) => open(e.currentTarget.open)}>
          <summary class="small">as a table</summary>
          <div class="scroll">{opened && (children ?? (
            <table>
              <thead><tr><th>{x}</th><th class="right">{first.name}</th></tr></thead>
              <tbody>{first.points.map((p, i) => <tr key={i}><td>{p.x}</td><td class="right number">{p.y}</td></tr>)}</tbody>
            </table>
          ))}</div>
        </details>
      )}
    </figure>
  );
}
