import assert from "node:assert/strict";
import { test } from "node:test";
import { parseBlocks } from "../../web/src/markdown_blocks";
import { parseInline, safeUrl } from "../../web/src/markdown_inline";
import { highlight } from "../../web/src/highlight";

/** A short form of the tree, to compare: strong is S(..), emphasis E(..), strike X(..), links L(url ..). */
function inline(content) {
  const letters = { strong: "S", emphasis: "E", strike: "X" };
  return content
    .map((node) => {
      if (node.kind === "text") return node.text;
      if (node.kind === "code") return `C(${node.text})`;
      if (node.kind === "math") return `M(${node.text})`;
      if (node.kind === "break") return "↵";
      if (node.kind === "link") return `L(${node.url} ${inline(node.children)})`;
      return `${letters[node.kind]}(${inline(node.children)})`;
    })
    .join("");
}

function block(node) {
  switch (node.kind) {
    case "heading":
      return `h${node.level}(${inline(node.content)})`;
    case "paragraph":
      return `p(${inline(node.content)})`;
    case "code":
      return `code:${node.language}(${node.text})`;
    case "math":
      return `math(${node.text})`;
    case "quote":
      return `quote(${node.blocks.map(block).join(" ")})`;
    case "list": {
      const mark = (item) => (item.checked === null ? "" : item.checked ? "[x]" : "[ ]");
      const items = node.items.map((item) => mark(item) + item.blocks.map(block).join(" "));
      return `${node.ordered ? `ol${node.start}` : "ul"}${node.tight ? "" : " loose"}(${items.join(" | ")})`;
    }
    case "table":
      return `table:${node.align.join(",")}(${[node.head, ...node.rows].map((row) => row.map(inline).join(" | ")).join(" // ")})`;
    default:
      return node.kind;
  }
}
const blocks = (text) => parseBlocks(text).map(({ block: node }) => block(node)).join(" ");
const spans = (text) => inline(parseInline(text));

test("blocks", () => {
  const cases = [
    ["# One\n## Two ##\n#no\n", "h1(One) h2(Two) p(#no)"],
    ["a\nb\n\nc", "p(a\nb) p(c)"],
    ["```cpp\nint a;\n\n  b\n```\nend", "code:cpp(int a;\n\n  b) p(end)"],
    ["~~~\n```\n~~~", "code:(```)"],
    ["```py\nunfinished", "code:py(unfinished)"],
    ["text\n```\ncode\n```", "p(text) code:(code)"],
    ["- a\n- b\n  more\n- c", "ul(p(a) | p(b\nmore) | p(c))"],
    ["1. a\n2. b\n   - c\n   - d\n3. e", "ol1(p(a) | p(b) ul(p(c) | p(d)) | p(e))"],
    ["1. a\n  - b\n2. c", "ol1(p(a) ul(p(b)) | p(c))"],
    ["7) a\n\n8) b", "ol7 loose(p(a) | p(b))"],
    ["- a\n\n  ```sh\n  - x\n  ```\n- b", "ul(p(a) code:sh(- x) | p(b))"],
    ["- [ ] a\n- [x] b", "ul([ ]p(a) | [x]p(b))"],
    ["- a\n\nafter", "ul(p(a)) p(after)"],
    ["> a\n> > b\n\nc", "quote(p(a) quote(p(b))) p(c)"],
    ["---\n***\n- - -\na", "rule rule rule p(a)"],
    ["| a | b |\n|:-:|--:|\n| 1 | `x|y` |\n| 2 \\| 3 |\n\nend", "table:center,right(a | b // 1 | C(x|y) // 2 | 3 | ) p(end)"],
    ["a | b\n--|--\n1 | 2", "table:,(a | b // 1 | 2)"],
    ["a | b\nno table", "p(a | b\nno table)"],
    ["\\[\nx_1 = y_2\n\\]", "math(x_1 = y_2)"],
    ["$$a$$ in words", "p(M(a) in words)"],
    ["1986. A year", "ol1986(p(A year))"],
    ["It was\n1986. A year", "p(It was\n1986. A year)"],
    ["a\r\nb\r\n\r\nc", "p(a\nb) p(c)"],
    ["", ""],
  ];
  for (const [text, expected] of cases) assert.equal(blocks(text), expected, JSON.stringify(text));
});

