// The page against the real program with the model that comes with it: what a new user does first.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { after, before, test } from "node:test";
import { startServer, stopServer } from "../clients/server.mjs";
import { launch, newUser, press, screenshot, send, textsOf, waitForText } from "./browser.mjs";

const program = process.env.DEEPINFER_PROGRAM ?? "";
const serves = program !== "" && spawnSync(program, ["serve", "--help"]).status === 0;

let browser;
let server;
let origin;

before(async () => {
  if (!serves) return;
  ({ server, url: origin } = await startServer([]));
  browser = await launch();
});

after(async () => {
  await browser?.close();
  if (server !== undefined) assert.equal(await stopServer(server), "");
});

const skip = serves ? false : "DEEPINFER_PROGRAM has no serve command";

test("a new user sends a message, sees it stream, stops one, switches dark mode", { skip }, async () => {
  const { page, finish } = await newUser(browser, origin);
  await waitForText(page, ".empty h1", "nano");
  await waitForText(page, ".engine .state", "idle");

  await press(page, "Settings");
  // Long enough to fill blocks of the prefix cache.
  await page.$eval("#system", (field) => (field.value = "You tell stories to children, in simple words. ".repeat(40)));
  await page.type("#max_tokens", "160");
  await page.type("#seed", "7");
  await press(page, "Save");
  // How long the answer was whenever it was shown while it was being written.
  await page.evaluate(() => {
    window.lengths = new Set();
    const note = () => {
      const answer = document.querySelector(".answer.running");
      if (answer) window.lengths.add(answer.querySelector(".markdown").textContent.length + answer.querySelector(".thinking-gist").textContent.length);
    };
    new MutationObserver(note).observe(document.body, { subtree: true, childList: true, characterData: true });
  });
  await send(page, "Write a short story about a lighthouse.");
  await waitForText(page, ".answer:not(.running) .stats", "cache hit");
  const lengths = await page.evaluate(() => window.lengths.size);
  assert.ok(lengths >= 3, `the answer was shown at ${lengths} lengths`);
  const [stats] = await textsOf(page, ".stats");
  assert.match(stats, /tok\/s.*first.*tok.*prompt \d+/s);
  assert.deepEqual(await textsOf(page, ".error"), []);
  await screenshot(page, "serve-light");

  // This one would go on until the context is full.
  await press(page, "Settings");
  await page.$eval("#max_tokens", (field) => (field.value = ""));
  await press(page, "Save");
  await page.setRequestInterception(true);
  page.on("request", (request) => {
    const endless = request.url().endsWith("/v1/chat/completions");
    return request.continue(endless ? { postData: JSON.stringify({ ...JSON.parse(request.postData()), ignore_eos: true }) } : {});
  });
  await send(page, "Go on.");
  await page.waitForFunction(() => {
    const answer = document.querySelector(".answer.running");
    return answer !== null && (answer.querySelector(".markdown").textContent + answer.querySelector(".thinking-gist").textContent).length > 20;
  });
  await press(page, "Light or dark");
  assert.equal(await page.$eval("html", (html) => html.dataset.theme), "dark");
  await screenshot(page, "serve-streaming-dark");
  await page.keyboard.press("Escape");
  await waitForText(page, ".note", "Stopped.");
  await page.waitForFunction(async () => (await (await fetch("load")).json()).running === 0, { polling: 100 });
  await waitForText(page, ".engine .state", "idle");
  const load = await page.evaluate(async () => (await fetch("load")).json());
  assert.ok(load.cached_tokens > 0, "the second turn found the system prompt in the prefix cache");
  await screenshot(page, "serve-dark");
  await finish();
});
