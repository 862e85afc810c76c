// Markdown as language models write it -> a tree of blocks. Pure: no markup of the text gets anywhere but into this tree.
//
// The dialect is CommonMark's with tables, without raw HTML, reference links and code by indentation; formulas are kept
// as they stand. Runs in time proportional to the text: nesting is bounded.

import { parseInline, type Inline } from "./markdown_inline";

export type Align = "" | "left" | "center" | "right";

export interface ListItem {
  checked: boolean | null; // null: no task
  blocks: Block[];
}

export type Block =
  | { kind: "heading"; level: number; content: Inline[] }
  | { kind: "paragraph"; content: Inline[] }
  | { kind: "code"; language: string; text: string }
  | { kind: "math"; text: string }
  | { kind: "quote"; blocks: Block[] }
  | { kind: "list"; ordered: boolean; start: number; tight: boolean; items: ListItem[] }
  | { kind: "table"; align: Align[]; head: Inline[][]; rows: Inline[][][] }
  | { kind: "rule" };

export interface ParsedBlock {
  block: Block;
  begin: number; // of its first line in the text
}

const DEEPEST = 16;

/** The blocks of `text`. Text that is appended later changes none of them but the last two. */
export function parseBlocks(text: string): ParsedBlock[] {
  const lines = text.split("\n");
  const begins: number[] = [];
  let at = 0;
  for (const line of lines) {
    begins.push(at);
    at += line.length + 1;
  }
  const parsed: ParsedBlock[] = [];
  new BlockParser(lines.map(tidyLine), 0).parse((block, line) => parsed.push({ block, begin: begins[line] ?? 0 }));
  return parsed;
}

function tidyLine(line: string): string {
  const unended = line.endsWith("\r") ? line.slice(0, -1) : line;
  return unended.replace(/^[ \t]+/, (blanks) => blanks.replaceAll("\t", "    "));
}

function parseNested(lines: string[], depth: number): Block[] {
  const blocks: Block[] = [];
  new BlockParser(lines, depth).parse((block) => blocks.push(block));
  return blocks;
}

interface Marker {
  indent: number;
  offset: number; // of the item's text
  ordered: boolean;
  kind: string; // "-", "*", "+", "." or ")"
  number: number;
  rest: string;
}

function markerOf(line: string): Marker | null {
  const match = /^( *)(?:([-*+])|(\d{1,9})([.)]))(?: +|$)/.exec(line);
  if (match === null || isRule(line)) return null;
  const [whole, blanks = "", bullet, digits, delimiter] = match;
  const rest = line.slice(whole.length);
  const width = blanks.length + (bullet ?? digits + delimiter!).length;
  return {
    indent: blanks.length,
    offset: rest === "" || whole.length > width + 4 ? width + 1 : whole.length,
    ordered: bullet === undefined,
    kind: bullet ?? delimiter ?? "",
    number: Number(digits ?? 1),
    rest,
  };
}

function indentOf(line: string): number {
  let indent = 0;
  while (line[indent] === " ") ++indent;
  return indent;
}

const isBlank = (line: string): boolean => line.trim() === "";

function isRule(line: string): boolean {
  const marks = line.replaceAll(" ", "");
  return marks.length >= 3 && "-*_".includes(marks[0]!) && marks === marks[0]!.repeat(marks.length);
}

function fenceOf(line: string): { mark: string; language: string; indent: number } | null {
  const match = /^ *(`{3,}|~{3,})(.*)$/.exec(line);
  if (match === null || (match[1]!.startsWith("`") && match[2]!.includes("`"))) return null;
  const language = match[2]!.trim().split(/[\s{,]/, 1)[0] ?? "";
  return { mark: match[1]!, language, indent: indentOf(line) };
}

function isHeading(line: string): boolean {
  return /^ {0,3}#{1,6}(?: |$)/.test(line);
}

/** The cells of a table row; a bar that is escaped or within a code span ends none. */
function cellsOf(line: string): string[] {
  let row = line.trim();
  if (row.startsWith("|")) row = row.slice(1);
  const cells: string[] = [];
  let cell = "";
  let inCode = false;
  for (let i = 0; i < row.length; ++i) {
    const character = row[i]!;
    if (character === "\\" && row[i + 1] === "|") {
      cell += "|";
      ++i;
    } else if (character === "|" && !inCode) {
      cells.push(cell.trim());
      cell = "";
    } else {
      if (character === "`") inCode = !inCode;
      cell += character;
    }
  }
  if (cell.trim() !== "" || inCode) cells.push(cell.trim());
  return cells;
}

function alignsOf(line: string | undefined): Align[] | null {
  if (line === undefined || !line.includes("-") || !/^[ |:-]+$/.test(line)) return null;
  const aligns: Align[] = [];
  for (const cell of cellsOf(line)) {
    if (!/^:?-+:?$/.test(cell)) return null;
    const left = cell.startsWith(":");
    const right = cell.endsWith(":");
    aligns.push(left && right ? "center" : right ? "right" : left ? "left" : "");
  }
  return aligns;
}

class BlockParser {
  private at = 0;

  constructor(
    private readonly lines: string[],
    private readonly depth: number,
  ) {}

  parse(add: (block: Block, line: number) => void): void {
    while (this.at < this.lines.length) {
      const line = this.lines[this.at]!;
      if (isBlank(line)) {
        ++this.at;
        continue;
      }
      const begin = this.at;
      add(this.block(line), begin);
    }
  }

  private block(line: string): Block {
    const fence = fenceOf(line);
    if (fence !== null) return this.code(fence);
    if (isHeading(line)) return this.heading(line);
    if (isRule(line)) {
      ++this.at;
      return { kind: "rule" };
    }
    const math = this.math(line);
    if (math !== null) return math;
    if (this.depth < DEEPEST) {
      if (/^ {0,3}>/.test(line)) return this.quote();
      const marker = markerOf(line);
      if (marker !== null) return this.list(marker);
    }
    const aligns = this.tableAt(this.at);
    return aligns !== null ? this.table(aligns) : this.paragraph();
  }

