// node run.mjs WORK_DIR [SUITE...]: starts the real server and drives it with OpenAI's and Anthropic's own client libraries;
// 77 when something is missing. Without suites: all.
//
// Settings: DEEPINFER_PROGRAM, the program to start; it serves the model that comes with it.
import { spawn } from "node:child_process";
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { need, startServer, stopServer } from "./server.mjs";
import { KEYS } from "./support.mjs";

const here = fileURLToPath(new URL(".", import.meta.url));
const [work, ...named] = process.argv.slice(2);

/** The flags that give the server its keys. */
function keyFlags() {
  const keys = join(work, "client-keys.txt");
  writeFileSync(keys, Object.entries(KEYS).map(([name, { key, limits }]) => `${name}:${key} ${limits}\n`).join(""));
  return ["--api-key-file", keys];
}

need("openai", "@anthropic-ai/sdk");
mkdirSync(work, { recursive: true });
const suites = readdirSync(here).filter((name) => name.endsWith("_test.mjs"));
const { server, url } = await startServer(keyFlags());
let failed = false;
// One after the other: some look at what the server is doing.
for (const suite of suites.filter((name) => named.length === 0 || named.includes(name))) {
  const environment = { ...process.env, DEEPINFER_URL: url };
  const run = spawn(process.execPath, ["--test", join(here, suite)], { stdio: "inherit", env: environment });
  const status = await new Promise((resolve) => run.on("exit", resolve));
  failed ||= status !== 0;
}
const problem = await stopServer(server);
if (problem !== "") process.stdout.write(`${problem}\n`);
process.exit(failed || problem !== "" ? 1 : 0);
