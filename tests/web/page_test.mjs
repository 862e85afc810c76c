// The page against a server whose answers the test writes.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { assertNoSidewaysScroll, launch, newUser, press, screenshot, send, textsOf, waitForText } from "./browser.mjs";
import { FakeServer, MODEL } from "./fake_server.mjs";

let browser;
let server;
before(async () => {
  browser = await launch();
});
after(() => browser?.close());

/** A test with a server of its own. */
function pageTest(name, options, body) {
  test(name, async () => {
    server = await FakeServer.start();
    try {
      if (options.key) server.key = options.key;
      const user = await newUser(browser, server.origin, options);
      await body(user.page);
      await user.finish();
    } finally {
      await server.stop();
    }
  });
}

async function ask(page, question, answer) {
  const arrival = server.nextChat();
  await send(page, question);
  const exchange = await arrival;
  exchange.answer(answer);
  // Not the speed: it has none when delta and end arrive in the same tick of the clock.
  await waitForText(page, ".answer:not(.running) .stats", "21 tok");
  return exchange;
}

const SAMPLE = `Both keep the **same** invariant: *one* writer, many readers[^1].

## Table

| cache | hit | miss |
|---|---:|---|
| LRU | 12 ns | evicts the oldest |
| LFU | 31 ns | evicts the rarest |

\`\`\`cpp
// Splits at commas.
std::vector<std::string_view> Split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    parts.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}
\`\`\`

1. first, with \`code\`
2. second
   - nested
   - [x] not a task of ours

> A quotation, and a link: https://example.org/path.`;

pageTest("a new user sees the model, sends by keyboard and sees thinking and answer stream", {}, async (page) => {
  await waitForText(page, ".empty h1", MODEL);
  assert.match((await textsOf(page, ".empty .facts"))[0], /context 32K · DeepInfer 9\.9\.9/);
  assert.equal((await textsOf(page, ".examples button")).length, 3);
  await waitForText(page, ".engine .state", "busy");
  await screenshot(page, "empty-light");

  const arrival = server.nextChat();
  await page.keyboard.type("Compare two caches"); // the field has the focus
  await page.keyboard.down("Shift");
  await page.keyboard.press("Enter");
  await page.keyboard.up("Shift");
  await page.keyboard.type("in a table.");
  await page.keyboard.press("Enter");
  const exchange = await arrival;
  assert.deepEqual(exchange.body, {
    model: MODEL,
    messages: [{ role: "user", content: "Compare two caches\nin a table." }],
    stream: true,
    stream_options: { include_usage: true },
  });
  await waitForText(page, ".answer .stats", "waiting for the first token");

  exchange.delta({ content: null, reasoning_content: "They want a table." });
  await waitForText(page, ".thinking-title", "Thinking");
  assert.equal(await page.$eval(".thinking", (details) => details.open), false);
  assert.match((await textsOf(page, ".thinking-gist"))[0], /They want a table/);
  exchange.delta({ content: SAMPLE.slice(0, 20) });
  await waitForText(page, ".answer.running .markdown", "Both keep the");
  await waitForText(page, ".thinking-title", "Thought for");
  assert.equal(await page.$(".markdown table"), null);
  exchange.delta({ content: SAMPLE.slice(20) });
  await waitForText(page, ".answer.running .markdown td", "12 ns");
  exchange.end();
  await waitForText(page, ".answer:not(.running) .stats", "cache hit 60 %");
  assert.match((await textsOf(page, ".stats"))[0], /tok\/s.*first.*21 tok.*prompt 100.*cache hit 60 %/s);
  assert.match((await textsOf(page, ".context"))[0], /121 of 32K context/);
  assert.equal(await page.$eval(".markdown a", (link) => link.href), "https://example.org/path");
  await screenshot(page, "answer-light");
  await page.click(".thinking summary");
  await waitForText(page, ".thinking-text", "They want a table.");

  await press(page, "Light or dark");
  assert.equal(await page.$eval("html", (html) => html.dataset.theme), "dark");
  await page.$eval(".scroller", (scroller) => (scroller.scrollTop = scroller.scrollHeight));
  await screenshot(page, "answer-dark");
  await page.reload();
  await waitForText(page, ".markdown td", "12 ns"); // conversation and theme are kept
  assert.equal(await page.$eval("html", (html) => html.dataset.theme), "dark");
});

