// The calls of an answer: name, arguments, and the result, which the user types because the page runs no tools.

import { BranchView } from "./branch_view";
import { usableCalls } from "./chat_request";
import type { ToolCall, Turn } from "./conversation";
import { append, copyButton, h, icon } from "./dom";
import { codeElement } from "./markdown_view";

export interface ToolCallsActions {
  sendResults(answer: Turn, results: Record<string, string>): void;
  switchBranch(turn: Turn, step: number): void;
}

export class ToolCallsView {
  readonly element = h("div", { class: "calls" });
  private shown = "";
  private shownTurn: Turn | null = null;
  private readonly branches = new BranchView((step) => {
    if (this.shownTurn !== null) this.actions.switchBranch(this.shownTurn, step);
  });

  constructor(
    private readonly answer: Turn,
    private readonly actions: ToolCallsActions,
  ) {}

  /** `results` is the turn behind the answer, if there is one; `place` is its among its siblings. */
  update(results: Turn | null, place: { index: number; count: number }, locked: boolean, running: boolean): void {
    const calls = this.answer.calls ?? [];
    this.shownTurn = results;
    const open = results === null && !running && !locked;
    const state = JSON.stringify([calls, results?.id ?? null, open]);
    if (state !== this.shown) {
      this.shown = state;
      this.build(calls, results, open);
    }
    this.branches.set(place.index, place.count, locked);
  }

  private build(calls: ToolCall[], results: Turn | null, open: boolean): void {
    this.element.hidden = calls.length === 0;
    const usable = usableCalls(this.answer);
    const fields = new Map<string, HTMLTextAreaElement>();
    const cards = calls.map((call) => {
      const field = open && usable.includes(call) ? resultField(call) : null;
      if (field !== null) fields.set(call.id, field);
      return callCard(call, field, results?.role === "tools" ? (results.results?.[call.id] ?? null) : null);
    });
    this.element.replaceChildren(...cards);
    if (fields.size > 0) append(this.element, [this.sendRow(fields)]);
    if (results?.role === "tools") append(this.element, [this.branches.element]);
  }

  private sendRow(fields: Map<string, HTMLTextAreaElement>): HTMLElement {
    const send = (): void => {
      this.actions.sendResults(this.answer, Object.fromEntries([...fields].map(([id, field]) => [id, field.value])));
    };
    for (const field of fields.values()) {
      field.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
        event.preventDefault();
        const next = [...fields.values()].find((other) => other.value === "");
        if (next === undefined || next === field) {
          send();
        } else {
          next.focus();
        }
      });
    }
    const label = fields.size > 1 ? "Send results" : "Send result";
    return h("div", { class: "row" }, h("button", { type: "button", class: "primary", onclick: send }, label));
  }
}

function resultField(call: ToolCall): HTMLTextAreaElement {
  return h("textarea", { class: "result", rows: "2", "aria-label": `Result of ${call.name}`, placeholder: "Result of the call" });
}

function callCard(call: ToolCall, field: HTMLElement | null, result: string | null): HTMLElement {
  return h(
    "section",
    { class: "call", "aria-label": `Call of ${call.name}` },
    h(
      "div",
      { class: "call-head" },
      icon("tool"),
      h("strong", {}, call.name),
      h("span", { class: "faint" }, call.id),
      copyButton("Copy arguments", () => call.arguments),
    ),
    codeElement(prettyArguments(call.arguments), "json"),
    field,
    result === null ? null : h("details", {}, h("summary", {}, "Result"), h("pre", { class: "result-text" }, result)),
  );
}

/** Arguments with line breaks; as they are while they are not complete. */
export function prettyArguments(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
