// Errors as the client libraries see them: their classes, and what they say.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import Anthropic from "@anthropic-ai/sdk";
import { KEYS, MODEL, NO_THINKING, URL_OF_SERVER, USER, anthropic, failure, get, openai, post, untilLoad } from "./support.mjs";

const client = await openai();
const claude = await anthropic();
const CHAT = { model: MODEL, messages: USER, max_tokens: 4 };
const chat = (body, of = client) => of.chat.completions.create({ ...CHAT, ...body });
// A body that is not read would keep its connection, and with it the suite, alive.
async function statusOf(path, headers = {}) {
  const response = await fetch(URL_OF_SERVER + path, { headers });
  await response.text();
  return response.status;
}
const message = (body, of = claude) => of.messages.create({ ...CHAT, ...body });

test("a wrong key is refused everywhere but where anybody may look", async () => {
  const stranger = await openai({ apiKey: "wrong" });
  const error = await failure(() => chat({}, stranger), OpenAI.AuthenticationError);
  assert.equal(error.status, 401);
  assert.equal(error.code, "invalid_api_key");
  assert.doesNotMatch(error.message, /wrong/);
  await failure(() => stranger.models.list(), OpenAI.AuthenticationError);
  await failure(() => stranger.responses.retrieve("resp_1"), OpenAI.AuthenticationError);
  const other = await anthropic({ apiKey: "wrong" });
  const refused = await failure(() => message({}, other), Anthropic.AuthenticationError);
  assert.equal(refused.error.type, "error");
  assert.equal(refused.error.error.type, "authentication_error");
  for (const path of ["/metrics", "/load"]) assert.equal(await statusOf(path), 401);
  for (const path of ["/", "/health", "/ready"]) assert.equal(await statusOf(path), 200);
});

test("what is not there is not found", async () => {
  await failure(() => client.models.retrieve("another-model"), OpenAI.NotFoundError);
  await failure(() => client.responses.retrieve("resp_none"), OpenAI.NotFoundError);
  await failure(() => client.responses.delete("resp_none"), OpenAI.NotFoundError);
  await failure(() => client.responses.create({ model: MODEL, input: "x", previous_response_id: "resp_none" }), OpenAI.NotFoundError);
  const error = await failure(() => client.embeddings.create({ model: MODEL, input: "x" }), OpenAI.NotFoundError);
  assert.match(error.message, /embeddings/);
  await failure(() => claude.messages.batches.list(), Anthropic.NotFoundError);
  assert.equal(await statusOf("/v1/chat/completions", { authorization: `Bearer ${KEYS.suite.key}` }), 405);
});

test("a wrong field is named", async () => {
  for (const [param, body] of [
    ["temperature", { temperature: 3 }],
    ["max_tokens", { max_tokens: 0 }],
    ["messages", { messages: [] }],
    ["messages[0].role", { messages: [{ role: "robot", content: "x" }] }],
    ["messages[0].content[0].type", { messages: [{ role: "user", content: [{ type: "smell" }] }] }],
    ["tools[0].function.name", { tools: [{ type: "function", function: { name: "a b" } }] }],
    ["tool_choice.function.name", { tool_choice: { type: "function", function: { name: "none" } } }],
    ["stream_options", { stream_options: { include_usage: true } }],
    ["response_format", { response_format: { type: "json_object" } }],
    ["n", { n: 1.5 }],
  ]) {
    for (const more of [{}, param === "stream_options" ? {} : { stream: true }]) {
      const error = await failure(() => chat({ ...body, ...more }), OpenAI.BadRequestError);
      assert.equal(error.param, param);
      assert.equal(error.type, "invalid_request_error");
      assert.ok(error.message.includes(param), error.message);
    }
  }
  for (const [param, body] of [
    ["top_k", { top_k: -5 }],
    ["messages[0].content[0].type", { messages: [{ role: "user", content: [{ type: "smell" }] }] }],
    ["stop_sequences[0]", { stop_sequences: [""] }],
  ]) {
    const error = await failure(() => message(body), Anthropic.BadRequestError);
    assert.equal(error.error.error.type, "invalid_request_error");
    assert.ok(error.message.includes(param), error.message);
    await failure(() => claude.messages.countTokens({ model: MODEL, messages: USER, ...body }), Anthropic.BadRequestError);
  }
  const error = await failure(() => client.responses.create({ model: MODEL, input: [{ type: "message", role: "user", content: [{ type: "smell" }] }] }), OpenAI.BadRequestError);
  assert.equal(error.param, "input[0].content[0].type");
});

