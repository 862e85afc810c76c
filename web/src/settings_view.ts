// The settings of a conversation, and those of the page.

import { h, iconButton } from "./dom";
import {
  NUMBER_FIELDS,
  THINKING_CHOICES,
  checkNumber,
  parseTools,
  type NumberName,
  type Settings,
  type Thinking,
} from "./settings";
import { chooseTheme, chosenTheme, type Theme } from "./theme";

const EXAMPLE_TOOL = [
  {
    type: "function",
    function: {
      name: "get_weather",
      description: "The weather of a city now",
      parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    },
  },
];

export class SettingsView {
  readonly element: HTMLDialogElement;
  private readonly heading = h("h2", { tabindex: "-1" }, "Settings");
  private readonly system = h("textarea", { rows: "4", id: "system", placeholder: "You are …" });
  private readonly tools = h("textarea", { rows: "5", id: "tools", class: "mono", spellcheck: "false", placeholder: "[]" });
  private readonly thinking = select<Thinking>("thinking", THINKING_CHOICES);
  private readonly theme = select<Theme>("theme", [
    { value: "system", label: "as the system" },
    { value: "light", label: "light" },
    { value: "dark", label: "dark" },
  ]);
  private readonly numbers = new Map<NumberName, HTMLInputElement>();
  private readonly problem = h("p", { class: "problem", role: "alert" });

  constructor(
    private readonly onSave: (settings: Settings) => void,
    onKey: () => void,
  ) {
    const grid = h("div", { class: "grid" }, labelled("Thinking", this.thinking, "off, or how much effort"));
    for (const field of NUMBER_FIELDS) {
      const input = h("input", { type: "text", inputmode: "decimal", id: field.name, autocomplete: "off", placeholder: "default" });
      this.numbers.set(field.name, input);
      grid.append(labelled(field.label, input, field.hint));
    }
    const example = h("button", { type: "button", class: "link", onclick: () => this.insertExample() }, "Insert an example");
    const onsubmit = (event: Event): void => {
      event.preventDefault();
      this.save();
    };
    this.theme.addEventListener("change", () => chooseTheme(this.theme.value as Theme));
    this.element = h(
      "dialog",
      { class: "drawer", "aria-label": "Settings" },
      h(
        "form",
        { onsubmit },
        h("header", {}, this.heading, iconButton("close", "Close settings", () => this.element.close())),
        h(
          "div",
          { class: "drawer-body" },
          h("p", { class: "faint" }, "For this conversation, and for new ones. What is empty is left to the server."),
          labelled("System prompt", this.system),
          grid,
          labelled("Tools (JSON)", this.tools, "functions the model may call; you type their results"),
          example,
          h("hr"),
          h("div", { class: "grid" }, labelled("Theme", this.theme)),
          h("button", { type: "button", onclick: onKey }, "API key …"),
        ),
        h(
          "footer",
          {},
          this.problem,
          h("button", { type: "button", onclick: () => this.element.close() }, "Cancel"),
          h("button", { type: "submit", class: "primary" }, "Save"),
        ),
      ),
    );
  }

  open(settings: Settings): void {
    this.system.value = settings.system;
    this.tools.value = settings.tools;
    this.thinking.value = settings.thinking;
    this.theme.value = chosenTheme();
    for (const [name, input] of this.numbers) input.value = settings[name] === null ? "" : String(settings[name]);
    this.problem.textContent = "";
    this.element.showModal();
    this.heading.focus(); // not a field: on a phone the keyboard would hide the rest
  }

  private save(): void {
    const settings: Settings = {
      system: this.system.value,
      tools: this.tools.value,
      thinking: this.thinking.value as Thinking,
      temperature: null,
      top_p: null,
      top_k: null,
      max_tokens: null,
      seed: null,
    };
    for (const field of NUMBER_FIELDS) {
      const input = this.numbers.get(field.name)!;
      const text = input.value.trim().replace(",", ".");
      if (text === "") continue;
      const problem = checkNumber(field, Number(text));
      if (problem !== "") return this.refuse(problem, input);
      settings[field.name] = Number(text);
    }
    const parsed = parseTools(settings.tools);
    if ("error" in parsed) return this.refuse(parsed.error, this.tools);
    this.element.close();
    this.onSave(settings);
  }

  private refuse(problem: string, field: HTMLElement): void {
    this.problem.textContent = problem;
    field.focus();
  }

  private insertExample(): void {
    this.tools.value = JSON.stringify(EXAMPLE_TOOL, null, 2);
    this.tools.focus();
  }
}

function select<Value extends string>(id: string, choices: { value: Value; label: string }[]): HTMLSelectElement {
  return h("select", { id }, ...choices.map(({ value, label }) => h("option", { value }, label)));
}

function labelled(name: string, field: HTMLElement, hint = ""): HTMLElement {
  return h(
    "div",
    { class: "labelled" },
    h("label", { for: field.id }, name),
    field,
    hint === "" ? null : h("span", { class: "hint faint" }, hint),
  );
}
