// Responses through OpenAI's library, stored ones included.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { KEYS, MODEL, RESPONSES_TOOLS, WEATHER, WEATHER_QUESTION, assertCall, collect, failure, longText, openai } from "./support.mjs";

const client = await openai();
const create = (body) =>
  client.responses.create({ model: MODEL, temperature: 0, input: "Say hello to a new friend.", max_output_tokens: 200, ...body });
const NO_REASONING = { reasoning: { effort: "none" } };
const texts = (response) => response.output.flatMap((item) => (item.content ?? []).map((part) => part.text));

/** What a response says, without what is its own: ids and times. */
const said = ({ output, status, usage }) =>
  ({ status, output_tokens: usage.output_tokens, items: output.map(({ type, name, arguments: args, content }) => [type, name, args, content?.map((part) => part.text)]) });

test("a response has reasoning, a message, and usage that adds up", async () => {
  const response = await create({ metadata: { suite: "clients" }, instructions: "You are kind." });
  assert.match(response.id, /^resp_/);
  assert.equal(response.status, "completed");
  assert.equal(response.error, null);
  assert.deepEqual(response.output.map((item) => item.type), ["reasoning", "message"]);
  assert.ok(response.output_text.length > 0);
  assert.deepEqual(response.metadata, { suite: "clients" });
  assert.equal(response.instructions, "You are kind.");
  const { usage } = response;
  assert.equal(usage.total_tokens, usage.input_tokens + usage.output_tokens);
  assert.ok(usage.output_tokens_details.reasoning_tokens > 0);
  const without = await create({ ...NO_REASONING, max_output_tokens: 16 });
  assert.deepEqual(without.output.map((item) => item.type), ["message"]);
});

for (const [name, body] of Object.entries({ "thinking": {}, "without thinking": NO_REASONING })) {
  test(`events are numbered, nested, and say what the response says: ${name}`, async () => {
    const whole = await create(body);
    const events = await collect(await create({ ...body, stream: true }));
    assert.deepEqual(events.map((event) => event.sequence_number), events.map((_, i) => i));
    assert.deepEqual(events.slice(0, 2).map((event) => event.type), ["response.created", "response.in_progress"]);
    const last = events.at(-1);
    assert.equal(last.type, "response.completed");
    assert.deepEqual(said(last.response), said(whole));
    const deltas = (type) => events.filter((event) => event.type === type).map((event) => event.delta).join("");
    assert.equal(deltas("response.output_text.delta"), whole.output_text);
    assert.equal(deltas("response.reasoning_text.delta") + whole.output_text, texts(whole).join(""));
    const open = new Set();
    for (const event of events) {
      if (event.type === "response.output_item.added") open.add(event.output_index);
      else if (event.type === "response.output_item.done") assert.ok(open.delete(event.output_index));
      else if (event.output_index !== undefined) assert.ok(open.has(event.output_index), event.type);
    }
    assert.equal(open.size, 0);
  });
}

test("the stream helper puts the response together", async () => {
  const body = { model: MODEL, temperature: 0, input: "Say hello to a new friend.", max_output_tokens: 200 };
  const stream = client.responses.stream(body);
  let text = "";
  stream.on("response.output_text.delta", (event) => (text += event.delta));
  const final = await stream.finalResponse();
  assert.deepEqual(said(final), said(await create({})));
  assert.equal(text, final.output_text);
});

test("a limit makes a response incomplete", async () => {
  const response = await create({ max_output_tokens: 5 });
  assert.equal(response.status, "incomplete");
  assert.deepEqual(response.incomplete_details, { reason: "max_output_tokens" });
  assert.equal(response.usage.output_tokens, 5);
  const events = await collect(await create({ max_output_tokens: 5, stream: true }));
  assert.equal(events.at(-1).type, "response.incomplete");
});

