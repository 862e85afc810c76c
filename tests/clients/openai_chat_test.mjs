// Chat Completions through OpenAI's library.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  CHAT_TOOLS,
  GREEDY,
  MODEL,
  NO_THINKING,
  USER,
  WEATHER,
  WEATHER_QUESTION,
  assertCall,
  collect,
  get,
  longText,
  openai,
  post,
} from "./support.mjs";

const client = await openai();
const create = (body) => client.chat.completions.create({ ...GREEDY, messages: USER, max_tokens: 32, ...body });

/** A stream put together, choice by choice. */
async function streamed(body) {
  const chunks = await collect(await create({ ...body, stream: true, stream_options: { include_usage: true } }));
  const choices = [];
  let usage = null;
  for (const chunk of chunks) {
    assert.equal(chunk.object, "chat.completion.chunk");
    assert.equal(chunk.id, chunks[0].id);
    usage = chunk.usage ?? usage;
    for (const { index, delta, finish_reason, logprobs } of chunk.choices) {
      const choice = (choices[index] ??= { content: "", reasoning: "", calls: [], logprobs: [], finish_reason: null });
      assert.equal(choice.finish_reason, null, "nothing follows the end of a choice");
      choice.role ??= delta.role;
      choice.content += delta.content ?? "";
      choice.reasoning += delta.reasoning_content ?? "";
      choice.logprobs.push(...(logprobs?.content ?? []));
      for (const piece of delta.tool_calls ?? []) {
        const call = (choice.calls[piece.index] ??= { id: piece.id, name: piece.function.name, arguments: "" });
        call.arguments += piece.function.arguments ?? "";
      }
      choice.finish_reason = finish_reason;
    }
  }
  return { chunks, choices, usage };
}

function assertUsage(usage) {
  assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
  assert.equal(usage.prompt_cache_hit_tokens, usage.prompt_tokens_details.cached_tokens);
  assert.equal(usage.prompt_cache_hit_tokens + usage.prompt_cache_miss_tokens, usage.prompt_tokens);
}

test("models are listed and looked up", async () => {
  const models = await collect(client.models.list());
  assert.deepEqual(models.map((model) => model.id), [MODEL]);
  assert.equal((await client.models.retrieve(MODEL)).object, "model");
});

test("an answer is reasoning and text, with usage that adds up", async () => {
  const answer = await create({ max_tokens: 200 });
  assert.match(answer.id, /^chatcmpl-/);
  assert.equal(answer.object, "chat.completion");
  assert.equal(answer.model, MODEL);
  assert.ok(Math.abs(answer.created - Date.now() / 1000) < 3600);
  const [{ message, finish_reason }] = answer.choices;
  assert.equal(message.role, "assistant");
  assert.ok(message.reasoning_content.length > 0);
  assert.ok(message.content.length > 0);
  assert.doesNotMatch(message.content + message.reasoning_content, /<\/?think>|DSML/);
  assert.equal(finish_reason, "stop");
  assertUsage(answer.usage);
  const { reasoning_tokens } = answer.usage.completion_tokens_details;
  assert.ok(reasoning_tokens > 0 && reasoning_tokens < answer.usage.completion_tokens);
  const counted = await (await post("/tokenize", { model: MODEL, messages: USER })).json();
  assert.equal(counted.count, answer.usage.prompt_tokens);
});

for (const [name, body] of Object.entries({
  "thinking": {},
  "without thinking": NO_THINKING,
  "at temperature 1": { temperature: 1, seed: 42 },
  "with penalties and filters": { temperature: 1.2, seed: 3, top_p: 0.9, frequency_penalty: 0.5, presence_penalty: 0.2 },
})) {
  test(`a stream says what the whole answer says: ${name}`, async () => {
    const whole = await create(body);
    const { chunks, choices: [choice], usage } = await streamed(body);
    assert.equal(choice.role, "assistant");
    assert.equal(choice.content, whole.choices[0].message.content);
    assert.equal(choice.reasoning, whole.choices[0].message.reasoning_content ?? "");
    assert.equal(choice.finish_reason, whole.choices[0].finish_reason);
    assert.ok(chunks.length > 5, `${chunks.length} chunks`);
    for (const key of ["prompt_tokens", "completion_tokens", "total_tokens"]) assert.equal(usage[key], whole.usage[key]);
    assertUsage(usage);
  });
}

