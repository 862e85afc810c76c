// Builds src/server/web/index.html, the whole page in one file. Its last line tells which sources it was made of: the hash
// that current.cmake computes, so that anybody without npm can tell whether the file is up to date.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, renameSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build, transform } from "esbuild";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const read = (path) => readFileSync(here(path), "utf8");
const sha256 = (data) => createHash("sha256").update(data).digest("hex");

const script = await build({
  entryPoints: [here("src/main.ts")],
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "utf8",
  write: false,
});
const style = await transform(read("style.css"), { loader: "css", minify: true, charset: "utf8" });

// What current.cmake lists, in the same order.
const modules = readdirSync(here("src")).filter((name) => name.endsWith(".ts"));
const sources = ["build.mjs", "index.template.html", "package-lock.json", "style.css", ...modules.map((name) => `src/${name}`)];
const list = sources.sort().map((path) => `${path} ${sha256(readFileSync(here(path)))}\n`);

const page =
  read("index.template.html")
    .replace("/*STYLE*/", () => style.code.trim())
    .replace("/*SCRIPT*/", () => script.outputFiles[0].text.trim()) + `<!-- sources ${sha256(list.join(""))} -->\n`;

// Builds that run at the same time never see half a page.
const target = here("../src/server/web/index.html");
const unfinished = `${target}.${process.pid}`;
writeFileSync(unfinished, page);
renameSync(unfinished, target);
process.stdout.write(`${Buffer.byteLength(page)} bytes\n`);