test("calls and results that do not fit together are refused", async () => {
  const call = { role: "assistant", content: null, tool_calls: [{ id: "a", type: "function", function: { name: "f", arguments: "{}" } }] };
  for (const messages of [
    [...USER, call],
    [...USER, call, { role: "user", content: "x" }],
    [...USER, call, { role: "tool", tool_call_id: "b", content: "x" }],
    [...USER, { role: "tool", tool_call_id: "a", content: "x" }],
  ]) {
    await failure(() => chat({ messages }), OpenAI.BadRequestError);
  }
  const use = { role: "assistant", content: [{ type: "tool_use", id: "a", name: "f", input: {} }] };
  for (const messages of [[...USER, use], [...USER, use, { role: "user", content: "x" }]]) {
    await failure(() => message({ messages }), Anthropic.BadRequestError);
  }
});

test("what does not fit the context is refused with both numbers", async () => {
  const { data: [{ max_model_len }] } = await get("/v1/models");
  const content = "word ".repeat(max_model_len + 100);
  const { count } = await (await post("/tokenize", { model: MODEL, messages: [{ role: "user", content }] })).json();
  assert.ok(count > max_model_len);
  const messages = [{ role: "user", content }];
  const long = await failure(() => chat({ messages }), OpenAI.BadRequestError);
  assert.equal(long.param, "messages");
  for (const number of [count, max_model_len]) assert.ok(long.message.includes(`${number}`), long.message);
  // The words that agents look for before they shorten a conversation, or its answer.
  assert.match(long.message, /prompt is too long: \d+ tokens > \d+ maximum/);
  assert.match(long.message, /maximum context length is \d+ tokens/);
  assert.match((await failure(() => message({ messages }), Anthropic.BadRequestError)).message, /prompt is too long: \d+ tokens > \d+ maximum/);
  const limit = await failure(() => message({ max_tokens: max_model_len }), Anthropic.BadRequestError);
  const { input_tokens } = await claude.messages.countTokens({ model: MODEL, messages: USER });
  assert.ok(limit.message.includes(`input length and \`max_tokens\` exceed context limit: ${input_tokens} + ${max_model_len} > ${max_model_len}`), limit.message);
  const fits = await failure(() => chat({ max_tokens: max_model_len }), OpenAI.BadRequestError);
  assert.equal(fits.param, "max_tokens");
  const most = Number(/at most (\d+)/.exec(fits.message)[1]);
  assert.equal(most + input_tokens, max_model_len);
});

test("a key's requests and tokens a minute are limited, with a time to come back", async () => {
  const limited = await openai({ apiKey: KEYS.one_a_minute.key });
  // Both at once: a minute must not pass between them.
  const answers = await Promise.allSettled([1, 2].map(() => chat({ ...NO_THINKING, max_tokens: 1 }, limited)));
  assert.equal(answers.filter(({ status }) => status === "fulfilled").length, 1);
  const { reason: error } = answers.find(({ status }) => status === "rejected");
  assert.ok(error instanceof OpenAI.RateLimitError, error);
  assert.equal(error.status, 429);
  assert.equal(error.code, "rate_limit_exceeded");
  const seconds = Number(error.headers.get("retry-after"));
  assert.ok(seconds >= 1 && seconds <= 60, `retry-after ${seconds}`);
  await limited.models.list();

  const other = await anthropic({ apiKey: KEYS.one_token_a_minute.key });
  await message({ ...NO_THINKING, max_tokens: 1 }, other);
  const refused = await failure(() => message({}, other), Anthropic.RateLimitError);
  assert.equal(refused.error.error.type, "rate_limit_error");
  assert.ok(Number(refused.headers.get("retry-after")) > 60, "the prompt's tokens take minutes to come back");
});

test("a key's requests at once are limited", async () => {
  const one = await openai({ apiKey: KEYS.one_at_once.key });
  const stream = await chat({ stream: true, max_tokens: 2000, ignore_eos: true }, one);
  await failure(() => chat({}, one), OpenAI.RateLimitError);
  await chat({ ...NO_THINKING, max_tokens: 1 });
  stream.controller.abort();
  await untilLoad((load) => load.running === 0, "the end of the stream");
  await chat({ ...NO_THINKING, max_tokens: 1 }, one);
});

test("requests are told apart by their ids", async () => {
  const { response, request_id } = await chat({ max_tokens: 1 }).withResponse();
  assert.match(request_id, /^req_/);
  const own = await post("/v1/chat/completions", { ...CHAT, temperature: 9 }, { "x-request-id": "my-own-id" });
  await own.text();
  assert.equal(own.headers.get("x-request-id"), "my-own-id");
  assert.notEqual(response.headers.get("x-request-id"), "my-own-id");
});