pageTest("Escape stops an answer; what came stays, and the history is sent append-only", {}, async (page) => {
  const first = await ask(page, "One", "Answer one.");
  const arrival = server.nextChat();
  await send(page, "Two");
  const stopped = await arrival;
  assert.deepEqual(stopped.body.messages.slice(0, 1), first.body.messages);
  assert.deepEqual(stopped.body.messages[1], { role: "assistant", content: "Answer one." });
  stopped.delta({ reasoning_content: "hm" });
  stopped.delta({ content: "Answer tw" });
  await waitForText(page, ".answer.running .markdown", "Answer tw");
  await page.keyboard.press("Escape");
  assert.equal(await stopped.closed, false); // the server sees the connection go
  await waitForText(page, ".note", "Stopped.");
  const third = await ask(page, "Three", "Answer three.");
  assert.deepEqual(third.body.messages.slice(0, 3), stopped.body.messages);
  assert.deepEqual(third.body.messages.slice(3), [
    { role: "assistant", content: "Answer tw" }, // without its reasoning: no tools are in use
    { role: "user", content: "Three" },
  ]);
});

pageTest("the stop button stops as well", {}, async (page) => {
  const arrival = server.nextChat();
  await send(page, "Write for ever");
  const exchange = await arrival;
  exchange.delta({ content: "On and on" });
  await waitForText(page, ".answer.running .markdown", "On and on");
  await screenshot(page, "streaming");
  await press(page, "Stop");
  assert.equal(await exchange.closed, false);
  await waitForText(page, ".note", "Stopped.");
});

pageTest("answering again and editing make branches", {}, async (page) => {
  await ask(page, "Question", "Version A");
  let arrival = server.nextChat();
  await press(page, "Answer again");
  (await arrival).answer("Version B");
  await waitForText(page, ".answer:not(.running) .markdown", "Version B");
  await waitForText(page, ".answer .branch-place", "2/2");
  await press(page, "Previous version", ".answer");
  await waitForText(page, ".answer .markdown", "Version A");
  await waitForText(page, ".answer .branch-place", "1/2");

  await page.hover(".turn.user");
  await press(page, "Edit message");
  await waitForText(page, ".edit-form", "");
  await page.keyboard.type(" two");
  arrival = server.nextChat();
  await page.keyboard.press("Enter");
  const exchange = await arrival;
  assert.deepEqual(exchange.body.messages, [{ role: "user", content: "Question two" }]);
  exchange.answer("Version C");
  await waitForText(page, ".answer:not(.running) .markdown", "Version C");
  await waitForText(page, ".user .branch-place", "2/2");
  await screenshot(page, "branches");
  await press(page, "Previous version", ".user");
  await waitForText(page, ".answer .markdown", "Version A");
});

pageTest("markup of the model is text", {}, async (page) => {
  const evil =
    "<img src=x onerror=\"document.title='owned'\"> <script>document.title='owned'</script> " +
    "[a](javascript:document.title='owned') ![b](data:text/html,x) [c](//example.org) <https://example.org/ok>\n\n" +
    "```html\n<img src=x onerror=alert(1)>\n```";
  await ask(page, "<b>bold?</b>", evil);
  assert.equal(await page.$(".turns img"), null);
  assert.equal(await page.$(".turns script"), null);
  assert.deepEqual(await page.$$eval(".turns a", (links) => links.map((link) => link.href)), ["https://example.org/ok"]);
  assert.match((await textsOf(page, ".bubble"))[0], /<b>bold\?<\/b>/);
  assert.match(await page.title(), /bold/);
});

