import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, compact } from "../../web/src/format";
import { tierRows } from "../../web/src/tier_map";

const LOAD = { kv_blocks: 1000, kv_blocks_free: 750, kv_blocks_cached: 200, cached_tokens: 10_000, kv_tiers: [] };
const TIER = { name: "disk", up: true, records: 1200, bytes: 5 << 20, budget_bytes: 20 << 20, cached_tokens: 4000, queued_bytes: 0 };

test("without tiers there are no rows", () => {
  assert.deepEqual(tierRows(LOAD), []);
});

test("the device stands in front, with the hit tokens that no tier has given", () => {
  const rows = tierRows({ ...LOAD, kv_tiers: [{ ...TIER, name: "host", cached_tokens: 1000 }, TIER] });
  assert.deepEqual(
    rows.map(({ name, share, size, tokens }) => [name, share, size, tokens]),
    [
      ["device", 0.25, "25 %", 5000],
      ["host", 0.25, "25 %", 1000],
      ["disk", 0.25, "25 %", 4000],
    ],
  );
  assert.equal(rows[0].explanation, "250 of 1,000 blocks");
  assert.equal(rows[2].explanation, "5.0 MiB of 20.0 MiB, 1,200 records");
  // Counters that were read one after the other.
  assert.equal(tierRows({ ...LOAD, cached_tokens: 100, kv_tiers: [TIER] })[0].tokens, 0);
});

test("a tier that is down says so, one without a budget its size", () => {
  const [, down, open] = tierRows({
    ...LOAD,
    kv_tiers: [
      { ...TIER, up: false, queued_bytes: 2048 },
      { ...TIER, name: "redis", budget_bytes: 0 },
    ],
  });
  assert.equal(down.up, false);
  assert.equal(down.size, "down");
  assert.match(down.explanation, /2\.0 KiB wait to be written, it failed/);
  assert.equal(open.share, null);
  assert.equal(open.size, "5.0 MiB");
});

test("over its budget a tier is full", () => {
  assert.equal(tierRows({ ...LOAD, kv_tiers: [{ ...TIER, bytes: 21 << 20 }] })[1].share, 1);
});

test("numbers for narrow places", () => {
  assert.deepEqual([0, 999, 12_800, 1_280_000].map(compact), ["0", "999", "12.8K", "1.28M"]);
  assert.deepEqual([0, 1023, 1024, 150 * 1024, 3 * 1024 ** 5].map(bytes), ["0 B", "1023 B", "1.0 KiB", "150 KiB", "3072 TiB"]);
});
