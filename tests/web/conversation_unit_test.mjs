import assert from "node:assert/strict";
import { test } from "node:test";
import { Answer, decodeRate } from "../../web/src/answer";
import { NOT_RUN, chatRequest } from "../../web/src/chat_request";
import { addTurn, leafOf, newConversation, pathOf, placeOf, removeLeaf, selectSibling, titleFrom } from "../../web/src/conversation";
import { checkNumber, defaultSettings, NUMBER_FIELDS, parseTools, settingsFrom } from "../../web/src/settings";
import { Store, conversationFrom } from "../../web/src/store";

class FakeStorage {
  entries = new Map();
  full = false;
  get length() {
    return this.entries.size;
  }
  key(i) {
    return [...this.entries.keys()][i] ?? null;
  }
  getItem(key) {
    return this.entries.get(key) ?? null;
  }
  setItem(key, value) {
    if (this.full) throw new Error("QuotaExceededError");
    this.entries.set(key, value);
  }
  removeItem(key) {
    this.entries.delete(key);
  }
}

const user = (conversation, parent, content) => addTurn(conversation, parent.id, { role: "user", content });
const done = { model: "m", state: "done", finish: "stop" };
const answer = (conversation, parent, content, more = {}) =>
  addTurn(conversation, parent.id, { role: "assistant", content, info: { ...done }, ...more });
const fresh = (settings = {}) => newConversation({ ...defaultSettings(), ...settings }, 1000);
const messages = (conversation) => chatRequest(conversation, leafOf(conversation), "m").messages;
const texts = (conversation) => pathOf(conversation).map(({ content }) => content);

test("branches: siblings, arrows, and each keeps what follows it", () => {
  const conversation = fresh();
  const question = user(conversation, leafOf(conversation), "Q");
  const first = answer(conversation, question, "A1");
  user(conversation, first, "then");
  const second = answer(conversation, question, "A2");
  assert.deepEqual(texts(conversation), ["Q", "A2"]);
  assert.deepEqual(placeOf(conversation, second), { index: 1, count: 2 });
  selectSibling(conversation, second, -1);
  assert.deepEqual(texts(conversation), ["Q", "A1", "then"]);
  selectSibling(conversation, first, -1);
  assert.deepEqual(texts(conversation), ["Q", "A1", "then"]);
  user(conversation, conversation.turns.root, "Q edited");
  assert.deepEqual(texts(conversation), ["Q edited"]);
  selectSibling(conversation, leafOf(conversation), -1);
  assert.deepEqual(texts(conversation), ["Q", "A1", "then"]);
  removeLeaf(conversation, leafOf(conversation));
  removeLeaf(conversation, first);
  assert.deepEqual(texts(conversation), ["Q", "A2"]);
  removeLeaf(conversation, question); // has children: stays
  assert.deepEqual(texts(conversation), ["Q", "A2"]);
});

test("titles", () => {
  assert.equal(titleFrom("  One line\nanother"), "One line");
  assert.equal(Array.from(titleFrom("😀".repeat(100))).length, 60);
});

test("requests: history is append-only, settings are sent when they are set", () => {
  const conversation = fresh({ system: "Be brief.", thinking: "max", temperature: 0, seed: 7 });
  answer(conversation, user(conversation, leafOf(conversation), "One"), "1", { reasoning: "hm" });
  user(conversation, leafOf(conversation), "Two");
  const before = messages(conversation);
  answer(conversation, leafOf(conversation), "2");
  user(conversation, leafOf(conversation), "Three");
  assert.deepEqual(messages(conversation).slice(0, before.length), before);
  assert.deepEqual(chatRequest(conversation, leafOf(conversation), "m"), {
    model: "m",
    messages: [
      { role: "system", content: "Be brief." },
      { role: "user", content: "One" },
      { role: "assistant", content: "1" },
      { role: "user", content: "Two" },
      { role: "assistant", content: "2" },
      { role: "user", content: "Three" },
    ],
    stream: true,
    stream_options: { include_usage: true },
    thinking: { type: "enabled" },
    reasoning_effort: "max",
    temperature: 0,
    seed: 7,
  });
  conversation.settings.thinking = "off";
  assert.deepEqual(chatRequest(conversation, leafOf(conversation), "m").thinking, { type: "disabled" });
});

