// Bundles the page into a folder, dist if none is given.
import { build } from "esbuild";
import { copyFileSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const out = process.argv[2] ?? "dist";
mkdirSync(out, { recursive: true });
await build({
  entryPoints: { page: "src/main.tsx" },
  outdir: out,
  bundle: true,
  minify: true,
  format: "iife",
  target: ["es2022"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  charset: "utf8",
});
for (const name of ["index.html", "page.css", "icon.svg"]) copyFileSync(join("src", name), join(out, name));

const most = 150_000;
const size = ["index.html", "page.css", "icon.svg", "page.js"].reduce((sum, name) => sum + gzipSync(readFileSync(join(out, name))).length, 0);
console.log(`the page: ${size} bytes compressed, at most ${most}`);
if (size > most) process.exit(1);
