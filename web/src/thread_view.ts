// The shown path of a conversation. Views are kept while their turns are shown, so that focus, folding and selection stay.

import type { Answer } from "./answer";
import { AnswerView } from "./answer_view";
import { pathOf, placeOf, type Conversation, type Turn } from "./conversation";
import { h, iconButton } from "./dom";
import type { TurnActions, TurnView } from "./turn_view";
import { UserView } from "./user_view";

const NEAR_END = 16; // pixels

export class ThreadView {
  readonly element: HTMLElement;
  private readonly list = h("div", { class: "turns" });
  private readonly scroller: HTMLElement;
  private readonly toEnd: HTMLButtonElement;
  private views = new Map<string, TurnView>();
  private follows = true;

  constructor(
    private readonly actions: TurnActions,
    private readonly empty: HTMLElement,
    preamble: HTMLElement,
  ) {
    this.scroller = h(
      "div",
      { class: "scroller", tabindex: "-1", onscroll: () => this.noteScroll() },
      preamble,
      this.empty,
      this.list,
    );
    this.toEnd = iconButton("down", "Go to the end", () => this.followEnd(), "to-end");
    this.element = h("section", { class: "thread", "aria-label": "Conversation" }, this.scroller, this.toEnd);
    this.toEnd.hidden = true;
    // A phone's keyboard takes part of the window.
    new ResizeObserver(() => this.scrollIfFollowing()).observe(this.scroller);
  }

  /** Shows everything; `answer` is what is being written in this conversation. */
  render(conversation: Conversation, answer: Answer | null): void {
    const path = pathOf(conversation);
    const views = new Map<string, TurnView>();
    for (const turn of path) {
      if (turn.role !== "tools") views.set(turn.id, this.views.get(turn.id) ?? this.viewOf(turn));
    }
    this.empty.hidden = path.length > 0;
    const shown = [...this.list.children];
    const wanted = [...views.values()].map((view) => view.element);
    if (shown.length !== wanted.length || shown.some((element, i) => element !== wanted[i])) {
      this.list.replaceChildren(...wanted);
    }
    this.views = views;
    path.forEach((turn, i) => this.update(conversation, turn, path[i + 1] ?? null, answer));
    this.scrollIfFollowing();
  }

  /** Shows what came to the turn that `answer` writes. */
  renderAnswer(conversation: Conversation, answer: Answer): void {
    this.update(conversation, answer.turn, null, answer);
    this.scrollIfFollowing();
  }

  /** Another conversation: nothing of the old one is kept. */
  reset(): void {
    this.views.clear();
    this.list.replaceChildren();
    this.follows = true;
  }

  followEnd(): void {
    this.follows = true;
    this.toEnd.hidden = true;
    this.scrollIfFollowing();
  }

  private viewOf(turn: Turn): TurnView {
    return turn.role === "user" ? new UserView(turn, this.actions) : new AnswerView(turn, this.actions);
  }

  private update(conversation: Conversation, turn: Turn, next: Turn | null, answer: Answer | null): void {
    const one = { index: 0, count: 1 };
    this.views.get(turn.id)?.update({
      place: placeOf(conversation, turn),
      locked: answer !== null,
      answer: answer?.turn === turn ? answer : null,
      results: next,
      resultsPlace: next?.role === "tools" ? placeOf(conversation, next) : one,
    });
  }

  private noteScroll(): void {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    this.follows = scrollHeight - scrollTop - clientHeight < NEAR_END;
    this.toEnd.hidden = this.follows;
  }

  private scrollIfFollowing(): void {
    if (this.follows && this.empty.hidden) this.scroller.scrollTop = this.scroller.scrollHeight;
  }
}