test("thinking is turned off in three ways", async () => {
  const off = { messages: USER };
  const answers = await Promise.all([
    create({ ...off, ...NO_THINKING }),
    create({ ...off, reasoning_effort: "none" }),
    create({ ...off, chat_template_kwargs: { enable_thinking: false } }),
  ]);
  for (const { choices, usage } of answers) {
    assert.equal(choices[0].message.reasoning_content, undefined);
    assert.equal(choices[0].message.content, answers[0].choices[0].message.content);
    assert.equal(usage.completion_tokens_details, undefined);
  }
});

test("the limit ends an answer", async () => {
  for (const limit of [{ max_tokens: 7 }, { max_tokens: undefined, max_completion_tokens: 7 }]) {
    const answer = await create({ ...limit, ignore_eos: true });
    assert.equal(answer.choices[0].finish_reason, "length");
    assert.equal(answer.usage.completion_tokens, 7);
  }
});

test("a stop sequence ends an answer and is not said", async () => {
  const whole = (await create(NO_THINKING)).choices[0].message.content;
  const stop = whole.slice(Math.floor(whole.length / 2), Math.floor(whole.length / 2) + 3);
  for (const stops of [stop, ["never said ☃", stop]]) {
    const answer = await create({ ...NO_THINKING, stop: stops });
    assert.equal(answer.choices[0].message.content, whole.slice(0, whole.indexOf(stop)));
    assert.equal(answer.choices[0].finish_reason, "stop");
    const { choices: [choice] } = await streamed({ ...NO_THINKING, stop: stops });
    assert.equal(choice.content, answer.choices[0].message.content);
  }
});

test("several choices are told apart", async () => {
  const body = { ...NO_THINKING, n: 2, temperature: 1, seed: 11, max_tokens: 16 };
  const whole = await create(body);
  assert.deepEqual(whole.choices.map((choice) => choice.index), [0, 1]);
  assert.notEqual(whole.choices[0].message.content, whole.choices[1].message.content);
  assert.ok(whole.usage.completion_tokens > 16);
  const { choices } = await streamed(body);
  assert.deepEqual(choices.map((choice) => choice.content), whole.choices.map((choice) => choice.message.content));
  const alone = await create({ ...body, n: 1 });
  assert.equal(alone.choices[0].message.content, whole.choices[0].message.content);
});

test("log probabilities are those of the text's tokens", async () => {
  const body = { ...NO_THINKING, logprobs: true, top_logprobs: 4 };
  const whole = await create(body);
  const { content, logprobs } = { content: whole.choices[0].message.content, logprobs: whole.choices[0].logprobs.content };
  const bytes = Buffer.from(logprobs.flatMap((token) => token.bytes));
  assert.equal(bytes.toString("utf8"), content);
  assert.equal(logprobs.length, whole.usage.completion_tokens);
  for (const { token, logprob, top_logprobs } of logprobs) {
    assert.equal(top_logprobs.length, 4);
    assert.equal(top_logprobs[0].token, token, "the greedy token is the likeliest");
    assert.equal(top_logprobs[0].logprob, logprob);
    const sum = top_logprobs.reduce((all, top) => all + Math.exp(top.logprob), 0);
    assert.ok(sum > 0 && sum < 1 + 1e-4, `probabilities of ${sum}`);
    for (let i = 1; i < 4; ++i) assert.ok(top_logprobs[i - 1].logprob >= top_logprobs[i].logprob);
  }
  const { choices: [choice] } = await streamed(body);
  assert.deepEqual(choice.logprobs, logprobs);
});

