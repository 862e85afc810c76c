// The blocks of docs/clients.md that begin with curl, and those in JavaScript, as they stand there.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { KEY } from "./support.mjs";

const page = readFileSync(new URL("../../docs/clients.md", import.meta.url), "utf8");
const blocks = [...page.matchAll(/^```(\w+)\n(.*?)^```$/gms)].map(([, language, text]) => ({ language, text }));
const curls = blocks.filter(({ language, text }) => language === "sh" && text.startsWith("curl "));
const scripts = blocks.filter(({ language }) => language === "js");

const skip = spawnSync("curl", ["--version"]).status === 0 ? false : "curl is not installed; `./test clients` installs it";

/** What it printed; it must end well. */
function run(program, args) {
  // Beside this file, so that the script's imports are found.
  const options = { cwd: fileURLToPath(new URL(".", import.meta.url)), env: { ...process.env, DEEPINFER_API_KEY: KEY } };
  const child = spawn(program, args, options);
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (text) => (output += text));
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (status) => (status === 0 ? resolve(output) : reject(new Error(`exit status ${status}: ${output}`))));
  });
}

test("there are blocks", () => {
  assert.ok(curls.length >= 8 && scripts.length >= 2, `${curls.length} of curl, ${scripts.length} scripts`);
});

for (const { text } of curls) {
  test(`curl ${/\$DEEPINFER_URL([^"]*)/.exec(text)[1]}: ${text.length} characters`, { skip }, async () => {
    const output = await run("sh", ["-c", text]);
    if (text.includes('"stream": true')) {
      assert.ok(output.endsWith("data: [DONE]\n\n"), output.slice(-200));
    } else {
      assert.equal(typeof JSON.parse(output), "object");
    }
  });
}

for (const { text } of scripts) {
  test(text.split("\n")[0], async () => {
    assert.ok((await run(process.execPath, ["--input-type=module", "--eval", text])).length > 0);
  });
}
