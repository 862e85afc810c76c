// Colours for code: comments, strings, numbers and keywords by a few rules per family of languages. No parser: what it
// does not know stays plain.

export type TokenKind = "" | "comment" | "string" | "number" | "keyword" | "name";

export interface Token {
  kind: TokenKind;
  text: string;
}

interface Language {
  rules: RegExp; // one alternative a kind, in the order of KINDS; sticky
  keywords: Set<string>;
}

const KINDS: TokenKind[] = ["comment", "string", "number", "keyword"]; // "keyword": a word, looked up
const LONGEST = 60_000; // characters; longer code is not coloured

const STRINGS = String.raw`"(?:[^"\\\n]|\\[^])*"?|'(?:[^'\\\n]|\\[^])*'?`;
const NUMBERS = String.raw`\b(?:0[xXbBoO][\da-fA-F_']+|\d[\d_']*(?:\.\d+)?(?:[eE][+-]?\d+)?)\w*`;
const WORDS = String.raw`[A-Za-z_$][\w$]*`;

function language(comment: string, keywords: string, strings = STRINGS, words = WORDS, flags = "y"): Language {
  return {
    rules: new RegExp(`(${comment})|(${strings})|(${NUMBERS})|(${words})`, flags),
    keywords: new Set(keywords.split(" ")),
  };
}

const SLASHES = String.raw`\/\/[^\n]*|\/\*[^]*?(?:\*\/|$)`;
const HASH = "#[^\\n]*";
const TEMPLATE = STRINGS + "|`(?:[^`\\\\]|\\\\[^])*`?";
const TRIPLE = String.raw`"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|` + STRINGS;

const C_WORDS =
  "alignas auto bool break case catch char class concept const constexpr continue co_await co_return co_yield default " +
  "delete do double else enum explicit extern false final float for friend if inline int int32_t int64_t long mutable " +
  "namespace new noexcept nullptr operator override private protected public requires return short signed size_t sizeof " +
  "static static_cast struct switch template this throw true try typedef typename uint32_t uint64_t uint8_t union unsigned " +
  "using virtual void volatile while __global__ __device__ __shared__";
const SCRIPT_WORDS =
  "abstract any as async await boolean break case catch class const continue default delete do else enum export extends " +
  "false finally for from function get if implements import in instanceof interface keyof let new null number of private " +
  "protected public readonly return set static string super switch this throw true try type typeof undefined unknown var " +
  "void while yield";
const PYTHON_WORDS =
  "and as assert async await break class continue def del elif else except False finally for from global if import in is " +
  "lambda match None nonlocal not or pass raise return self True try while with yield";
const JVM_WORDS =
  "abstract boolean break byte case catch char class const continue data default do double else enum extends false final " +
  "finally float for fun if implements import in int interface internal is let long namespace new null object open " +
  "override package private protected public return sealed short static string struct super switch this throw true try " +
  "typealias using val var void when while";
const RUST_WORDS =
  "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub " +
  "ref return self Self static struct super trait true type unsafe use where while bool char f32 f64 i32 i64 str String " +
  "u32 u64 u8 usize";
const GO_WORDS =
  "bool break byte case chan const continue default defer else error fallthrough false float64 for func go goto if import " +
  "int int64 interface map nil package range return rune select string struct switch true type uint64 var";
const SHELL_WORDS =
  "case cd do done echo elif else esac exec exit export fi for function if in local read return set shift source sudo then " +
  "trap unset until while";
const SQL_WORDS =
  "add all alter and as asc between by case create delete desc distinct drop else end exists from group having in index " +
  "insert into is join key left like limit not null on or order outer primary right select set table then union unique " +
  "update values view when where with";

const FAMILIES: [string, () => Language][] = [
  ["c cc cpp cxx h hpp cu cuda c++ glsl metal", () => language(`${SLASHES}|^#[^\\n]*`, C_WORDS, STRINGS, WORDS, "my")],
  ["js javascript jsx mjs ts typescript tsx", () => language(SLASHES, SCRIPT_WORDS, TEMPLATE)],
  ["py python python3 starlark", () => language(HASH, PYTHON_WORDS, TRIPLE)],
  ["java kotlin kt scala cs csharp swift dart php", () => language(SLASHES, JVM_WORDS)],
  ["rs rust", () => language(SLASHES, RUST_WORDS, String.raw`"(?:[^"\\]|\\[^])*"?|'(?:[^'\\\n]|\\.)'`)],
  ["go golang", () => language(SLASHES, GO_WORDS, TEMPLATE)],
  ["sh bash shell zsh console dockerfile makefile make", () => language(`(?<![^\\s])${HASH}`, SHELL_WORDS)],
  ["json jsonc json5", () => language(SLASHES, "true false null")],
  ["yaml yml toml ini conf", () => language(`(?<![^\\s])${HASH}`, "true false null yes no on off", TRIPLE)],
  ["sql", () => language(String.raw`--[^\n]*|\/\*[^]*?(?:\*\/|$)`, SQL_WORDS, STRINGS, WORDS)],
  [
    "html xml svg vue",
    () => language("<!--[^]*?(?:-->|$)", "", STRINGS, String.raw`<\/?[A-Za-z][\w:-]*|\/?>`),
  ],
  ["css scss", () => language(String.raw`\/\*[^]*?(?:\*\/|$)`, "", STRINGS, String.raw`@[\w-]+|--?[\w-]+|[\w-]+(?=\s*:)`)],
];

const known = new Map<string, Language>();

function languageOf(name: string): Language | null {
  const wanted = name.toLowerCase();
  const found = known.get(wanted);
  if (found !== undefined) return found;
  const family = FAMILIES.find(([names]) => names.split(" ").includes(wanted));
  if (family === undefined) return null;
  const made = family[1]();
  known.set(wanted, made);
  return made;
}

/** `code` in pieces; together they are `code` again. */
export function highlight(code: string, name: string): Token[] {
  if (/^(diff|patch)$/i.test(name)) return highlightDiff(code);
  const language = code.length > LONGEST ? null : languageOf(name);
  if (language === null) return [{ kind: "", text: code }];
  const { rules, keywords } = language;
  const ignoreCase = /^sql$/i.test(name);
  const tokens: Token[] = [];
  let plain = 0;
  let at = 0;
  while (at < code.length) {
    rules.lastIndex = at;
    const match = rules.exec(code);
    if (match === null || match[0] === "") {
      ++at;
      continue;
    }
    const text = match[0];
    let kind = KINDS[match.slice(1).findIndex((group) => group !== undefined)] ?? "";
    if (kind === "keyword" && keywords.size > 1 && !keywords.has(ignoreCase ? text.toLowerCase() : text)) {
      kind = code[at + text.length] === "(" ? "name" : "";
    }
    if (kind !== "") {
      if (plain < at) tokens.push({ kind: "", text: code.slice(plain, at) });
      tokens.push({ kind, text });
      plain = at + text.length;
    }
    at += text.length;
  }
  if (plain < code.length) tokens.push({ kind: "", text: code.slice(plain) });
  return tokens;
}

function highlightDiff(code: string): Token[] {
  return code.split(/(?<=\n)/).map((line) => ({
    kind: line.startsWith("+") ? "string" : line.startsWith("-") ? "keyword" : line.startsWith("@@") ? "comment" : "",
    text: line,
  }));
}
