// An answer: thinking folded, text, calls, errors, and a line with its figures.

import { decodeRate } from "./answer";
import { BranchView } from "./branch_view";
import type { AnswerInfo, Turn } from "./conversation";
import { copyButton, h, icon, iconButton } from "./dom";
import { count, duration, percent, rate } from "./format";
import { MarkdownView } from "./markdown_view";
import { ToolCallsView } from "./tool_calls_view";
import type { TurnActions, TurnState, TurnView } from "./turn_view";

export class AnswerView implements TurnView {
  readonly element: HTMLElement;
  private readonly thinkingTitle = h("span", { class: "thinking-title" });
  private readonly thinkingGist = h("span", { class: "thinking-gist faint" });
  private readonly thinkingText = h("div", { class: "thinking-text" });
  private readonly thinking: HTMLDetailsElement;
  private readonly markdown = new MarkdownView();
  private readonly calls: ToolCallsView;
  private readonly note = h("p", { class: "note" });
  private readonly errorText = h("span");
  private readonly error: HTMLElement;
  private readonly branches: BranchView;
  private readonly actions: HTMLElement;
  private readonly copyButton: HTMLButtonElement;
  private readonly againButton: HTMLButtonElement;
  private readonly retryButton: HTMLButtonElement;
  private readonly stats = h("span", { class: "stats" });

  constructor(
    private readonly turn: Turn,
    actions: TurnActions,
  ) {
    const again = (): void => actions.regenerate(turn);
    this.thinking = h(
      "details",
      { class: "thinking", ontoggle: () => this.updateThinkingText() },
      h("summary", {}, icon("right"), this.thinkingTitle, this.thinkingGist),
      this.thinkingText,
    );
    this.calls = new ToolCallsView(turn, actions);
    this.retryButton = h("button", { type: "button", onclick: again }, "Try again");
    this.error = h("div", { class: "error", role: "alert" }, this.errorText, this.retryButton);
    this.branches = new BranchView((step) => actions.switchBranch(turn, step));
    this.againButton = iconButton("again", "Answer again", again);
    this.copyButton = copyButton("Copy answer", () => turn.content);
    this.actions = h("span", { class: "actions" }, this.copyButton, this.againButton);
    this.element = h(
      "article",
      { class: "turn answer", "aria-label": "Answer" },
      this.thinking,
      this.markdown.element,
      this.calls.element,
      this.note,
      this.error,
      h("div", { class: "turn-footer" }, this.branches.element, this.actions, this.stats),
    );
  }

  update(state: TurnState): void {
    const info = this.turn.info;
    const running = state.answer !== null;
    this.element.classList.toggle("running", running);
    this.element.setAttribute("aria-busy", String(running));
    this.updateThinking(state);
    this.markdown.set(this.turn.content);
    this.calls.update(state.results, state.resultsPlace, state.locked, running);
    this.note.textContent = running ? "" : noteOf(info, this.turn);
    this.note.hidden = this.note.textContent === "";
    this.error.hidden = info?.state !== "failed";
    this.errorText.textContent = info?.error ?? "";
    this.branches.set(state.place.index, state.place.count, state.locked);
    this.actions.hidden = running;
    this.copyButton.hidden = this.turn.content === "";
    this.againButton.hidden = !this.error.hidden; // "Try again" says it
    this.againButton.disabled = state.locked;
    this.retryButton.disabled = state.locked;
    this.showStats(running ? [liveStat(state)] : statsOf(info));
  }

  private updateThinking(state: TurnState): void {
    const { reasoning, info } = this.turn;
    this.thinking.hidden = reasoning === undefined || reasoning === "";
    if (this.thinking.hidden) return;
    const thinkingMs = state.answer?.thinkingFor() ?? null;
    const title = thinkingMs === null ? `Thought for ${duration(info?.reasoningMs ?? 0)}` : `Thinking ${duration(thinkingMs)}`;
    this.thinking.classList.toggle("live", thinkingMs !== null);
    this.thinkingTitle.textContent = title;
    this.thinkingGist.textContent = thinkingMs === null ? "" : gistOf(reasoning ?? "");
    this.updateThinkingText();
  }

  private updateThinkingText(): void {
    if (!this.thinking.open) return;
    const text = (this.turn.reasoning ?? "").trim();
    const shown = this.thinkingText.textContent ?? "";
    if (text.startsWith(shown)) {
      this.thinkingText.append(text.slice(shown.length));
    } else {
      this.thinkingText.textContent = text;
    }
  }

  private showStats(stats: [text: string, explanation: string][]): void {
    const shown = [...this.stats.children].map((element) => element.textContent).join("\n");
    if (shown === stats.map(([text]) => text).join("\n")) return;
    this.stats.replaceChildren(...stats.map(([text, explanation]) => h("span", { title: explanation }, text)));
  }
}

const GIST_LENGTH = 160;

/** The end of the reasoning on one line, to see it move while it is folded. */
function gistOf(reasoning: string): string {
  return reasoning.slice(-GIST_LENGTH).replace(/\s+/g, " ").trim();
}

function noteOf(info: AnswerInfo | undefined, turn: Turn): string {
  if (info === undefined) return "";
  if (info.state === "stopped") return "Stopped.";
  if (info.state !== "done") return "";
  if (info.finish === "length") return "The answer reached its longest length (max tokens or context).";
  if (info.finish === "content_filter") return "The answer was ended by a filter.";
  return turn.content === "" && (turn.calls ?? []).length === 0 ? "The answer is empty." : "";
}

function liveStat(state: TurnState): [string, string] {
  const info = state.answer?.info;
  const elapsed = duration(state.answer?.elapsed() ?? 0);
  return info?.firstTokenMs === undefined
    ? [`waiting for the first token, ${elapsed}`, "time since the request was sent"]
    : [`answering, ${elapsed}`, "time since the request was sent"];
}

/** The figures of a complete answer, each with its explanation. */
export function statsOf(info: AnswerInfo | undefined): [string, string][] {
  const stats: [string, string][] = [];
  if (info === undefined) return stats;
  const { usage } = info;
  const speed = decodeRate(info);
  if (speed !== null) stats.push([`${rate(speed)} tok/s`, "tokens a second after the first one, seen from this page"]);
  if (info.firstTokenMs !== undefined) {
    stats.push([`first ${duration(info.firstTokenMs)}`, "time to the first token, seen from this page"]);
  }
  if (usage !== undefined) {
    const reasoning = usage.completion_tokens_details?.reasoning_tokens ?? 0;
    const detail = reasoning > 0 ? `, ${count(reasoning)} of them reasoning` : "";
    stats.push([`${count(usage.completion_tokens)} tok`, `tokens of the answer${detail}`]);
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    stats.push([`prompt ${count(usage.prompt_tokens)}`, "tokens of the prompt: the whole conversation before the answer"]);
    stats.push([`cache hit ${percent(cached, usage.prompt_tokens)}`, `${count(cached)} prompt tokens came from the prefix cache`]);
  }
  return stats;
}
