// Messages through Anthropic's library.
import assert from "node:assert/strict";
import { test } from "node:test";
import { MESSAGES_TOOLS, MODEL, NO_THINKING, USER, WEATHER, WEATHER_QUESTION, anthropic, assertCall, collect, longText, post } from "./support.mjs";

const client = await anthropic();
const BASE = { model: MODEL, temperature: 0, max_tokens: 32, messages: USER };
const create = (body) => client.messages.create({ ...BASE, ...body });
const inputTokens = ({ usage }) => usage.input_tokens + usage.cache_read_input_tokens;
const said = ({ content, stop_reason, stop_sequence }) => ({
  content: content.map(({ type, text, thinking, name, input }) => ({ type, text, thinking, name, input })),
  stop_reason,
  stop_sequence,
});

test("a message is thinking and text", async () => {
  const message = await create({ max_tokens: 200 });
  assert.match(message.id, /^msg_/);
  assert.equal(message.type, "message");
  assert.equal(message.role, "assistant");
  assert.equal(message.model, MODEL);
  assert.deepEqual(message.content.map((block) => block.type), ["thinking", "text"]);
  assert.ok(message.content[0].signature.length > 0);
  assert.equal(message.stop_reason, "end_turn");
  assert.equal(message.stop_sequence, null);
  const off = await create(NO_THINKING);
  assert.deepEqual(off.content.map((block) => block.type), ["text"]);
});

for (const [name, body] of Object.entries({
  "thinking": { thinking: { type: "enabled", budget_tokens: 1024 } },
  "thinking adaptively": { thinking: { type: "adaptive" }, output_config: { effort: "low" } },
  "without thinking": NO_THINKING,
})) {
  test(`events are nested and say what the message says: ${name}`, async () => {
    const whole = await create(body);
    const events = await collect(await create({ ...body, stream: true }));
    assert.equal(events[0].type, "message_start");
    assert.deepEqual(events[0].message.content, []);
    assert.deepEqual(events.slice(-2).map((event) => event.type), ["message_delta", "message_stop"]);
    let open = null;
    let blocks = 0;
    for (const event of events) {
      if (event.type === "content_block_start") {
        assert.equal(open, null);
        assert.equal(event.index, blocks);
        open = blocks++;
      } else if (event.type === "content_block_delta") {
        assert.equal(event.index, open);
      } else if (event.type === "content_block_stop") {
        assert.equal(event.index, open);
        open = null;
      }
    }
    assert.equal(open, null);

    const stream = client.messages.stream({ ...BASE, ...body });
    let text = "";
    let thinking = "";
    stream.on("text", (delta) => (text += delta)).on("thinking", (delta) => (thinking += delta));
    const final = await stream.finalMessage();
    assert.deepEqual(said(final), said(whole));
    assert.equal(text, whole.content.filter((block) => block.type === "text").map((block) => block.text).join(""));
    assert.equal(thinking, whole.content.filter((block) => block.type === "thinking").map((block) => block.thinking).join(""));
    assert.equal(final.usage.output_tokens, whole.usage.output_tokens);
  });
}

test("a limit and a stop sequence end a message", async () => {
  const limited = await create({ ...NO_THINKING, max_tokens: 3 });
  assert.equal(limited.stop_reason, "max_tokens");
  assert.equal(limited.usage.output_tokens, 3);
  const whole = (await create(NO_THINKING)).content[0].text;
  const stop = whole.slice(6, 9);
  const stopped = await create({ ...NO_THINKING, stop_sequences: ["never said ☃", stop] });
  assert.equal(stopped.stop_reason, "stop_sequence");
  assert.equal(stopped.stop_sequence, stop);
  assert.equal(stopped.content[0].text, whole.slice(0, whole.indexOf(stop)));
});

test("tokens are counted as they are used", async () => {
  const bodies = [
    {},
    NO_THINKING,
    { system: [{ type: "text", text: "You are kind.", cache_control: { type: "ephemeral" } }], tools: MESSAGES_TOOLS },
    { messages: [...USER, { role: "assistant", content: "Hello." }, { role: "user", content: [{ type: "text", text: longText("Cy") }] }] },
  ];
  for (const body of bodies) {
    const { input_tokens } = await client.messages.countTokens({ model: MODEL, messages: USER, ...body });
    for (let again = 0; again < 2; ++again) {
      const { usage } = await create({ ...body, max_tokens: 1 });
      assert.equal(usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens, input_tokens);
    }
  }
});