test("spans", () => {
  const cases = [
    ["**bold** and *it* and ***both***", "S(bold) and E(it) and E(S(both))"],
    ["snake_case_name and _em_", "snake_case_name and E(em)"],
    ["2 * 3 * 4", "2 * 3 * 4"],
    ["**open and *closed*", "**open and E(closed)"],
    ["~~gone~~ ~one~", "X(gone) ~one~"],
    ["中文**“强调”**继续", "中文S(“强调”)继续"],
    ["`a*b*` ``x`y`` `open", "C(a*b*) C(x`y) `open"],
    ["\\*not\\* \\_x", "*not* _x"],
    ["\\(a_1\\) and \\(open", "M(a_1) and \\(open"],
    ["a  \nb\\\nc<br>d", "a↵b↵c↵d"],
    ["[t](https://a.example/x_(y) \"title\")", "L(https://a.example/x_(y) t)"],
    ["[**b** [c]](https://a.example)", "L(https://a.example/ S(b) [c])"],
    ["see https://a.example/b_c_d. And (http://b.example)", "see L(https://a.example/b_c_d https://a.example/b_c_d). And (L(http://b.example/ http://b.example))"],
    ["&lt;b&gt; &amp; &copy;", "<b> & &copy;"],
    ["![alt](https://a.example/p.png)", "L(https://a.example/p.png alt)"],
  ];
  for (const [text, expected] of cases) assert.equal(spans(text), expected, JSON.stringify(text));
});

test("links lead to http and https only", () => {
  const attempts = [
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    " javascript:alert(1)",
    "java\tscript:alert(1)",
    "\u0001javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "vbscript:x",
    "file:///etc/passwd",
    "blob:https://a.example/x",
    "//a.example",
    "/relative",
    "https:a.example",
    "http://",
    `https://a.example/${"x".repeat(5000)}`,
  ];
  for (const url of attempts) {
    assert.equal(safeUrl(url), null, url);
    for (const text of [`[x](${url})`, `[x](<${url}>)`, `<${url}>`, `![x](${url})`, `[x](${url} "t")`]) {
      const links = JSON.stringify(parseBlocks(text)).match(/"url":"[^"]*"/g) ?? [];
      for (const link of links) assert.match(link, /^"url":"https?:\/\//, text);
    }
  }
  assert.equal(safeUrl("HTTPS://A.example/%22onclick=%22"), "https://a.example/%22onclick=%22");
});

test("HTML is text", () => {
  for (const html of ["<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<svg/onload=alert(1)>", "<a href='javascript:1'>x</a>", "<!-- c -->"]) {
    assert.equal(spans(html), html);
    assert.equal(blocks(html), `p(${html})`);
    assert.equal(blocks(`# ${html}`), `h1(${html})`);
    assert.equal(blocks(`\`\`\`html\n${html}\n\`\`\``), `code:html(${html})`);
  }
});

const LONG = `# Title

Text with **bold** and a
second line.

1. one

  - nested *item*
2. two

   more
\`\`\`cpp
int a = 1;  // x

int b;
\`\`\`
| a | b |
|---|---|
| 1 | 2 |

> quote
> - in it

\\[ x = 1 \\]

- a
- b

**end** [l](https://a.example)`;

test("appended text changes the last two blocks only", () => {
  const texts = (text) => parseBlocks(text).map(({ block: node }) => block(node));
  for (let length = 1; length < LONG.length; ++length) {
    const settled = texts(LONG.slice(0, length)).slice(0, -2);
    assert.deepEqual(texts(LONG.slice(0, length + 1)).slice(0, settled.length), settled, JSON.stringify(LONG.slice(0, length + 1)));
  }
});

test("blocks know where they begin", () => {
  for (const { block: node, begin } of parseBlocks(LONG)) {
    assert.equal(block(parseBlocks(LONG.slice(begin))[0].block), block(node));
  }
});

test("hostile text takes time in proportion to its length", () => {
  // Quadratic work on 100,000 characters would take minutes; the runner's deadline finds it.
  const size = 100_000;
  for (const part of ["*a ", "_a*b", "[", "[a](", "](", "`", "`a``", "<", "> ", "- ", "~~", "\\(", "$$", "| a ", "# ", "  - a\n", ">".repeat(40) + "a\n", "&", "https://", "**a", "(", "]("]) {
    const text = part.repeat(Math.ceil(size / part.length));
    assert.ok(parseBlocks(text).length > 0, part);
    assert.ok(parseBlocks(`|${text}\n|-`).length > 0, part);
  }
});

test("highlighted code is the code", () => {
  const code = `// note\nconst x = "a\\"b" + 'c' + 0x1F + 1.5e3; # not\n/* open`;
  for (const language of ["cpp", "ts", "python", "sh", "json", "sql", "html", "css", "rust", "go", "java", "yaml", "diff", "unknown", ""]) {
    assert.equal(highlight(code, language).map(({ text }) => text).join(""), code, language);
  }
  const kinds = highlight("if (x) return 12; // done", "cpp").filter(({ kind }) => kind !== "");
  assert.deepEqual(kinds.map(({ kind, text }) => `${kind} ${text}`), ["keyword if", "keyword return", "number 12", "comment // done"]);
});
