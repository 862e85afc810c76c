// Where messages are written.

import { h, icon } from "./dom";
import { THINKING_CHOICES, type Thinking } from "./settings";

export interface ComposerActions {
  send(text: string): void;
  stop(): void;
  setThinking(thinking: Thinking): void;
}

export class Composer {
  readonly element: HTMLFormElement;
  private readonly field: HTMLTextAreaElement;
  private readonly button: HTMLButtonElement;
  private readonly thinking: HTMLSelectElement;
  private readonly context = h("span", { class: "context faint" });
  private running = false;

  constructor(private readonly actions: ComposerActions) {
    this.field = h("textarea", {
      id: "message",
      rows: "1",
      placeholder: "Message",
      "aria-label": "Message",
      enterkeyhint: "send",
      oninput: () => this.fit(),
      onkeydown: (event: KeyboardEvent) => this.onKey(event),
    });
    this.button = h("button", { type: "submit", class: "send" });
    this.thinking = h(
      "select",
      { "aria-label": "Thinking", onchange: () => actions.setThinking(this.thinking.value as Thinking) },
      ...THINKING_CHOICES.map(({ value, label }) => h("option", { value }, label)),
    );
    const onsubmit = (event: Event): void => {
      event.preventDefault();
      this.submit();
    };
    this.element = h(
      "form",
      { class: "composer", "aria-label": "Write a message", onsubmit },
      h("div", { class: "field" }, this.field, this.button),
      h(
        "div",
        { class: "composer-foot" },
        h("label", { class: "inline-select" }, "Thinking ", this.thinking),
        this.context,
        h("span", { class: "keys faint" }, h("kbd", {}, "Enter"), " sends · ", h("kbd", {}, "Esc"), " stops"),
      ),
    );
    this.setRunning(false);
  }

  setRunning(running: boolean): void {
    this.running = running;
    const label = running ? "Stop (Esc)" : "Send (Enter)";
    this.button.replaceChildren(icon(running ? "stop" : "send"));
    this.button.classList.toggle("stop", running);
    this.button.setAttribute("aria-label", label);
    this.button.title = label;
  }

  setThinking(thinking: Thinking): void {
    this.thinking.value = thinking;
  }

  setContext(text: string): void {
    this.context.textContent = text;
  }

  setText(text: string): void {
    this.field.value = text;
    this.fit();
    this.focus();
  }

  focus(): void {
    this.field.focus();
  }

  private submit(): void {
    if (this.running) return this.actions.stop();
    const text = this.field.value.trim();
    if (text === "") return;
    this.field.value = "";
    this.fit();
    this.actions.send(text);
  }

  private onKey(event: KeyboardEvent): void {
    // While an input method composes, Enter is its own.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    // Enter must not stop what somebody is waiting for.
    if (!this.running) this.submit();
  }

  private fit(): void {
    this.field.style.height = "auto";
    this.field.style.height = `${this.field.scrollHeight}px`;
  }
}
