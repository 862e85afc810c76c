// Starting and ending the program, and what both runners say when something is missing.
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const SKIPPED = 77;
const OLDEST_NODE = 18;
const START_DEADLINE_MS = 120_000;
const here = fileURLToPath(new URL(".", import.meta.url));

function skip(reason) {
  process.stdout.write(`skipped: ${reason}; \`./test clients\` installs it\n`);
  process.exit(SKIPPED);
}

/** Ends this process with 77 unless node is new enough and has the packages. */
export function need(...packages) {
  if (Number(process.versions.node.split(".")[0]) < OLDEST_NODE) skip(`node is older than ${OLDEST_NODE}`);
  for (const name of packages) {
    try {
      createRequire(join(here, "package.json")).resolve(name);
    } catch {
      skip(`the npm package ${name} is not in tests/clients/node_modules`);
    }
  }
}

/** The server on a free port, and its address. DEEPINFER_PROGRAM is the program; it serves the model that comes with it. */
export function startServer(more) {
  const flags = ["--port", "0", "--response-store", "memory", "--access-log", "off", ...more];
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
export async function stopServer(server) {
  if (server.exitCode !== null || server.signalCode !== null) {
    return `the server ended before the suites: ${server.exitCode ?? server.signalCode}`;
  }
  const gone = new Promise((resolve) => server.on("exit", (status, signal) => resolve(status ?? signal)));
  server.kill("SIGTERM");
  const status = await gone;
  return status === 0 ? "" : `the server ended with ${status}`;
}
