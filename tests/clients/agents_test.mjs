// Requests as Claude Code 2.1.197, Codex 0.171.0 and opencode 1.18.33 send them, with texts and tools shortened to our own. Eight
// were recorded with the real programs; claude_code_count_tokens, claude_code_thinking_budget, codex_apply_patch and codex_models
// were written from knowledge of the protocols. Each is taken and answered to the end.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { KEY, URL_OF_SERVER } from "./support.mjs";

const folder = new URL("requests/", import.meta.url);

/** The events of a stream, which must consist of nothing else. */
function eventsOf(text) {
  assert.ok(text.endsWith("\n\n"));
  return text.slice(0, -2).split("\n\n").map((block) => {
    const lines = block.split("\n");
    for (const line of lines) assert.match(line, /^(:|event: |data: )/);
    return lines.find((line) => line.startsWith("data: "))?.slice("data: ".length);
  }).filter((data) => data !== undefined);
}

/** What the last event of each protocol is. */
const ENDS = {
  "/v1/chat/completions": (events) => events.at(-1) === "[DONE]" && JSON.parse(events.at(-2)).choices[0].finish_reason !== null,
  "/v1/responses": (events) => ["response.completed", "response.incomplete"].includes(JSON.parse(events.at(-1)).type),
  "/v1/messages": (events) => JSON.parse(events.at(-1)).type === "message_stop",
};

for (const name of readdirSync(folder)) {
  test(name.replace(".json", ""), async () => {
    const { method, path, headers, body } = JSON.parse(readFileSync(new URL(name, folder), "utf8"));
    const response = await fetch(URL_OF_SERVER + path, {
      method,
      headers: { ...headers, authorization: `Bearer ${KEY}`, ...(body ? { "content-type": "application/json" } : {}) },
      body: body && JSON.stringify(body),
    });
    const text = await response.text();
    assert.equal(response.status, 200, text);
    if (body?.stream) {
      assert.match(response.headers.get("content-type"), /^text\/event-stream/);
      assert.ok(ENDS[path.split("?")[0]](eventsOf(text)), text.slice(-500));
    } else if (method !== "HEAD") {
      assert.equal(typeof JSON.parse(text), "object");
    }
  });
}