  private heading(line: string): Block {
    ++this.at;
    const marks = line.trimStart();
    let level = 0;
    while (marks[level] === "#") ++level;
    let text = marks.slice(level).trim();
    let end = text.length;
    while (end > 0 && text[end - 1] === "#") --end;
    if (end === 0 || text[end - 1] === " ") text = text.slice(0, end);
    return { kind: "heading", level, content: parseInline(text.trim()) };
  }

  private code(fence: { mark: string; language: string; indent: number }): Block {
    const text: string[] = [];
    for (++this.at; this.at < this.lines.length; ++this.at) {
      const line = this.lines[this.at]!;
      const closing = line.trim();
      if (closing.length >= fence.mark.length && closing === fence.mark[0]!.repeat(closing.length)) {
        ++this.at;
        break;
      }
      text.push(line.slice(Math.min(fence.indent, indentOf(line))));
    }
    return { kind: "code", language: fence.language, text: text.join("\n") };
  }

  private math(line: string): Block | null {
    const open = line.trimStart();
    const close = open.startsWith("\\[") ? "\\]" : open.startsWith("$$") ? "$$" : null;
    if (close === null) return null;
    const text: string[] = [];
    for (let i = this.at; i < this.lines.length; ++i) {
      const part = i === this.at ? open.slice(2) : this.lines[i]!;
      if (isBlank(part) && i > this.at) return null; // a formula has no blank lines
      const end = part.indexOf(close);
      if (end < 0) {
        text.push(part);
        continue;
      }
      if (!isBlank(part.slice(end + 2))) return null; // within a sentence
      text.push(part.slice(0, end));
      this.at = i + 1;
      return { kind: "math", text: text.join("\n").trim() };
    }
    return null;
  }

  private quote(): Block {
    const inner: string[] = [];
    for (; this.at < this.lines.length; ++this.at) {
      const match = /^ {0,3}> ?/.exec(this.lines[this.at]!);
      if (match === null) break;
      inner.push(tidyLine(this.lines[this.at]!.slice(match[0].length)));
    }
    return { kind: "quote", blocks: parseNested(inner, this.depth + 1) };
  }

  private list(first: Marker): Block {
    const items: ListItem[] = [];
    let tight = true;
    let marker: Marker | null = first;
    while (marker !== null) {
      const inner = [marker.rest];
      let blanks = 0;
      let inFence = fenceOf(marker.rest) !== null;
      for (++this.at; this.at < this.lines.length; ++this.at) {
        const line = this.lines[this.at]!;
        if (isBlank(line)) {
          ++blanks;
          continue;
        }
        const next = inFence ? null : markerOf(line);
        const indent = indentOf(line);
        // Models indent a nested list by two, whatever the width of the marker above it.
        const nested: boolean = indent >= marker.offset || (next !== null && indent >= marker.indent + 2);
        if (!nested && (next !== null || blanks > 0 || this.startsBlock(line))) break;
        for (; blanks > 0; --blanks) inner.push("");
        inner.push(line.slice(Math.min(indent, marker.offset)));
        if (fenceOf(line) !== null) inFence = !inFence;
      }
      const task = /^\[([ xX])\] +/.exec(inner[0]!);
      if (task !== null) inner[0] = inner[0]!.slice(task[0].length);
      const blocks = parseNested(inner, this.depth + 1);
      items.push({ checked: task === null ? null : task[1] !== " ", blocks });
      if (blocks.filter((block) => block.kind === "paragraph").length > 1) tight = false;

      const line = this.lines[this.at];
      const next: Marker | null = line === undefined ? null : markerOf(line);
      marker = next !== null && next.ordered === first.ordered && next.kind === first.kind ? next : null;
      if (marker !== null && blanks > 0) tight = false;
    }
    return { kind: "list", ordered: first.ordered, start: first.number, tight, items };
  }

  private tableAt(index: number): Align[] | null {
    const line = this.lines[index]!;
    if (!line.includes("|")) return null;
    const aligns = alignsOf(this.lines[index + 1]);
    return aligns !== null && aligns.length === cellsOf(line).length ? aligns : null;
  }

  private table(align: Align[]): Block {
    const row = (line: string): Inline[][] => {
      const cells = cellsOf(line);
      return align.map((_, column) => parseInline(cells[column] ?? ""));
    };
    const head = row(this.lines[this.at]!);
    const rows: Inline[][][] = [];
    for (this.at += 2; this.at < this.lines.length; ++this.at) {
      const line = this.lines[this.at]!;
      if (isBlank(line) || !line.includes("|")) break;
      rows.push(row(line));
    }
    return { kind: "table", align, head, rows };
  }

  private paragraph(): Block {
    const text = [this.lines[this.at]!.trimStart()];
    for (++this.at; this.at < this.lines.length; ++this.at) {
      const line = this.lines[this.at]!;
      if (isBlank(line) || this.startsBlock(line) || this.tableAt(this.at) !== null) break;
      text.push(line.trimStart());
    }
    return { kind: "paragraph", content: parseInline(text.join("\n").trimEnd()) };
  }

  /** Whether a line ends the paragraph before it. */
  private startsBlock(line: string): boolean {
    if (fenceOf(line) !== null || isHeading(line) || isRule(line)) return true;
    if (this.depth >= DEEPEST) return false;
    const marker = markerOf(line);
    if (marker !== null) return marker.rest !== "" && (!marker.ordered || marker.number === 1);
    return /^ {0,3}>/.test(line);
  }
}