pageTest("tool calls: the user types the result and the answer goes on", {}, async (page) => {
  await press(page, "Settings");
  await page.type("#system", "Be brief.");
  await page.type("#temperature", "3");
  await press(page, "Insert an example");
  await press(page, "Save");
  await waitForText(page, ".drawer .problem", "0 to 2");
  await screenshot(page, "settings");
  await page.$eval("#temperature", (field) => (field.value = "0.5"));
  await page.select("dialog #thinking", "max");
  await press(page, "Save");
  await waitForText(page, ".preamble", "System: Be brief. · Tools: 1");

  let arrival = server.nextChat();
  await send(page, "Weather in Paris and Rome?");
  const asked = await arrival;
  assert.equal(asked.body.temperature, 0.5);
  assert.deepEqual(asked.body.thinking, { type: "enabled" });
  assert.equal(asked.body.reasoning_effort, "max");
  assert.equal(asked.body.tools[0].function.name, "get_weather");
  asked.delta({ reasoning_content: "I must look." });
  for (const [index, city] of ["Paris", "Rome"].entries()) {
    asked.delta({ tool_calls: [{ index, id: `call_${index}`, type: "function", function: { name: "get_weather", arguments: "" } }] });
    asked.delta({ tool_calls: [{ index, function: { arguments: '{"city":' } }] });
    asked.delta({ tool_calls: [{ index, function: { arguments: `"${city}"}` } }] });
  }
  asked.end("tool_calls");
  await waitForText(page, ".call .code", '"city": "Rome"');
  const fields = await page.waitForSelector("textarea.result").then(() => page.$$("textarea.result"));
  assert.equal(fields.length, 2);
  await fields[0].type("sunny");
  await screenshot(page, "tool-call");
  arrival = server.nextChat();
  await page.keyboard.press("Enter"); // to the next field
  await page.keyboard.type("rain");
  await page.keyboard.press("Enter");
  const continued = await arrival;
  assert.deepEqual(continued.body.messages.slice(0, 2), asked.body.messages);
  assert.deepEqual(continued.body.messages.slice(2), [
    {
      role: "assistant",
      content: "",
      reasoning_content: "I must look.",
      tool_calls: ["Paris", "Rome"].map((city, index) => ({
        id: `call_${index}`,
        type: "function",
        function: { name: "get_weather", arguments: `{"city":"${city}"}` },
      })),
    },
    { role: "tool", tool_call_id: "call_0", content: "sunny" },
    { role: "tool", tool_call_id: "call_1", content: "rain" },
  ]);
  continued.answer("Sunny in Paris, rain in Rome.");
  await waitForText(page, ".answer:not(.running) .markdown", "Sunny in Paris");
});

pageTest("a server with keys: 401 asks for one", { key: "s3cret", allowed: /401/ }, async (page) => {
  await waitForText(page, "dialog.small .problem", "no valid API key");
  await screenshot(page, "api-key");
  await page.keyboard.press("Escape");
  await send(page, "Hello");
  await waitForText(page, ".error", "no valid API key");
  await page.type("#api-key", "s3cret");
  const arrival = server.nextChat();
  await page.keyboard.press("Enter");
  const exchange = await arrival; // what failed is sent again
  assert.equal(exchange.headers.authorization, "Bearer s3cret");
  exchange.answer("Welcome.");
  await waitForText(page, ".markdown", "Welcome.");
  assert.deepEqual(await textsOf(page, ".error"), []);
  assert.equal(await page.evaluate(() => JSON.stringify(localStorage).includes("s3cret")), false);
});

pageTest("errors stand in the thread with the server's words", { allowed: /400/ }, async (page) => {
  let arrival = server.nextChat();
  await send(page, "Too long");
  (await arrival).refuse(400, "messages: 40000 tokens do not fit the context of 32768");
  await waitForText(page, ".error", "40000 tokens do not fit the context of 32768");
  arrival = server.nextChat();
  await press(page, "Try again");
  const exchange = await arrival;
  exchange.delta({ content: "Half an" });
  exchange.failMidway("the engine stopped");
  await waitForText(page, ".error", "the engine stopped");
  assert.deepEqual(await textsOf(page, ".markdown"), ["Half an"]);
  await screenshot(page, "error");
});