test("tokens are banned and preferred by their ids", async () => {
  const { tokens } = await (await post("/tokenize", { model: MODEL, prompt: " snow", add_special_tokens: false })).json();
  const biased = await create({ ...NO_THINKING, max_tokens: 4, logit_bias: { [tokens[0]]: 100 } });
  const { prompt } = await (await post("/detokenize", { model: MODEL, tokens: [tokens[0]] })).json();
  assert.equal(biased.choices[0].message.content.trim(), prompt.repeat(4).trim());
});

for (const [how, thinking] of [["thinking", {}], ["without thinking", NO_THINKING]]) {
  for (const [what, tool_choice] of [
    ["any tool", "required"],
    ["a named tool", { type: "function", function: { name: WEATHER.name } }],
  ]) {
    test(`a call can be required: ${what}, ${how}`, async () => {
      const body = { messages: WEATHER_QUESTION, tools: CHAT_TOOLS, tool_choice, max_tokens: 300, parallel_tool_calls: false, ...thinking };
      const whole = await create(body);
      const [{ message, finish_reason }] = whole.choices;
      assert.equal(finish_reason, "tool_calls");
      assert.equal(message.tool_calls.length, 1);
      const [call] = message.tool_calls;
      assert.equal(call.type, "function");
      assert.ok(call.id.length > 0);
      assertCall(call.function.name, call.function.arguments);
      if (typeof tool_choice === "object") assert.equal(call.function.name, WEATHER.name);
      assert.equal(message.reasoning_content === undefined, how !== "thinking");

      const { choices: [choice] } = await streamed(body);
      assert.deepEqual(choice.calls.map(({ name, arguments: args }) => ({ name, arguments: args })), [
        { name: call.function.name, arguments: call.function.arguments },
      ]);
      assert.equal(choice.reasoning, message.reasoning_content ?? "");
      assert.equal(choice.finish_reason, "tool_calls");
    });
  }
}

test("a call's result is answered, and a conversation goes on from the prefix cache", async () => {
  const body = { tools: CHAT_TOOLS, max_tokens: 300 };
  const first = await create({ ...body, messages: WEATHER_QUESTION, tool_choice: "required", parallel_tool_calls: false });
  const { message } = first.choices[0];
  const history = [
    ...WEATHER_QUESTION,
    message,
    { role: "tool", tool_call_id: message.tool_calls[0].id, content: "Sunny, 21 degrees." },
  ];
  const second = await create({ ...body, messages: history, max_tokens: 24 });
  assert.ok(second.usage.prompt_tokens > first.usage.prompt_tokens);
  assert.ok(second.usage.prompt_tokens_details.cached_tokens >= 64, JSON.stringify(second.usage));
  const third = await create({
    ...body,
    messages: [...history, { role: "assistant", content: "It is sunny." }, { role: "user", content: [{ type: "text", text: "Thank you." }] }],
    max_tokens: 8,
  });
  assert.ok(third.usage.prompt_tokens > second.usage.prompt_tokens);
  assert.ok(third.usage.prompt_tokens_details.cached_tokens >= 64, JSON.stringify(third.usage));
});

test("the stream helper puts the answer together", async () => {
  const body = { ...GREEDY, messages: USER, max_tokens: 32 };
  const whole = await create(body);
  const runner = client.chat.completions.stream(body);
  let text = "";
  runner.on("content", (delta) => (text += delta));
  const final = await runner.finalChatCompletion();
  assert.equal(final.choices[0].message.content, whole.choices[0].message.content);
  assert.equal(text, whole.choices[0].message.content);
  const calls = client.chat.completions.stream({ ...body, ...NO_THINKING, messages: WEATHER_QUESTION, tools: CHAT_TOOLS, tool_choice: "required", max_tokens: 300 });
  const done = [];
  calls.on("tool_calls.function.arguments.done", (call) => done.push(call));
  const { tool_calls } = (await calls.finalChatCompletion()).choices[0].message;
  assert.deepEqual(done.map((call) => call.arguments), tool_calls.map((call) => call.function.arguments));
  for (const call of tool_calls) assertCall(call.function.name, call.function.arguments);
});

