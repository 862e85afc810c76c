// The engine as GET /load shows it, asked every two seconds while the panel can be seen.

import { ApiError, type Load } from "./api";
import { h, svg } from "./dom";
import { count, percent, rate } from "./format";
import { TierMap } from "./tier_map";

const PERIOD_MS = 2000;
const SAMPLES = 60; // of the curve: two minutes

/** Tokens a second between two looks, null when the counters began anew. */
export function rateBetween(before: number, after: number, ms: number): number | null {
  return after < before || ms <= 0 ? null : ((after - before) * 1000) / ms;
}

export class EnginePanel {
  readonly element: HTMLElement;
  private readonly state = h("span", { class: "state" }, "…");
  private readonly running = value();
  private readonly waiting = value();
  private readonly decode = value();
  private readonly prefill = value();
  private readonly hits = value();
  private readonly accepted = value();
  private readonly perStep = value();
  private readonly kv = value();
  private readonly kvUsed = h("span", { class: "kv-used" });
  private readonly kvCached = h("span", { class: "kv-cached" });
  private readonly tiers = new TierMap();
  private readonly curve = svg("path", { class: "curve" });
  private readonly rates: number[] = [];
  private last: { load: Load; at: number } | null = null;
  private timer = 0;
  private asking = false;

  constructor(private readonly ask: () => Promise<Load>) {
    const row = (name: string, explanation: string, shown: HTMLElement): HTMLElement =>
      h("div", { title: explanation }, h("dt", {}, name), h("dd", {}, shown));
    this.element = h(
      "section",
      { class: "engine", "aria-label": "Engine" },
      h("h2", {}, "Engine", this.state),
      svg("svg", { viewBox: `0 0 ${SAMPLES} 24`, preserveAspectRatio: "none", class: "chart", "aria-hidden": "true" }, this.curve),
      h(
        "dl",
        {},
        row("running", "requests being computed", this.running),
        row("waiting", "requests that wait for a place", this.waiting),
        row("decode", "tokens generated a second, all requests, over the last two seconds", this.decode),
        row("prefill", "prompt tokens a second, without those from the cache", this.prefill),
        row("cache hits", "share of all prompt tokens so far that came from the prefix cache", this.hits),
        row("accepted", "share of the drafted tokens that were right", this.accepted),
        row("tok/step", "tokens that a request gets of one decode step: one, and the accepted drafts", this.perStep),
        row("KV pool", "blocks held by requests, and kept for prefix hits", this.kv),
      ),
      h("div", { class: "kv-bar", "aria-hidden": "true" }, this.kvUsed, this.kvCached),
      this.tiers.element,
    );
  }

  /** Begins to ask; stops by itself while nobody can see it. */
  start(): void {
    document.addEventListener("visibilitychange", () => this.poke());
    this.timer = window.setInterval(() => this.poke(), PERIOD_MS);
    this.poke();
  }

  stop(): void {
    window.clearInterval(this.timer);
  }

  /** Asks now, when the panel is visible and no question is under way. */
  poke(): void {
    if (document.visibilityState !== "visible" || this.asking || !isShown(this.element)) return;
    this.asking = true;
    this.ask()
      .then((load) => this.show(load, performance.now()))
      .catch((problem: unknown) => this.showProblem(problem))
      .finally(() => (this.asking = false));
  }

  private show(load: Load, at: number): void {
    const used = load.kv_blocks - load.kv_blocks_free - load.kv_blocks_cached;
    this.running.textContent = count(load.running);
    this.waiting.textContent = count(load.waiting);
    this.hits.textContent = percent(load.cached_tokens, load.prompt_tokens);
    this.accepted.textContent = percent(load.drafts_accepted, load.drafts_verified);
    this.perStep.textContent = load.decode_steps > 0 ? (1 + load.drafts_accepted / load.decode_steps).toFixed(2) : "–";
    this.kv.textContent = `${percent(used, load.kv_blocks)} used, ${percent(load.kv_blocks_cached, load.kv_blocks)} cached`;
    this.kvUsed.style.width = `${(100 * used) / Math.max(1, load.kv_blocks)}%`;
    this.kvCached.style.width = `${(100 * load.kv_blocks_cached) / Math.max(1, load.kv_blocks)}%`;
    this.tiers.show(load);
    if (this.last !== null) this.showRates(this.last.load, load, at - this.last.at);
    this.last = { load, at };
    this.setState(load.draining ? "draining" : load.running > 0 ? "busy" : "idle");
  }

  private showRates(before: Load, now: Load, ms: number): void {
    const decode = rateBetween(before.generated_tokens, now.generated_tokens, ms);
    const computed = (load: Load): number => load.prompt_tokens - load.cached_tokens;
    const prefill = rateBetween(computed(before), computed(now), ms);
    if (decode === null || prefill === null) return;
    this.decode.textContent = `${rate(decode)} tok/s`;
    this.prefill.textContent = `${rate(prefill)} tok/s`;
    this.rates.push(decode);
    if (this.rates.length > SAMPLES) this.rates.shift();
    this.curve.setAttribute("d", curveOf(this.rates));
  }

  private showProblem(problem: unknown): void {
    this.last = null;
    this.setState(problem instanceof ApiError && problem.status === 401 ? "needs a key" : "not reachable");
  }

  private setState(state: string): void {
    this.state.textContent = state;
    this.element.dataset.state = state;
  }
}

function value(): HTMLElement {
  return h("span", {}, "–");
}

function isShown(element: HTMLElement): boolean {
  return element.closest("[inert]") === null && element.getClientRects().length > 0;
}

/** The newest sample stands at the right edge; the highest one reaches the top. */
function curveOf(rates: number[]): string {
  const highest = Math.max(1, ...rates);
  const points = rates.map((value, i) => `${SAMPLES - rates.length + i},${(23 - (22 * value) / highest).toFixed(1)}`);
  return points.length < 2 ? "" : `M${points.join("L")}`;
}
