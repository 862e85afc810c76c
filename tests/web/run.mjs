// node run.mjs unit|browser WORK_DIR: runs the tests of the page with node's own runner; 77 when something is missing.
//
// Settings: DEEPINFER_PROGRAM, the program that the browser test starts; CHROMIUM, its path.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const SKIPPED = 77;
const OLDEST_NODE = 18;
const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const fromWeb = createRequire(here("../../web/package.json"));
const [suite, work] = process.argv.slice(2);

function skip(reason) {
  process.stdout.write(`skipped: ${reason}; \`./test web\` installs it\n`);
  process.exit(SKIPPED);
}

function need(name) {
  try {
    return fromWeb.resolve(name);
  } catch {
    return skip(`the npm package ${name} is not in web/node_modules`);
  }
}

if (Number(process.versions.node.split(".")[0]) < OLDEST_NODE) skip(`node is older than ${OLDEST_NODE}`);
need("esbuild");
const files = [];
const environment = { ...process.env };
if (suite === "unit") {
  const tests = readdirSync(here(".")).filter((name) => name.endsWith("_unit_test.mjs"));
  const { buildSync } = fromWeb("esbuild");
  buildSync({
    entryPoints: tests.map(here),
    bundle: true,
    format: "esm",
    platform: "node",
    outdir: work,
    outExtension: { ".js": ".mjs" },
  });
  files.push(...tests.map((name) => join(work, name)));
} else {
  need("puppeteer-core");
  environment.CHROMIUM ??= "/usr/bin/chromium";
  if (!existsSync(environment.CHROMIUM)) skip(`no ${environment.CHROMIUM}`);
  environment.SCREENSHOTS = join(work, "web-screenshots");
  mkdirSync(environment.SCREENSHOTS, { recursive: true });
  files.push(here("page_test.mjs"), here("serve_test.mjs"));
}
// The suites share the processor with a browser: one after the other.
let failed = false;
for (const file of files) {
  const { status } = spawnSync(process.execPath, ["--test", file], { stdio: "inherit", env: environment });
  failed ||= status !== 0;
}
process.exit(failed ? 1 : 0);