test("requests: calls, results, and calls that nobody ran", () => {
  const tools = '[{"name": "f", "parameters": {"type": "object"}}]';
  const conversation = fresh({ tools });
  const calls = [
    { id: "a", name: "f", arguments: "{}" },
    { id: "b", name: "f", arguments: '{"x":1}' },
  ];
  const call = ({ id, name, arguments: text }) => ({ id, type: "function", function: { name, arguments: text } });
  answer(conversation, user(conversation, leafOf(conversation), "Go"), "", { reasoning: "think", calls });
  const asked = leafOf(conversation);
  user(conversation, asked, "Never mind");
  assert.deepEqual(messages(conversation).slice(1), [
    { role: "assistant", content: "", reasoning_content: "think", tool_calls: calls.map(call) },
    { role: "tool", tool_call_id: "a", content: NOT_RUN },
    { role: "tool", tool_call_id: "b", content: NOT_RUN },
    { role: "user", content: "Never mind" },
  ]);
  addTurn(conversation, asked.id, { role: "tools", content: "", results: { a: "1", b: "2" } });
  assert.deepEqual(messages(conversation).slice(2).map(({ content }) => content), ["1", "2"]);
  assert.deepEqual(chatRequest(conversation, leafOf(conversation), "m").tools, [
    { type: "function", function: { name: "f", parameters: { type: "object" } } },
  ]);
});

test("requests: what was stopped keeps whole calls; an answer that said nothing is left out", () => {
  const conversation = fresh();
  const question = user(conversation, leafOf(conversation), "Go");
  answer(conversation, question, "", {
    info: { ...done, state: "stopped" },
    calls: [
      { id: "a", name: "f", arguments: '{"x": 1}' },
      { id: "b", name: "f", arguments: '{"x": ' },
    ],
  });
  user(conversation, leafOf(conversation), "Well?");
  assert.deepEqual(messages(conversation)[1].tool_calls.map(({ id }) => id), ["a"]);
  answer(conversation, question, "", { info: { ...done, state: "failed" }, reasoning: "only thoughts" });
  user(conversation, leafOf(conversation), "Again");
  assert.deepEqual(messages(conversation), [
    { role: "user", content: "Go" },
    { role: "user", content: "Again" },
  ]);
});

test("answers: chunks become text, reasoning, calls, times and usage", () => {
  const conversation = fresh();
  const turn = addTurn(conversation, user(conversation, leafOf(conversation), "Q").id, { role: "assistant", content: "" });
  let now = 100;
  const building = new Answer(turn, "m", () => now);
  const chunk = (delta, more = {}) => building.add({ choices: [{ delta, finish_reason: null, ...more }] });
  chunk({ role: "assistant", content: null, reasoning_content: "" });
  assert.equal(building.info.firstTokenMs, undefined);
  now = 150;
  chunk({ content: null, reasoning_content: "Let me " });
  now = 250;
  assert.equal(building.thinkingFor(), 100);
  chunk({ reasoning_content: "see" });
  now = 350;
  chunk({ content: "It is" });
  now = 999;
  assert.equal(building.thinkingFor(), null);
  chunk({ tool_calls: [{ index: 0, id: "c", function: { name: "f", arguments: "" } }] });
  chunk({ tool_calls: [{ index: 0, function: { arguments: '{"a"' } }] });
  chunk({ tool_calls: [{ index: 0, function: { arguments: ":1}" } }] });
  now = 1150;
  building.add({ choices: [{ delta: { content: "" }, finish_reason: "tool_calls" }], usage: { prompt_tokens: 9, completion_tokens: 11 } });
  building.add({ choices: [] });
  building.end("done");
  assert.equal(turn.reasoning, "Let me see");
  assert.equal(turn.content, "It is");
  assert.deepEqual(turn.calls, [{ id: "c", name: "f", arguments: '{"a":1}' }]);
  assert.equal(turn.info, building.info);
  assert.deepEqual(building.info, {
    model: "m",
    state: "done",
    finish: "tool_calls",
    firstTokenMs: 50,
    reasoningMs: 200,
    totalMs: 1050,
    usage: { prompt_tokens: 9, completion_tokens: 11 },
  });
  assert.equal(decodeRate(building.info), 10);
  assert.equal(decodeRate({ model: "m", state: "done" }), null);
});

