// A message of the user. Editing it asks anew beside it; the old version stays.

import { BranchView } from "./branch_view";
import type { Turn } from "./conversation";
import { copyButton, h, iconButton } from "./dom";
import type { TurnActions, TurnState, TurnView } from "./turn_view";

export class UserView implements TurnView {
  readonly element: HTMLElement;
  private readonly body: HTMLElement;
  private readonly footer: HTMLElement;
  private readonly editButton: HTMLButtonElement;
  private readonly branches: BranchView;

  constructor(
    private readonly turn: Turn,
    private readonly actions: TurnActions,
  ) {
    this.body = h("div", { class: "bubble" }, turn.content);
    this.branches = new BranchView((step) => actions.switchBranch(turn, step));
    this.editButton = iconButton("edit", "Edit message", () => this.edit());
    this.footer = h(
      "div",
      { class: "turn-footer" },
      this.branches.element,
      copyButton("Copy message", () => turn.content),
      this.editButton,
    );
    this.element = h("article", { class: "turn user", "aria-label": "Your message" }, this.body, this.footer);
  }

  update(state: TurnState): void {
    this.branches.set(state.place.index, state.place.count, state.locked);
    this.editButton.disabled = state.locked;
  }

  private edit(): void {
    const field = h("textarea", { class: "edit", "aria-label": "Edited message", rows: "3" });
    field.value = this.turn.content;
    const close = (): void => {
      form.replaceWith(this.body);
      this.footer.hidden = false;
      this.editButton.focus();
    };
    const send = (): void => {
      const text = field.value.trim();
      if (text === "") return field.focus();
      close();
      this.actions.edit(this.turn, text);
    };
    const form = h(
      "div",
      { class: "edit-form" },
      field,
      h(
        "div",
        { class: "row end" },
        h("button", { type: "button", onclick: close }, "Cancel"),
        h("button", { type: "button", class: "primary", onclick: send }, "Send"),
      ),
    );
    field.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Enter" && !event.shiftKey) {
        event.preventDefault();
        send();
      } else if (event.key === "Escape") {
        event.stopPropagation();
        close();
      }
    });
    this.body.replaceWith(form);
    this.footer.hidden = true;
    field.focus();
    field.setSelectionRange(field.value.length, field.value.length);
  }
}
