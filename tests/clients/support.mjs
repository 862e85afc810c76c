// What the suites share: the server's address and keys, clients, a tool, looks at the server's state.
import assert from "node:assert/strict";

/** The key file of the server, a suite that tests a limit having a key of its own. */
export const KEYS = {
  suite: { key: "key-of-the-suite", limits: "" },
  one_a_minute: { key: "key-with-one-request-a-minute", limits: "requests_per_minute=1" },
  one_token_a_minute: { key: "key-with-one-token-a-minute", limits: "tokens_per_minute=1" },
  one_at_once: { key: "key-with-one-at-once", limits: "concurrency=1" },
};
export const KEY = KEYS.suite.key;
export const URL_OF_SERVER = process.env.DEEPINFER_URL;
export const MODEL = "nano";

// Dynamic, so that the runner can say what is missing before it is looked for.
export async function openai(options = {}) {
  const { default: OpenAI } = await import("openai");
  return new OpenAI({ baseURL: `${URL_OF_SERVER}/v1`, apiKey: KEY, maxRetries: 0, ...options });
}

export async function anthropic(options = {}) {
  const { default: Anthropic } = await import("@anthropic-ai/sdk");
  return new Anthropic({ baseURL: URL_OF_SERVER, apiKey: KEY, maxRetries: 0, ...options });
}

export const USER = [{ role: "user", content: "Say hello to a new friend." }];
export const NO_THINKING = { thinking: { type: "disabled" } };
/** The same answer each time. */
export const GREEDY = { model: MODEL, temperature: 0, seed: 1 };

export const WEATHER = {
  name: "get_weather",
  description: "The weather in a city",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};
export const TIME = { name: "get_time", description: "The time now", parameters: { type: "object", properties: {} } };
export const CHAT_TOOLS = [WEATHER, TIME].map((tool) => ({ type: "function", function: tool }));
export const RESPONSES_TOOLS = [WEATHER, TIME].map((tool) => ({ type: "function", strict: false, ...tool }));
export const MESSAGES_TOOLS = [WEATHER, TIME].map(({ name, description, parameters }) => ({ name, description, input_schema: parameters }));
export const WEATHER_QUESTION = [{ role: "user", content: "What is the weather in Paris?" }];

/** A declared tool and JSON: what a model of two million words' worth can be held to. */
export function assertCall(name, args) {
  assert.ok(name === WEATHER.name || name === TIME.name, `a call of ${name}`);
  const value = JSON.parse(args);
  assert.ok(value !== null && typeof value === "object" && !Array.isArray(value), args);
}

/** Some hundred tokens, other ones for every `name`. */
export const longText = (name) =>
  Array.from({ length: 40 }, (_, i) => `${name} keeps box ${i} in room ${(i * 7) % 11}.`).join(" ");

export async function get(path) {
  const response = await fetch(`${URL_OF_SERVER}${path}`, { headers: { authorization: `Bearer ${KEY}` } });
  assert.equal(response.status, 200);
  return response.json();
}

export async function post(path, body, headers = {}) {
  return fetch(`${URL_OF_SERVER}${path}`, {
    method: "POST",
    headers: { authorization: `Bearer ${KEY}`, "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
  });
}

// A machine may be busy with other things.
const DEADLINE_MS = 120_000;

/** Waits until /load satisfies `condition`. */
export async function untilLoad(condition, what) {
  const end = Date.now() + DEADLINE_MS;
  for (;;) {
    const load = await get("/load");
    if (condition(load)) return load;
    assert.ok(Date.now() < end, `${what} did not come: ${JSON.stringify(load)}`);
  }
}

export const untilIdle = () => untilLoad((load) => load.running === 0 && load.waiting === 0, "an idle server");

export async function collect(stream) {
  const items = [];
  for await (const item of stream) items.push(item);
  return items;
}

/** What `action` throws, which must be of class `kind`. */
export async function failure(action, kind) {
  try {
    await action();
  } catch (error) {
    assert.ok(error instanceof kind, `${error?.constructor?.name}: ${error?.message}`);
    return error;
  }
  return assert.fail(`expected ${kind.name}`);
}
