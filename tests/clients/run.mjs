// node run.mjs WORK_DIR [SUITE...]: starts the real server and drives it with OpenAI's and Anthropic's own client libraries;
// 77 when something is missing. Without suites: all.
//
// Settings: DEEPINFER_PROGRAM, the program to start; it serves the model that comes with it.
import { spawn } from "node:child_process";
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { KEYS } from "./support.mjs";

const SKIPPED = 77;
const OLDEST_NODE = 18;
const START_DEADLINE_MS = 120_000;
const here = fileURLToPath(new URL(".", import.meta.url));
const [work, ...named] = process.argv.slice(2);

function skip(reason) {
  process.stdout.write(`skipped: ${reason}; \`./test clients\` installs it\n`);
  process.exit(SKIPPED);
}

function need(name) {
  try {
    createRequire(join(here, "package.json")).resolve(name);
  } catch {
    skip(`the npm package ${name} is not in tests/clients/node_modules`);
  }
}

/** The server and its address. */
function start() {
  const keys = join(work, "client-keys.txt");
  writeFileSync(keys, Object.entries(KEYS).map(([name, { key, limits }]) => `${name}:${key} ${limits}\n`).join(""));
  const flags = ["--port", "0", "--response-store", "memory", "--access-log", "off", "--api-key-file", keys];
  const server = spawn(process.env.DEEPINFER_PROGRAM, ["serve", ...flags], { stdio: ["ignore", "ignore", "pipe"] });
  return new Promise((resolve, reject) => {
    let said = "";
    const fail = (why) => reject(new Error(`the server did not start: ${why}\n${said}`));
    const deadline = setTimeout(() => fail("it took too long"), START_DEADLINE_MS);
    server.on("error", (problem) => fail(problem.message));
    server.on("exit", (status) => fail(`exit status ${status}`));
    server.stderr.on("data", (text) => {
      said += text;
      const address = /served at (http:\/\/[^\s/]+)/.exec(said);
      if (address === null) return;
      clearTimeout(deadline);
      resolve({ server, url: address[1] });
    });
  });
}

/** Ends it as an operator would; what is wrong with how it ended. */
async function stop(server) {
  if (server.exitCode !== null || server.signalCode !== null) {
    return `the server ended before the suites: ${server.exitCode ?? server.signalCode}`;
  }
  const gone = new Promise((resolve) => server.on("exit", (status, signal) => resolve(status ?? signal)));
  server.kill("SIGTERM");
  const status = await gone;
  return status === 0 ? "" : `the server ended with ${status}`;
}

if (Number(process.versions.node.split(".")[0]) < OLDEST_NODE) skip(`node is older than ${OLDEST_NODE}`);
need("openai");
need("@anthropic-ai/sdk");
mkdirSync(work, { recursive: true });
const suites = readdirSync(here).filter((name) => name.endsWith("_test.mjs"));
const { server, url } = await start();
let failed = false;
// One after the other: some look at what the server is doing.
for (const suite of suites.filter((name) => named.length === 0 || named.includes(name))) {
  const environment = { ...process.env, DEEPINFER_URL: url };
  const run = spawn(process.execPath, ["--test", join(here, suite)], { stdio: "inherit", env: environment });
  const status = await new Promise((resolve) => run.on("exit", resolve));
  failed ||= status !== 0;
}
const problem = await stop(server);
if (problem !== "") process.stdout.write(`${problem}\n`);
process.exit(failed || problem !== "" ? 1 : 0);