test("a long prompt is read from the cache the second time", async () => {
  const messages = [{ role: "user", content: longText("Dora") }];
  const first = await create({ messages });
  const second = await create({ messages });
  assert.equal(first.usage.cache_read_input_tokens, 0);
  assert.ok(second.usage.cache_read_input_tokens >= 64, JSON.stringify(second.usage));
});

for (const [how, thinking] of [["thinking", {}], ["without thinking", NO_THINKING]]) {
  test(`a required tool is used, and its result goes on: ${how}`, async () => {
    const body = { ...thinking, tools: MESSAGES_TOOLS, max_tokens: 300 };
    const forced = { ...body, messages: WEATHER_QUESTION, tool_choice: { type: "tool", name: WEATHER.name, disable_parallel_tool_use: true } };
    const message = await create(forced);
    assert.equal(message.stop_reason, "tool_use");
    const calls = message.content.filter((block) => block.type === "tool_use");
    assert.equal(calls.length, 1);
    assert.equal(calls[0].name, WEATHER.name);
    assertCall(calls[0].name, JSON.stringify(calls[0].input));
    assert.equal(message.content[0].type === "thinking", how === "thinking");

    const stream = client.messages.stream({ ...BASE, ...forced });
    let json = "";
    stream.on("inputJson", (delta) => (json += delta));
    const final = await stream.finalMessage();
    assert.deepEqual(said(final), said(message));
    assert.deepEqual(JSON.parse(json), calls[0].input);

    const result = (content) => [{ type: "tool_result", tool_use_id: calls[0].id, content }];
    const history = (content) => [...WEATHER_QUESTION, { role: "assistant", content: message.content }, { role: "user", content }];
    const answer = await create({ ...body, messages: history(result("Sunny.")), max_tokens: 16 });
    const blocks = await create({ ...body, messages: history(result([{ type: "text", text: "Sunny." }])), max_tokens: 16 });
    assert.deepEqual(said(blocks), said(answer));
    assert.ok(answer.usage.cache_read_input_tokens >= 64, JSON.stringify(answer.usage));
  });
}

test("the beta client and the hosted service's path work too", async () => {
  const beta = await client.beta.messages.create({ ...BASE, ...NO_THINKING, betas: ["interleaved-thinking-2025-05-14"] });
  const hosted = await anthropic({ baseURL: `${process.env.DEEPINFER_URL}/anthropic` });
  const message = await create(NO_THINKING);
  assert.deepEqual(said(beta), said(message));
  assert.deepEqual(said(await hosted.messages.create({ ...BASE, ...NO_THINKING })), said(message));
  const bearer = await anthropic({ apiKey: null, authToken: client.apiKey });
  assert.deepEqual(said(await bearer.messages.create({ ...BASE, ...NO_THINKING })), said(message));
});

test("the tool runner runs the tool, though the server keeps no threads", async () => {
  // What it would otherwise believe to be kept: it sends only what is new.
  const refused = await post("/v1/messages", { ...BASE, thread: { type: "continue", previous_message_id: "msg_1" } });
  assert.equal(refused.status, 400);
  assert.equal((await refused.json()).error.details.error_code, "thread_unsupported_request");

  const seen = [];
  const runner = client.beta.messages.toolRunner({
    ...BASE,
    ...NO_THINKING,
    messages: WEATHER_QUESTION,
    max_tokens: 300,
    max_iterations: 2,
    tool_choice: { type: "tool", name: WEATHER.name, disable_parallel_tool_use: true },
    tools: [{ ...MESSAGES_TOOLS[0], run: (input) => (seen.push(input), "Sunny."), parse: (input) => input }],
  });
  const messages = await collect(runner);
  assert.equal(messages.length, 2);
  assert.ok(inputTokens(messages[1]) > inputTokens(messages[0]), "the second turn has the first one before it");
  assert.ok(seen.length >= 1);
  for (const input of seen) assert.equal(typeof input, "object");
});