test("responses are kept, listed, deleted, and belong to their key", async () => {
  const response = await create({ ...NO_REASONING, max_output_tokens: 12 });
  const kept = await client.responses.retrieve(response.id);
  assert.deepEqual(kept.output, response.output);
  assert.deepEqual(kept.usage, response.usage);
  const items = await collect(client.responses.inputItems.list(response.id));
  assert.deepEqual(items.map((item) => [item.type, item.role, item.content[0].text]), [["message", "user", "Say hello to a new friend."]]);
  const stranger = await openai({ apiKey: KEYS.one_at_once.key });
  await failure(() => stranger.responses.retrieve(response.id), OpenAI.NotFoundError);
  await client.responses.delete(response.id);
  await failure(() => client.responses.retrieve(response.id), OpenAI.NotFoundError);
  await failure(() => create({ previous_response_id: response.id }), OpenAI.NotFoundError);

  const passing = await create({ ...NO_REASONING, max_output_tokens: 4, store: false });
  await failure(() => client.responses.retrieve(passing.id), OpenAI.NotFoundError);
  const events = await collect(await create({ ...NO_REASONING, max_output_tokens: 4, stream: true }));
  assert.equal((await client.responses.retrieve(events.at(-1).response.id)).id, events.at(-1).response.id);
});

for (const [name, body] of Object.entries({ "thinking": {}, "without thinking": NO_REASONING })) {
  test(`a chain of responses is the conversation sent whole: ${name}`, async () => {
    const turns = [longText("Bo"), "Say that again in one word.", "And once more."].map((content) => ({ role: "user", content }));
    let previous = null;
    let history = [];
    for (const turn of turns) {
      const chained = await create({ ...body, input: [turn], previous_response_id: previous?.id, max_output_tokens: 24 });
      const whole = await create({ ...body, input: [...history, turn], store: false, max_output_tokens: 24 });
      assert.deepEqual(said(chained), said(whole));
      assert.equal(chained.usage.input_tokens, whole.usage.input_tokens);
      assert.equal(chained.previous_response_id, previous?.id ?? null);
      if (previous !== null) assert.ok(chained.usage.input_tokens_details.cached_tokens >= 64, JSON.stringify(chained.usage));
      history = [...history, turn, ...chained.output];
      previous = chained;
    }
    const items = await collect(client.responses.inputItems.list(previous.id));
    assert.equal(items.length, history.length - previous.output.length);
  });
}

for (const [how, reasoning] of [["thinking", {}], ["without thinking", NO_REASONING]]) {
  test(`a required call comes, and its output goes on: ${how}`, async () => {
    const body = { ...reasoning, input: WEATHER_QUESTION, tools: RESPONSES_TOOLS, tool_choice: { type: "function", name: WEATHER.name }, max_output_tokens: 300, parallel_tool_calls: false };
    const response = await create(body);
    const calls = response.output.filter((item) => item.type === "function_call");
    assert.equal(calls.length, 1);
    assert.equal(calls[0].name, WEATHER.name);
    assertCall(calls[0].name, calls[0].arguments);
    assert.equal(response.output[0].type === "reasoning", how === "thinking");

    const events = await collect(await create({ ...body, stream: true }));
    const pieces = events.filter((event) => event.type === "response.function_call_arguments.delta").map((event) => event.delta);
    const done = events.find((event) => event.type === "response.function_call_arguments.done");
    assert.equal(pieces.join(""), calls[0].arguments);
    assert.equal(done.arguments, calls[0].arguments);

    const output = { type: "function_call_output", call_id: calls[0].call_id, output: "Sunny, 21 degrees." };
    const next = { ...reasoning, tools: RESPONSES_TOOLS, max_output_tokens: 16 };
    const chained = await create({ ...next, input: [output], previous_response_id: response.id });
    const whole = await create({ ...next, input: [...WEATHER_QUESTION, ...response.output, output] });
    assert.deepEqual(said(chained), said(whole));
    const unanswered = await failure(() => create({ ...next, input: "Well?", previous_response_id: response.id }), OpenAI.BadRequestError);
    assert.match(unanswered.message, /call/);
  });
}

test("log probabilities are included when asked for", async () => {
  const response = await create({ ...NO_REASONING, max_output_tokens: 8, include: ["message.output_text.logprobs"], top_logprobs: 2 });
  const { text, logprobs } = response.output[0].content[0];
  assert.equal(Buffer.from(logprobs.flatMap((token) => token.bytes)).toString("utf8"), text);
  for (const { top_logprobs } of logprobs) assert.equal(top_logprobs.length, 2);
});
