// Legacy Completions and fill-in-the-middle through OpenAI's library.
import assert from "node:assert/strict";
import { test } from "node:test";
import { GREEDY, MODEL, collect, openai, post } from "./support.mjs";

const client = await openai();
const PROMPT = "The little boat sailed across the";
const create = (body) => client.completions.create({ ...GREEDY, prompt: PROMPT, max_tokens: 16, ...body });

async function streamed(body) {
  const chunks = await collect(await create({ ...body, stream: true, stream_options: { include_usage: true } }));
  const texts = [];
  for (const { object, choices } of chunks) {
    assert.equal(object, "text_completion");
    for (const { index, text } of choices) texts[index] = (texts[index] ?? "") + text;
  }
  const last = chunks.at(-1);
  assert.deepEqual(last.choices, []);
  return { texts, usage: last.usage, finish_reasons: chunks.flatMap((chunk) => chunk.choices.map((choice) => choice.finish_reason)) };
}

test("a text is completed, at once and as a stream", async () => {
  const whole = await create({});
  assert.match(whole.id, /^cmpl-/);
  assert.ok(whole.choices[0].text.length > 0);
  assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);
  const { texts, usage, finish_reasons } = await streamed({});
  assert.deepEqual(texts, [whole.choices[0].text]);
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
  assert.deepEqual(finish_reasons.filter((reason) => reason !== null), [whole.choices[0].finish_reason]);
});

test("token ids are the prompt that their text is", async () => {
  const { tokens } = await (await post("/tokenize", { model: MODEL, prompt: PROMPT })).json();
  const [ids, text] = await Promise.all([create({ prompt: tokens }), create({})]);
  assert.equal(ids.choices[0].text, text.choices[0].text);
  assert.equal(ids.usage.prompt_tokens, tokens.length);
});

test("several prompts and choices are in order", async () => {
  const prompts = [PROMPT, "Snow fell on"];
  const both = await create({ prompt: prompts, n: 2, temperature: 1, seed: 5 });
  assert.deepEqual(both.choices.map((choice) => choice.index), [0, 1, 2, 3]);
  for (const [i, prompt] of prompts.entries()) {
    const alone = await create({ prompt, n: 2, temperature: 1, seed: 5 });
    assert.deepEqual(alone.choices.map((choice) => choice.text), both.choices.slice(2 * i, 2 * i + 2).map((choice) => choice.text));
  }
});

test("echo repeats the prompt with its log probabilities", async () => {
  const plain = await create({});
  const echoed = await create({ echo: true, logprobs: 2 });
  assert.equal(echoed.choices[0].text, PROMPT + plain.choices[0].text);
  const { tokens, token_logprobs, top_logprobs, text_offset } = echoed.choices[0].logprobs;
  for (const list of [token_logprobs, top_logprobs, text_offset]) assert.equal(list.length, tokens.length);
  assert.equal(tokens.join(""), echoed.choices[0].text);
  for (const logprob of token_logprobs) assert.ok(logprob <= 0);
  const again = await create({ echo: true, logprobs: 2, max_tokens: 1 });
  assert.deepEqual(again.choices[0].logprobs.token_logprobs.slice(0, 5), token_logprobs.slice(0, 5));
});

test("the middle is filled in", async () => {
  const body = { prompt: "def add(a, b):\n", suffix: "\n    return total\n" };
  const filled = await create(body);
  const plain = await create({ prompt: body.prompt });
  assert.ok(filled.usage.prompt_tokens > plain.usage.prompt_tokens + 3);
  assert.deepEqual((await streamed(body)).texts, [filled.choices[0].text]);
});

test("a stop sequence ends the text", async () => {
  const whole = (await create({})).choices[0].text;
  const stop = whole.slice(6, 9);
  const stopped = await create({ stop });
  assert.equal(stopped.choices[0].text, whole.slice(0, whole.indexOf(stop)));
  assert.equal(stopped.choices[0].finish_reason, "stop");
});

test("the hosted service's path works too", async () => {
  const beta = await openai({ baseURL: `${process.env.DEEPINFER_URL}/beta` });
  const answer = await beta.completions.create({ ...GREEDY, prompt: PROMPT, max_tokens: 16 });
  assert.equal(answer.choices[0].text, (await create({})).choices[0].text);
});
