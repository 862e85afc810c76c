import assert from "node:assert/strict";
import { test } from "node:test";
import { SseParser } from "../../web/src/sse";

const STREAM =
  "\ufeffdata: one\n\n: keep-alive\n\ndata: two\r\ndata:  three\r\n\r\nevent: error\rdata: four\r\rid: 7\nretry: 10\n\n" +
  "data\n\ndata: {\"a\": \"ü😀:\"}\n\nevent: lost\n\ndata: after\n\n";
const EVENTS = [
  ["message", "one"],
  ["message", "two\n three"],
  ["error", "four"],
  ["message", ""],
  ["message", '{"a": "ü😀:"}'],
  ["message", "after"],
];
const pairs = (events) => events.map(({ event, data }) => [event, data]);

test("events out of one piece", () => {
  assert.deepEqual(pairs(new SseParser().push(STREAM)), EVENTS);
});

test("the same events however the stream is cut", () => {
  for (let first = 0; first <= STREAM.length; ++first) {
    for (const second of [first, first + 1, first + 7]) {
      const parser = new SseParser();
      const events = [STREAM.slice(0, first), STREAM.slice(first, second), STREAM.slice(second)].flatMap((piece) => parser.push(piece));
      assert.deepEqual(pairs(events), EVENTS, `cut at ${first} and ${second}`);
    }
  }
  const parser = new SseParser();
  assert.deepEqual(pairs([...STREAM].flatMap((character) => parser.push(character))), EVENTS);
});

test("what is unfinished is no event", () => {
  const parser = new SseParser();
  assert.deepEqual(parser.push("data: a\n"), []);
  assert.deepEqual(pairs(parser.push("\n")), [["message", "a"]]);
  assert.deepEqual(parser.push("data: b"), []);
});