test("store: what is saved comes back; what runs was stopped; what is damaged is not shown", () => {
  const storage = new FakeStorage();
  const problems = [];
  const store = new Store(storage, (problem) => problems.push(problem));
  const older = fresh();
  user(older, leafOf(older), "Old");
  store.save(older);
  const newer = { ...fresh({ system: "S", top_p: 0.5 }), updated: 2000 };
  answer(newer, user(newer, leafOf(newer), "New"), "part", { info: { model: "m", state: "running" } });
  store.save(newer);
  storage.setItem("deepinfer.conversation.bad", "{");
  storage.setItem("other", "x");

  const again = new Store(storage, () => {});
  assert.deepEqual(again.list().map(({ title }) => title), ["New", "Old"]);
  assert.deepEqual(again.get(older.id), older);
  assert.equal(leafOf(again.get(newer.id)).info.state, "stopped");
  assert.equal(again.get(newer.id).settings.top_p, 0.5);
  again.remove(older.id);
  assert.ok(store.refresh(`deepinfer.conversation.${older.id}`, () => false)); // as the other tab hears of it
  assert.deepEqual(store.list().map(({ title }) => title), ["New"]);
  assert.equal(store.refresh("other", () => false), false);

  assert.equal(problems.every((problem) => problem === ""), true);
  storage.full = true;
  store.save(fresh());
  assert.match(problems.at(-1), /full/);
  assert.equal(store.list().length, 2); // kept until the page closes
});

test("store: works without storage, and forgets keys unless asked", () => {
  const store = new Store(null, () => assert.fail());
  store.save(fresh());
  assert.equal(store.list().length, 1);
  assert.equal(store.apiKey(), "");
  const storage = new FakeStorage();
  const kept = new Store(storage, () => {});
  kept.saveApiKey("k");
  assert.equal(new Store(storage, () => {}).apiKey(), "k");
  kept.saveApiKey("");
  assert.equal(storage.length, 0);
});

test("stored conversations that are no trees are refused", () => {
  const good = () => {
    const conversation = fresh();
    answer(conversation, user(conversation, leafOf(conversation), "Q"), "A");
    return conversation;
  };
  assert.notEqual(conversationFrom(good()), null);
  const damages = [
    (c) => (c.turns.root.children = ["nowhere"]),
    (c) => (leafOf(c).children = ["root"]), // a cycle
    (c) => (c.turns.root.selected = "nowhere"),
    (c) => (c.turns.root.selected = ""),
    (c) => (leafOf(c).content = 5),
    (c) => (leafOf(c).id = "other"),
    (c) => (c.turns.lost = { ...leafOf(c), id: "lost", children: [], selected: "" }),
    (c) => (c.turns = null),
    (c) => delete c.turns.root,
    (c) => (c.id = 1),
  ];
  for (const damage of damages) {
    const conversation = good();
    damage(conversation);
    assert.equal(conversationFrom(conversation), null, String(damage));
  }
  for (const value of [null, 1, "x", [], {}]) assert.equal(conversationFrom(value), null);
});

test("settings: ranges, tools, and stored ones that are wrong", () => {
  const field = (name) => NUMBER_FIELDS.find((candidate) => candidate.name === name);
  assert.equal(checkNumber(field("temperature"), 2), "");
  assert.match(checkNumber(field("temperature"), 2.1), /Temperature: expected a number, 0 to 2/);
  assert.match(checkNumber(field("top_p"), 0), /Top p/);
  assert.match(checkNumber(field("top_k"), 1.5), /whole/);
  assert.match(checkNumber(field("seed"), NaN), /Seed/);
  assert.deepEqual(settingsFrom({ temperature: 9, top_p: "1", thinking: "huge", system: 3, seed: 4 }), { ...defaultSettings(), seed: 4 });
  assert.deepEqual(settingsFrom(null), defaultSettings());
  assert.deepEqual(parseTools("  "), { tools: [] });
  assert.match(parseTools("[{").error, /^Tools: /);
  assert.match(parseTools("[1]").error, /expected a list/);
  assert.match(parseTools("[null]").error, /expected a list/);
});
