// The list of conversations.

import type { Conversation } from "./conversation";
import { h, icon, iconButton } from "./dom";

export interface SidebarActions {
  create(): void;
  open(id: string): void;
  rename(id: string, title: string): void;
  remove(id: string): void;
  download(id: string): void;
  close(): void;
}

export class Sidebar {
  readonly element: HTMLElement;
  private readonly list = h("ul", { class: "conversations" });
  private readonly rows = new Map<string, { key: string; row: HTMLElement }>();

  constructor(
    private readonly actions: SidebarActions,
    panel: HTMLElement,
  ) {
    this.element = h(
      "aside",
      { class: "sidebar", id: "sidebar", "aria-label": "Conversations and engine" },
      h(
        "div",
        { class: "brand" },
        h("span", { class: "logo", "aria-hidden": "true" }),
        h("strong", {}, "DeepInfer"),
        iconButton("close", "Close list", () => actions.close(), "drawer-only"),
      ),
      h("button", { type: "button", class: "new", onclick: () => actions.create() }, icon("plus"), "New conversation"),
      h("nav", { "aria-label": "Conversations" }, this.list),
      panel,
    );
  }

  render(conversations: Conversation[], current: string, running: (id: string) => boolean): void {
    const rows = conversations.map((conversation) => {
      const key = JSON.stringify([conversation.title, conversation.id === current, running(conversation.id)]);
      const known = this.rows.get(conversation.id);
      if (known?.key === key) return known.row;
      const row = this.row(conversation, conversation.id === current, running(conversation.id));
      this.rows.set(conversation.id, { key, row });
      return row;
    });
    const shown = [...this.list.children];
    if (shown.length !== rows.length || shown.some((row, i) => row !== rows[i])) this.list.replaceChildren(...rows);
  }

  private row(conversation: Conversation, current: boolean, running: boolean): HTMLElement {
    const { id } = conversation;
    const title = conversation.title || "Untitled";
    const open = h(
      "button",
      { type: "button", class: "title", title, "aria-current": current ? "page" : null, onclick: () => this.actions.open(id) },
      running ? h("span", { class: "dot", role: "img", "aria-label": "answering" }) : null,
      title,
    );
    const tools = h(
      "span",
      { class: "row-tools" },
      iconButton("edit", `Rename ${title}`, () => this.rename(row, conversation)),
      iconButton("download", `Export ${title} as JSON`, () => this.actions.download(id)),
      iconButton("trash", `Delete ${title}`, () => this.confirm(row, conversation)),
    );
    const row = h("li", { class: current ? "current" : null }, open, tools);
    return row;
  }

  private restore(row: HTMLElement, conversation: Conversation): void {
    const fresh = this.row(conversation, row.classList.contains("current"), false);
    this.rows.set(conversation.id, { key: "", row: fresh });
    row.replaceWith(fresh);
    fresh.querySelector("button")?.focus();
  }

  private rename(row: HTMLElement, conversation: Conversation): void {
    const field = h("input", { type: "text", "aria-label": "Title", maxlength: "120" });
    field.value = conversation.title;
    let open = true;
    const close = (keep: boolean): void => {
      if (!open) return;
      open = false;
      const title = field.value.trim();
      if (keep && title !== "") this.actions.rename(conversation.id, title);
      this.restore(row, conversation);
    };
    field.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Enter") close(true);
      if (event.key === "Escape") {
        event.stopPropagation();
        close(false);
      }
    });
    field.addEventListener("blur", () => close(true));
    row.replaceChildren(field);
    field.select();
  }

  private confirm(row: HTMLElement, conversation: Conversation): void {
    const keep = h("button", { type: "button", onclick: () => this.restore(row, conversation) }, "Keep");
    const remove = h("button", { type: "button", class: "danger", onclick: () => this.actions.remove(conversation.id) }, "Delete");
    const question = h("span", { class: "question" }, "Delete it?");
    row.replaceChildren(question, remove, keep);
    row.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      this.restore(row, conversation);
    });
    keep.focus();
  }
}
