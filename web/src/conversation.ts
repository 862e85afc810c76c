// A conversation is a tree of turns. Editing a message or asking again adds a sibling; what is shown and sent is the path
// of selected children from the root.

import type { Usage } from "./api";
import type { Settings } from "./settings";

export interface ToolCall {
  id: string;
  name: string;
  arguments: string;
}

/** How an answer came about. */
export interface AnswerInfo {
  model: string;
  state: "running" | "done" | "stopped" | "failed";
  finish?: string; // the server's finish_reason
  error?: string;
  firstTokenMs?: number; // from sending the request
  reasoningMs?: number; // from the first token of the reasoning to its end
  totalMs?: number;
  usage?: Usage;
}

export type Role = "root" | "user" | "assistant" | "tools";

export interface Turn {
  id: string;
  parent: string; // "" for the root
  children: string[];
  selected: string; // of the children; "" when there is none
  role: Role;
  content: string;
  reasoning?: string; // assistant
  calls?: ToolCall[]; // assistant
  results?: Record<string, string>; // tools: text by the id of the call
  info?: AnswerInfo; // assistant
}

export interface Conversation {
  id: string;
  title: string;
  created: number; // ms since 1970
  updated: number;
  settings: Settings;
  turns: Record<string, Turn>;
}

export const ROOT = "root";

/** crypto.randomUUID exists on secure origins only; the page is also used over plain HTTP in a local network. */
export function newId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(10)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function newConversation(settings: Settings, now: number): Conversation {
  const root: Turn = { id: ROOT, parent: "", children: [], selected: "", role: "root", content: "" };
  return { id: newId(), title: "", created: now, updated: now, settings, turns: { [ROOT]: root } };
}

/** The shown turns, first one first, without the root. */
export function pathOf(conversation: Conversation): Turn[] {
  const path: Turn[] = [];
  let turn = conversation.turns[ROOT];
  while (turn !== undefined && turn.selected !== "") {
    turn = conversation.turns[turn.selected];
    if (turn !== undefined) path.push(turn);
  }
  return path;
}

/** The last shown turn; the root when there is none. */
export function leafOf(conversation: Conversation): Turn {
  return pathOf(conversation).at(-1) ?? turnOf(conversation, ROOT);
}

export function turnOf(conversation: Conversation, id: string): Turn {
  const turn = conversation.turns[id];
  if (turn === undefined) throw new Error(`no turn ${id}`);
  return turn;
}

/** Adds a turn behind `parent` and selects it. */
export function addTurn(
  conversation: Conversation,
  parent: string,
  turn: Omit<Turn, "id" | "parent" | "children" | "selected">,
): Turn {
  const above = turnOf(conversation, parent);
  const added: Turn = { ...turn, id: newId(), parent, children: [], selected: "" };
  conversation.turns[added.id] = added;
  above.children.push(added.id);
  above.selected = added.id;
  if (conversation.title === "" && turn.role === "user") conversation.title = titleFrom(turn.content);
  return added;
}

/** Place of a turn among its siblings, counted from 0. */
export function placeOf(conversation: Conversation, turn: Turn): { index: number; count: number } {
  const siblings = turnOf(conversation, turn.parent).children;
  return { index: siblings.indexOf(turn.id), count: siblings.length };
}

/** Shows the sibling `step` places further; stays where there is none. */
export function selectSibling(conversation: Conversation, turn: Turn, step: number): void {
  const above = turnOf(conversation, turn.parent);
  const sibling = above.children[above.children.indexOf(turn.id) + step];
  if (sibling !== undefined) above.selected = sibling;
}

/** Takes away a turn without children, for an attempt that gave nothing. */
export function removeLeaf(conversation: Conversation, turn: Turn): void {
  if (turn.children.length > 0 || turn.role === "root") return;
  const above = turnOf(conversation, turn.parent);
  above.children = above.children.filter((id) => id !== turn.id);
  above.selected = above.children.at(-1) ?? "";
  delete conversation.turns[turn.id];
}

const TITLE_LENGTH = 60;

export function titleFrom(content: string): string {
  const line = content.trim().split("\n", 1)[0] ?? "";
  const characters = Array.from(line);
  return characters.length > TITLE_LENGTH ? `${characters.slice(0, TITLE_LENGTH - 1).join("").trimEnd()}…` : line;
}
