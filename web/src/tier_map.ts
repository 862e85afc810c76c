// The tiers of the KV cache as bars: how full each one is, how many prompt tokens came from it, whether it works. Hidden
// while there is nothing behind the device.

import type { Load } from "./api";
import { h } from "./dom";
import { bytes, compact, count } from "./format";

export interface TierRow {
  name: string;
  up: boolean;
  share: number | null; // filled, 0 to 1; null without a budget
  size: string;
  tokens: number; // of prompts, taken from it
  explanation: string;
}

/** Nearest first, the device in front; empty without tiers. */
export function tierRows(load: Load): TierRow[] {
  if (load.kv_tiers.length === 0) return [];
  const filled = load.kv_blocks - load.kv_blocks_free;
  const share = filled / Math.max(1, load.kv_blocks);
  const behind = load.kv_tiers.reduce((sum, tier) => sum + tier.cached_tokens, 0);
  const device: TierRow = {
    name: "device",
    up: true,
    share,
    size: whole(share),
    tokens: Math.max(0, load.cached_tokens - behind),
    explanation: `${count(filled)} of ${count(load.kv_blocks)} blocks`,
  };
  const others = load.kv_tiers.map((tier): TierRow => {
    const share = tier.budget_bytes > 0 ? Math.min(1, tier.bytes / tier.budget_bytes) : null;
    const parts = [
      bytes(tier.bytes) + (tier.budget_bytes > 0 ? ` of ${bytes(tier.budget_bytes)}` : ""),
      `${count(tier.records)} records`,
      tier.queued_bytes > 0 ? `${bytes(tier.queued_bytes)} wait to be written` : "",
      tier.up ? "" : "it failed and is left alone until it works again; the server's operator sees why",
    ];
    return {
      name: tier.name,
      up: tier.up,
      share,
      size: tier.up ? (share === null ? bytes(tier.bytes) : whole(share)) : "down",
      tokens: tier.cached_tokens,
      explanation: parts.filter((part) => part !== "").join(", "),
    };
  });
  return [device, ...others];
}

export class TierMap {
  readonly element = h("ul", { class: "tiers", "aria-label": "KV tiers", hidden: true });

  show(load: Load): void {
    const rows = tierRows(load);
    this.element.hidden = rows.length === 0;
    this.element.replaceChildren(...rows.map(rowElement));
  }
}

function rowElement(row: TierRow): HTMLElement {
  const filled = h("span", {});
  filled.style.width = `${100 * (row.share ?? 0)}%`;
  return h(
    "li",
    { class: row.up ? null : "down", title: `${row.explanation}; ${count(row.tokens)} prompt tokens came from it` },
    h("span", {}, row.name),
    h("span", { class: "tier-bar", "aria-hidden": "true" }, filled),
    " ",
    h("span", {}, row.size),
    " ",
    h("span", {}, `${compact(row.tokens)} hit`),
  );
}

function whole(share: number): string {
  return `${Math.round(100 * share)} %`;
}
