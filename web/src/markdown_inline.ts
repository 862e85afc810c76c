// The text of one paragraph, cell or heading -> a tree of spans. Links lead to http and https only; HTML is text.
//
// Emphasis follows CommonMark's delimiter runs, but next to CJK characters, which stand without blanks, it also begins
// and ends where CommonMark asks for one. Time is proportional to the text: open delimiters are bounded.

export type Inline =
  | { kind: "text"; text: string }
  | { kind: "code"; text: string }
  | { kind: "math"; text: string }
  | { kind: "break" }
  | { kind: "strong" | "emphasis" | "strike"; children: Inline[] }
  | { kind: "link"; url: string; children: Inline[] };

interface Delimiter {
  kind: "delimiter";
  character: string;
  count: number;
  open: boolean;
  close: boolean;
}
interface Bracket {
  kind: "bracket";
  text: string; // "[" or "!["
  usable: boolean;
}
type Item = Inline | Delimiter | Bracket;

const LONGEST_URL = 4096;
const MOST_OPEN = 64;
const ENTITIES: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', nbsp: "\u00a0", "#39": "'" };

/** `url` when a browser may be sent there, else null. */
export function safeUrl(url: string): string | null {
  if (url.length > LONGEST_URL || !/^https?:\/\//i.test(url)) return null;
  try {
    const { protocol, href } = new URL(url);
    return protocol === "http:" || protocol === "https:" ? href : null;
  } catch {
    return null;
  }
}

export function parseInline(text: string): Inline[] {
  return resolve(new Scanner(text).scan());
}

const isWhite = (character: string): boolean => character === "" || /\s/.test(character);
const isMark = (character: string): boolean => /[\p{P}\p{S}]/u.test(character);
const isCjk = (character: string): boolean => /[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]/.test(character);

class Scanner {
  private readonly items: Item[] = [];
  private readonly brackets: number[] = []; // places in `items`
  private readonly unclosed = new Set<string>(); // closing marks that do not come any more
  private plain = "";
  private at = 0;

  constructor(private readonly text: string) {}

  scan(): Item[] {
    while (this.at < this.text.length) this.step(this.text[this.at]!);
    this.flush();
    return this.items;
  }

  private step(character: string): void {
    switch (character) {
      case "\\":
        return this.escape();
      case "`":
        return this.codeSpan();
      case "$":
        if (this.math("$$", "$$")) return;
        break;
      case "*":
      case "_":
      case "~":
        return this.delimiter(character);
      case "!":
        if (this.text[this.at + 1] !== "[") break;
        return this.openBracket("![");
      case "[":
        return this.openBracket("[");
      case "]":
        return this.closeBracket();
      case "<":
        return this.angle();
      case "&":
        return this.entity();
      case "h":
        if (this.bareLink()) return;
        break;
      case "\n":
        return this.lineEnd();
    }
    this.plain += character;
    ++this.at;
  }

  private flush(): void {
    if (this.plain !== "") this.items.push({ kind: "text", text: this.plain });
    this.plain = "";
  }

  private push(item: Item): void {
    this.flush();
    this.items.push(item);
  }

  private find(mark: string, from: number): number {
    if (this.unclosed.has(mark)) return -1;
    const found = this.text.indexOf(mark, from);
    if (found < 0) this.unclosed.add(mark);
    return found;
  }

  private math(open: string, close: string): boolean {
    if (!this.text.startsWith(open, this.at)) return false;
    const begin = this.at + open.length;
    const end = this.find(close, begin);
    if (end <= begin) return false;
    this.push({ kind: "math", text: this.text.slice(begin, end).trim() });
    this.at = end + close.length;
    return true;
  }

  private escape(): void {
    const next = this.text[this.at + 1] ?? "";
    if (next === "(" || next === "[") {
      // A formula; while its end is not there, it stands as it is written.
      if (this.math("\\" + next, next === "(" ? "\\)" : "\\]")) return;
      this.plain += "\\" + next;
      this.at += 2;
    } else if (next === "\n") {
      this.push({ kind: "break" });
      this.at += 2;
    } else if (/[!-/:-@[-`{-~]/.test(next) && next !== ")" && next !== "]") {
      this.plain += next;
      this.at += 2;
    } else {
      this.plain += "\\";
      ++this.at;
    }
  }

  private codeSpan(): void {
    let begin = this.at;
    while (this.text[begin] === "`") ++begin;
    const mark = "`".repeat(begin - this.at);
    let end = this.find(mark, begin);
    while (end >= 0) {
      let after = end;
      while (this.text[after] === "`") ++after;
      if (after - end === mark.length) break;
      end = this.text.indexOf(mark, after);
      if (end < 0) this.unclosed.add(mark);
    }
    if (end < 0) {
      this.plain += mark;
      this.at = begin;
      return;
    }
    let code = this.text.slice(begin, end).replaceAll("\n", " ");
    if (code.startsWith(" ") && code.endsWith(" ") && code.trim() !== "") code = code.slice(1, -1);
    this.push({ kind: "code", text: code });
    this.at = end + mark.length;
  }

  private delimiter(character: string): void {
    const before = this.text[this.at - 1] ?? "";
    let end = this.at;
    while (this.text[end] === character) ++end;
    const after = this.text[end] ?? "";
    const count = end - this.at;
    this.at = end;
    const left = !isWhite(after) && (!isMark(after) || isWhite(before) || isMark(before) || isCjk(before));
    const right = !isWhite(before) && (!isMark(before) || isWhite(after) || isMark(after) || isCjk(after));
    const inWord = character === "_";
    const open = left && (!inWord || !right || isMark(before));
    const close = right && (!inWord || !left || isMark(after));
    if ((!open && !close) || (character === "~" && count !== 2)) {
      this.plain += character.repeat(count);
    } else {
      this.push({ kind: "delimiter", character, count, open, close });
    }
  }

  private openBracket(text: string): void {
    this.push({ kind: "bracket", text, usable: true });
    this.brackets.push(this.items.length - 1);
    this.at += text.length;
  }

  private closeBracket(): void {
    ++this.at;
    const place = this.brackets.pop();
    const bracket = place === undefined ? undefined : (this.items[place] as Bracket);
    const target = bracket?.usable ? this.target() : null;
    if (place === undefined || target === null) {
      this.plain += "]";
      return;
    }
    this.flush();
    const children = resolve(this.items.splice(place).slice(1));
    this.items.push({ kind: "link", url: target, children });
    for (const outer of this.brackets) (this.items[outer] as Bracket).usable = false; // no links in links
  }

  /** Reads `(url "title")`; null, and nothing read, when it is none or leads where it must not. */
  private target(): string | null {
    const matcher = /\(\s*(?:<([^<>\n]*)>|((?:[^\s()\\]|\\.|\([^\s()]*\))*))(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/y;
    matcher.lastIndex = this.at;
    const match = matcher.exec(this.text.slice(0, this.at + LONGEST_URL));
    if (match === null) return null;
    const url = safeUrl((match[1] ?? match[2] ?? "").replace(/\\([!-/:-@[-`{-~])/g, "$1"));
    if (url !== null) this.at = matcher.lastIndex;
    return url;
  }

  private angle(): void {
    const matcher = /<(?:br\s*\/?|(https?:\/\/[^\s<>]{1,4096}))>/iy;
    matcher.lastIndex = this.at;
    const match = matcher.exec(this.text);
    const url = match?.[1] === undefined ? null : safeUrl(match[1]);
    if (match === null || (match[1] !== undefined && url === null)) {
      this.plain += "<";
      ++this.at;
      return;
    }
    this.push(url === null ? { kind: "break" } : link(url, match[1]!));
    this.at = matcher.lastIndex;
  }

  private entity(): void {
    const matcher = /&(#?\w{2,4});/y;
    matcher.lastIndex = this.at;
    const character = ENTITIES[matcher.exec(this.text)?.[1] ?? ""];
    this.plain += character ?? "&";
    this.at = character === undefined ? this.at + 1 : matcher.lastIndex;
  }

  private bareLink(): boolean {
    if (/\w/.test(this.text[this.at - 1] ?? "")) return false;
    const matcher = /https?:\/\/[^\s<>"'`\u3000-\u303f\uff00-\uffef]{1,4096}/y;
    matcher.lastIndex = this.at;
    let text = matcher.exec(this.text)?.[0] ?? "";
    // What closes the sentence around it is no part of it.
    for (let more = true; more; ) {
      more = /[.,;:!?*_~\]}|]$/.test(text) || (text.endsWith(")") && !text.includes("("));
      if (more) text = text.slice(0, -1);
    }
    const url = safeUrl(text);
    if (url === null) return false;
    this.push(link(url, text));
    this.at += text.length;
    return true;
  }

  private lineEnd(): void {
    const hard = this.plain.endsWith("  ");
    this.plain = this.plain.trimEnd();
    ++this.at;
    if (hard) {
      this.push({ kind: "break" });
    } else {
      this.plain += "\n";
    }
  }
}

function link(url: string, text: string): Inline {
  return { kind: "link", url, children: [{ kind: "text", text }] };
}

/** Pairs the delimiters. Those without a partner become text. */
function resolve(items: Item[]): Inline[] {
  interface Frame {
    delimiter: Delimiter | null;
    children: Inline[];
  }
  const frames: Frame[] = [{ delimiter: null, children: [] }];
  const top = (): Frame => frames[frames.length - 1]!;
  const collapse = (height: number): void => {
    const { children: into } = frames[height - 1]!;
    for (const { delimiter, children } of frames.splice(height)) {
      into.push({ kind: "text", text: delimiter!.character.repeat(delimiter!.count) });
      for (const child of children) into.push(child);
    }
  };

  for (const item of items) {
    if (item.kind === "bracket") {
      top().children.push({ kind: "text", text: item.text });
      continue;
    }
    if (item.kind !== "delimiter") {
      top().children.push(item);
      continue;
    }
    let { count } = item;
    while (item.close && count > 0) {
      const opener = frames.findLastIndex((frame) => frame.delimiter?.character === item.character);
      if (opener < 0) break;
      collapse(opener + 1);
      const frame = frames[opener]!;
      const used = count >= 2 && frame.delimiter!.count >= 2 ? 2 : 1;
      const kind = item.character === "~" ? "strike" : used === 2 ? "strong" : "emphasis";
      const node: Inline = { kind, children: frame.children };
      count -= used;
      frame.delimiter!.count -= used;
      if (frame.delimiter!.count === 0) {
        frames.pop();
        top().children.push(node);
      } else {
        frame.children = [node];
      }
    }
    if (count === 0) continue;
    if (item.open && frames.length < MOST_OPEN) {
      frames.push({ delimiter: { ...item, count }, children: [] });
    } else {
      top().children.push({ kind: "text", text: item.character.repeat(count) });
    }
  }
  collapse(1);
  return top().children;
}