pageTest("conversations are listed, renamed, exported and deleted", {}, async (page) => {
  await ask(page, "First topic", "A");
  await press(page, "New conversation");
  await ask(page, "Second topic", "B");
  assert.deepEqual(await textsOf(page, ".conversations .title"), ["Second topic", "First topic"]);
  await press(page, "First topic");
  await waitForText(page, ".markdown", "A");
  await press(page, "Rename First topic");
  await page.keyboard.type("Renamed");
  await page.keyboard.press("Enter");
  await waitForText(page, ".conversations .title", "Renamed");
  await page.evaluate(() => {
    const make = URL.createObjectURL;
    URL.createObjectURL = (blob) => {
      window.exported = blob.text();
      return make(blob);
    };
  });
  await press(page, "Export Renamed as JSON");
  const exported = JSON.parse(await page.evaluate(() => window.exported));
  assert.equal(exported.title, "Renamed");
  assert.deepEqual(Object.values(exported.turns).map(({ content }) => content), ["", "First topic", "A"]);
  await press(page, "Delete Renamed");
  await page.click(".conversations .danger");
  await page.waitForFunction(() => document.querySelectorAll(".conversations .title").length === 1);
  await page.reload();
  await waitForText(page, ".conversations .title", "Second topic");
});

pageTest("the engine panel follows /load", {}, async (page) => {
  await waitForText(page, ".engine .state", "busy");
  const panel = (await textsOf(page, ".engine"))[0].replace(/\s+/g, " ");
  for (const shown of ["running 2", "waiting 1", "cache hits 75 %", "accepted 72 %", "tok/step 1.29", "KV pool 20 % used, 30 % cached"]) {
    assert.ok(panel.includes(shown), `${shown} in ${panel}`);
  }
  server.load = { ...server.load, running: 0, draining: true };
  await waitForText(page, ".engine .state", "draining");
});

pageTest("the tier map: hidden without tiers, bars with them, a tier that is down in the warning colour", {}, async (page) => {
  await waitForText(page, ".engine .state", "busy");
  assert.equal(await page.$eval(".tiers", (tiers) => tiers.getClientRects().length), 0);
  const tier = { up: true, records: 300, bytes: 3 << 28, budget_bytes: 1 << 30, cached_tokens: 5000, queued_bytes: 0 };
  server.load = {
    ...server.load,
    kv_tiers: [
      { ...tier, name: "host" },
      { ...tier, name: "disk", up: false, cached_tokens: 2500 },
      { ...tier, name: "redis", budget_bytes: 0, cached_tokens: 0 },
    ],
  };
  await waitForText(page, ".tiers", "redis");
  const rows = (await textsOf(page, ".tiers li")).map((row) => row.replace(/\s+/g, " "));
  assert.deepEqual(rows, ["device 50 % 7.5K hit", "host 75 % 5K hit", "disk down 2.5K hit", "redis 768 MiB 0 hit"]);
  const shares = await page.$$eval(".tier-bar", (bars) =>
    bars.map((bar) => Math.round((100 * bar.firstChild.getBoundingClientRect().width) / bar.getBoundingClientRect().width)),
  );
  assert.deepEqual(shares, [50, 75, 75, 0]);
  await assertNoSidewaysScroll(page);
  await screenshot(page, "tiers");
  const colours = await page.$$eval(".tiers li", (items) => items.map((item) => getComputedStyle(item.children[2]).color));
  const warning = await page.$eval(".engine", (engine) => {
    engine.style.color = "var(--error)";
    return getComputedStyle(engine).color;
  });
  assert.deepEqual(colours.map((colour) => colour === warning), [false, false, true, false]);
});

pageTest("a phone: 360 pixels, dark, no sideways scrolling", { width: 360, height: 740, scheme: "dark" }, async (page) => {
  await waitForText(page, ".empty h1", MODEL);
  assert.equal(await page.$eval("html", (html) => html.dataset.theme), "dark"); // the system's
  await assertNoSidewaysScroll(page);
  await screenshot(page, "phone-empty");
  await ask(page, "Compare two caches in a table.", `${SAMPLE}\n\n${"x".repeat(400)} https://example.org/${"y".repeat(200)}`);
  await assertNoSidewaysScroll(page);
  await page.$eval(".scroller", (scroller) => (scroller.scrollTop = 0));
  await screenshot(page, "phone-answer");
  await press(page, "Conversations and engine");
  await waitForText(page, ".drawer-open .conversations .title", "Compare two caches");
  await waitForText(page, ".engine .state", "busy");
  await page.evaluate(() => Promise.all(document.getAnimations().map((animation) => animation.finished)));
  await assertNoSidewaysScroll(page);
  await screenshot(page, "phone-list");
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => document.querySelector(".sidebar").inert);
  await press(page, "Settings");
  await assertNoSidewaysScroll(page);
  await screenshot(page, "phone-settings");
});
