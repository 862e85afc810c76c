// Asks for the API key of a server that wants one. It stays in this page, or in the browser when the user says so.

import { h, iconButton } from "./dom";

export class KeyView {
  readonly element: HTMLDialogElement;
  private readonly field = h("input", { type: "password", id: "api-key", autocomplete: "off", spellcheck: "false" });
  private readonly keep = h("input", { type: "checkbox", id: "keep-key" });
  private readonly reason = h("p", { class: "problem" });

  constructor(private readonly onSave: (key: string, keep: boolean) => void) {
    const onsubmit = (event: Event): void => {
      event.preventDefault();
      this.element.close();
      this.onSave(this.field.value.trim(), this.keep.checked);
    };
    this.element = h(
      "dialog",
      { class: "small", "aria-label": "API key" },
      h(
        "form",
        { onsubmit },
        h("header", {}, h("h2", {}, "API key"), iconButton("close", "Close", () => this.element.close())),
        h(
          "div",
          { class: "drawer-body" },
          this.reason,
          h("div", { class: "labelled" }, h("label", { for: "api-key" }, "Key"), this.field),
          h("label", { class: "check", for: "keep-key" }, this.keep, "Keep it in this browser"),
        ),
        h("footer", {}, h("button", { type: "submit", class: "primary" }, "Use this key")),
      ),
    );
  }

  open(key: string, kept: boolean, reason: string): void {
    if (this.element.open) return;
    this.field.value = key;
    this.keep.checked = kept;
    this.reason.textContent = reason;
    this.reason.hidden = reason === "";
    this.element.showModal();
    this.field.focus();
  }
}
