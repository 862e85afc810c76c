// Clients that leave: the server stops working for them at once, and others notice nothing.
import assert from "node:assert/strict";
import { before, test } from "node:test";
import OpenAI from "openai";
import Anthropic from "@anthropic-ai/sdk";
import { GREEDY, MODEL, NO_THINKING, USER, anthropic, failure, get, openai, untilIdle, untilLoad } from "./support.mjs";

const client = await openai();
const claude = await anthropic();
// Minutes of work, if nobody stopped it.
const LONG = { ...GREEDY, messages: [{ role: "user", content: "Tell me a very long story about the sea." }], max_tokens: 6000 };
const { seed, ...LONG_WITHOUT_SEED } = LONG;

before(untilIdle);

/** Leaves after some pieces. */
async function leave(stream) {
  let pieces = 0;
  for await (const piece of stream) {
    assert.notEqual(piece, undefined);
    if (++pieces === 5) break;
  }
  assert.equal(pieces, 5);
}

for (const [name, start] of Object.entries({
  "chat": () => client.chat.completions.create({ ...LONG, ignore_eos: true, stream: true }),
  "two choices": () => client.chat.completions.create({ ...LONG, n: 2, ignore_eos: true, stream: true }),
  "completions": () => client.completions.create({ ...GREEDY, prompt: "Once", max_tokens: 6000, ignore_eos: true, stream: true }),
  "responses": () => client.responses.create({ model: MODEL, input: "Tell me a very long story.", max_output_tokens: 6000, stream: true }),
  "messages": () => claude.messages.create({ ...LONG_WITHOUT_SEED, stream: true }),
})) {
  test(`a stream that is left stops: ${name}`, async () => {
    const { generated_tokens } = await get("/load");
    await leave(await start());
    const load = await untilIdle();
    assert.equal(load.running, 0);
    assert.ok(load.generated_tokens - generated_tokens < 6000);
  });
}

test("a request that waits for its whole answer stops too", async () => {
  const controller = new AbortController();
  const answer = client.chat.completions.create({ ...LONG, ignore_eos: true }, { signal: controller.signal });
  const failed = failure(() => answer, OpenAI.APIUserAbortError);
  await untilLoad((load) => load.running === 1, "the running request");
  controller.abort();
  await failed;
  await untilIdle();
});

test("a helper that is aborted stops", async () => {
  const chat = client.chat.completions.stream({ ...LONG, ignore_eos: true });
  chat.on("chunk", () => chat.abort());
  await failure(() => chat.done(), OpenAI.APIUserAbortError);
  const messages = claude.messages.stream(LONG_WITHOUT_SEED);
  messages.on("streamEvent", () => messages.abort());
  await failure(() => messages.done(), Anthropic.APIUserAbortError);
  await untilIdle();
});

test("those who stay get the answer they get alone", async () => {
  const stay = () => client.chat.completions.create({ ...GREEDY, ...NO_THINKING, messages: USER, max_tokens: 24 });
  const alone = await stay();
  const leaving = await Promise.all([1, 2, 3].map(() => client.chat.completions.create({ ...LONG, ignore_eos: true, stream: true })));
  const [together] = await Promise.all([stay(), ...leaving.map(leave)]);
  assert.equal(together.choices[0].message.content, alone.choices[0].message.content);
  await untilIdle();
  const metrics = await (await fetch(`${process.env.DEEPINFER_URL}/metrics`, { headers: { authorization: `Bearer ${client.apiKey}` } })).text();
  const left = /^deepinfer_client_disconnects_total(?:\{[^}]*\})? (\d+)/m.exec(metrics);
  assert.ok(left !== null && Number(left[1]) >= 3, "departures are counted");
});
