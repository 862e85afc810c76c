// What a new conversation shows.

import { h } from "./dom";

const EXAMPLES: [title: string, prompt: string][] = [
  ["Explain", "Explain speculative decoding to somebody who knows how a language model samples a token."],
  ["Write code", "Write a C++20 function that splits a string_view at commas, with three test cases."],
  ["Compare", "Compare LRU, LFU and FIFO caches in a table: cost of a hit, cost of a miss, when each one wins."],
];

export class EmptyView {
  readonly element: HTMLElement;
  private readonly model = h("h1", {}, "…");
  private readonly facts = h("p", { class: "faint facts" });

  constructor(onExample: (prompt: string) => void) {
    this.element = h(
      "div",
      { class: "empty" },
      h("span", { class: "logo large", "aria-hidden": "true" }),
      this.model,
      this.facts,
      h(
        "p",
        {},
        "One program on your own machine computes every token. An answer depends on its prompt, settings and seed alone: " +
          "neither other requests nor drafted tokens change it, and a prefix that was computed once is used again.",
      ),
      h(
        "div",
        { class: "examples" },
        ...EXAMPLES.map(([title, prompt]) =>
          h("button", { type: "button", onclick: () => onExample(prompt) }, h("strong", {}, title), h("span", {}, prompt)),
        ),
      ),
    );
  }

  set(model: string, facts: string): void {
    this.model.textContent = model;
    this.facts.textContent = facts;
  }
}