test("the tool runner calls the function", async () => {
  const seen = [];
  const runner = client.chat.completions.runTools({
    ...GREEDY,
    ...NO_THINKING,
    messages: WEATHER_QUESTION,
    max_tokens: 300,
    parallel_tool_calls: false,
    tool_choice: { type: "function", function: { name: WEATHER.name } },
    tools: [{ type: "function", function: { ...WEATHER, parse: JSON.parse, function: (args) => seen.push(args) && "Sunny." } }],
  });
  await runner.done();
  assert.equal(seen.length, 1);
  assert.equal(typeof seen[0], "object");
  assert.equal(runner.messages.at(-1).role, "tool");
});

test("a prefix is continued", async () => {
  const whole = (await create(NO_THINKING)).choices[0].message.content;
  const prefix = whole.slice(0, whole.indexOf(" ", 5));
  const answer = await create({ ...NO_THINKING, messages: [...USER, { role: "assistant", content: prefix, prefix: true }] });
  assert.equal(prefix + answer.choices[0].message.content, whole);
});

test("JSON mode says nothing before the JSON", async () => {
  const messages = [{ role: "user", content: "Answer in JSON with the keys city and country: Where is Paris?" }];
  const body = { ...NO_THINKING, messages, response_format: { type: "json_object" }, max_tokens: 64 };
  const whole = await create(body);
  assert.match(whole.choices[0].message.content, /^(\s*[{[].*)?\s*$/s);
  assert.equal((await streamed(body)).choices[0].content, whole.choices[0].message.content);
});

test("roles and content parts say the same in each spelling", async () => {
  const ask = (system, content) => create({ ...NO_THINKING, messages: [{ role: system, content: "You are terse." }, { role: "user", content }] });
  const [plain, developer, parts] = await Promise.all([
    ask("system", "Hello"),
    ask("developer", "Hello"),
    ask("system", [{ type: "text", text: "Hello" }]),
  ]);
  assert.equal(developer.choices[0].message.content, plain.choices[0].message.content);
  assert.equal(parts.choices[0].message.content, plain.choices[0].message.content);
  assert.equal(developer.usage.prompt_tokens, plain.usage.prompt_tokens);
});

test("a long prompt is found in the cache the second time, with the same answer", async () => {
  const messages = [{ role: "user", content: longText("Ada") }];
  const first = await create({ messages, max_tokens: 12 });
  const second = await create({ messages, max_tokens: 12 });
  assert.ok(second.usage.prompt_tokens_details.cached_tokens >= 64, JSON.stringify(second.usage));
  assert.ok(second.usage.prompt_tokens_details.cached_tokens < second.usage.prompt_tokens);
  const apart = await create({ messages, max_tokens: 12, cache_salt: "another" });
  assert.equal(apart.usage.prompt_tokens_details.cached_tokens, 0);
  assert.equal(first.usage.prompt_tokens_details.cached_tokens, 0);
});

test("requests at once get the answers they get alone", async () => {
  const questions = ["Tell me about rivers.", "Tell me about trees.", "Tell me about the sea."];
  const ask = (content) => create({ messages: [{ role: "user", content }], max_tokens: 16 });
  const together = await Promise.all(questions.map(ask));
  for (const [i, question] of questions.entries()) {
    const alone = await ask(question);
    assert.equal(together[i].choices[0].message.reasoning_content, alone.choices[0].message.reasoning_content);
    assert.equal(together[i].choices[0].message.content, alone.choices[0].message.content);
  }
  assert.equal((await get("/load")).running, 0);
});
