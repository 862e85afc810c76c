// Elements without markup strings: text can only ever become text.

type Child = Node | string | null | undefined;

export interface Attributes {
  [name: string]: string | boolean | null | undefined | ((event: never) => void);
}

/** `on...` functions become listeners; true is an empty attribute; false, null and undefined are left out. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") {
      element.addEventListener(name.slice(2), value as (event: Event) => void);
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  append(element, children);
  return element;
}

export function append(element: Element, children: Child[]): void {
  for (const child of children) {
    if (child !== null && child !== undefined) element.append(child);
  }
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag: string, attributes: Record<string, string>, ...children: Element[]): SVGElement {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Outlines on a 16 by 16 grid.
const ICONS = {
  menu: "M2 4h12M2 8h12M2 12h12",
  plus: "M8 3v10M3 8h10",
  close: "M4 4l8 8M12 4l-8 8",
  send: "M8 13V3M3.5 7.5L8 3l4.5 4.5",
  stop: "M4.5 4.5h7v7h-7z",
  copy: "M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z",
  check: "M3 8.5l3.5 3.5L13 4.5",
  edit: "M3 13l.7-3L11 2.7l2.3 2.3L6 12.3 3 13z",
  again: "M13 8a5 5 0 1 1-1.6-3.7M13 2v3h-3",
  left: "M10 3L5 8l5 5",
  right: "M6 3l5 5-5 5",
  down: "M3 6l5 5 5-5",
  sliders: "M2 5h7M12 5h2M2 11h2M7 11h7M10.5 3.2v3.6M5.5 9.2v3.6",
  theme: "M8 2.5a5.5 5.5 0 1 0 0 11zM8 2.5a5.5 5.5 0 0 1 0 11",
  trash: "M3 4.5h10M6.5 4.5v-2h3v2M4.5 4.5l.6 9h5.8l.6-9",
  download: "M8 2.5v8M4.5 7L8 10.5 11.5 7M3 13.5h10",
  key: "M9.2 6.8a2.8 2.8 0 1 0-2.1 2.1L8 9.8h1.5v1.5H11v1.5h2.5v-2z",
  tool: "M2.5 5.5L5 8l-2.5 2.5M7 11h6.5",
} as const;

export type IconName = keyof typeof ICONS;

export function icon(name: IconName): SVGElement {
  return svg("svg", { viewBox: "0 0 16 16", class: "icon", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));
}

/** A button with an icon; `label` is its name and its tooltip. */
export function iconButton(name: IconName, label: string, onclick: (event: MouseEvent) => void, extra = ""): HTMLButtonElement {
  return h("button", { type: "button", class: `icon-button ${extra}`.trim(), "aria-label": label, title: label, onclick }, icon(name));
}

/** The clipboard interface exists on secure origins only; a local network over plain HTTP needs the old way. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h("textarea", { class: "off-screen", "aria-hidden": "true" });
    const focused = document.activeElement;
    area.value = text;
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    if (focused instanceof HTMLElement) focused.focus();
    return copied;
  }
}

const SHOW_COPIED_MS = 1500;

/** A button that copies what `text` returns and says that it did. */
export function copyButton(label: string, text: () => string): HTMLButtonElement {
  const button = iconButton("copy", label, () => {
    void copyText(text()).then((copied) => {
      if (!copied) return;
      button.replaceChildren(icon("check"));
      setTimeout(() => button.replaceChildren(icon("copy")), SHOW_COPIED_MS);
    });
  });
  return button;
}
