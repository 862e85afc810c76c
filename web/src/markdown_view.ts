// Shows Markdown, and keeps up with text that grows: blocks that can no longer change are not built again.

import { copyButton, h } from "./dom";
import { highlight } from "./highlight";
import { parseBlocks, type Block } from "./markdown_blocks";
import type { Inline } from "./markdown_inline";

// Appended text may still change this many blocks at the end.
const UNSETTLED = 2;

export class MarkdownView {
  readonly element = h("div", { class: "markdown" });
  private text = "";
  private settledEnd = 0; // characters of `text` whose blocks stand
  private settledBlocks = 0;

  set(text: string): void {
    if (text === this.text) return;
    if (!text.startsWith(this.text)) {
      this.settledEnd = 0;
      this.settledBlocks = 0;
    }
    this.text = text;
    const blocks = parseBlocks(text.slice(this.settledEnd));
    while (this.element.childElementCount > this.settledBlocks) this.element.lastElementChild!.remove();
    for (const { block } of blocks) this.element.append(blockElement(block));
    const settle = Math.max(0, blocks.length - UNSETTLED);
    this.settledEnd += blocks[settle]?.begin ?? 0;
    this.settledBlocks += settle;
  }
}

export function blockElement(block: Block): HTMLElement {
  switch (block.kind) {
    case "heading": {
      // The page's own headings are above those of an answer.
      const level = Math.min(6, block.level + 2) as 3 | 4 | 5 | 6;
      return h(`h${level}`, { class: `heading-${block.level}` }, inlineNodes(block.content));
    }
    case "paragraph":
      return h("p", {}, inlineNodes(block.content));
    case "code":
      return codeElement(block.text, block.language);
    case "math":
      return h("p", { class: "math" }, h("code", {}, block.text));
    case "quote":
      return h("blockquote", {}, ...block.blocks.map(blockElement));
    case "list":
      return listElement(block);
    case "table":
      return tableElement(block);
    case "rule":
      return h("hr");
  }
}

/** Code with its language and a button that copies it. */
export function codeElement(text: string, language: string): HTMLElement {
  const code = h("code");
  for (const token of highlight(text, language)) {
    code.append(token.kind === "" ? token.text : h("span", { class: `token-${token.kind}` }, token.text));
  }
  return h(
    "figure",
    { class: "code" },
    h("figcaption", {}, h("span", {}, language), copyButton("Copy code", () => text)),
    // Keyboards scroll what has the focus.
    h("pre", { tabindex: "0" }, code),
  );
}

function listElement(list: Extract<Block, { kind: "list" }>): HTMLElement {
  const items = list.items.map((item) => {
    const box =
      item.checked === null ? null : h("input", { type: "checkbox", disabled: true, checked: item.checked, "aria-label": "done" });
    const element = h("li", { class: box === null ? null : "task" }, box);
    for (const block of item.blocks) {
      element.append(list.tight && block.kind === "paragraph" ? inlineNodes(block.content) : blockElement(block));
    }
    return element;
  });
  return list.ordered ? h("ol", { start: String(list.start) }, ...items) : h("ul", {}, ...items);
}

function tableElement(table: Extract<Block, { kind: "table" }>): HTMLElement {
  const row = (tag: "th" | "td", cells: Inline[][]): HTMLElement =>
    h("tr", {}, ...cells.map((cell, i) => h(tag, { class: table.align[i] ? `align-${table.align[i]}` : null }, inlineNodes(cell))));
  return h(
    "div",
    { class: "table-scroll", tabindex: "0" },
    h("table", {}, h("thead", {}, row("th", table.head)), h("tbody", {}, ...table.rows.map((cells) => row("td", cells)))),
  );
}

function inlineNodes(content: Inline[]): DocumentFragment {
  const fragment = document.createDocumentFragment();
  for (const inline of content) fragment.append(inlineNode(inline));
  return fragment;
}

function inlineNode(inline: Inline): Node | string {
  switch (inline.kind) {
    case "text":
      return inline.text;
    case "code":
      return h("code", {}, inline.text);
    case "math":
      return h("code", { class: "math" }, inline.text);
    case "break":
      return h("br");
    case "strong":
      return h("strong", {}, inlineNodes(inline.children));
    case "emphasis":
      return h("em", {}, inlineNodes(inline.children));
    case "strike":
      return h("s", {}, inlineNodes(inline.children));
    case "link":
      return h("a", { href: inline.url, target: "_blank", rel: "noopener noreferrer" }, inlineNodes(inline.children));
  }
}
