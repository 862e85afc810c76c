// Conversations in the browser's storage, one entry each, so that two tabs on different conversations do not disturb each
// other. Without storage (a private window, a full disk) everything works until the page is closed.

import { ROOT, type Conversation, type Turn } from "./conversation";
import { defaultSettings, settingsFrom, type Settings } from "./settings";

const PREFIX = "deepinfer.conversation.";
const DEFAULTS = "deepinfer.settings";
const KEY = "deepinfer.api_key";

export type StorageLike = Pick<Storage, "length" | "key" | "getItem" | "setItem" | "removeItem">;

export class Store {
  private readonly conversations = new Map<string, Conversation>();

  /** `storage` may be null; `onProblem` hears of a write that failed, and of the next one that works with "". */
  constructor(
    private readonly storage: StorageLike | null,
    private readonly onProblem: (message: string) => void,
  ) {
    for (const id of this.storedIds()) this.read(id);
  }

  /** The latest first. */
  list(): Conversation[] {
    return [...this.conversations.values()].sort((a, b) => b.updated - a.updated || (a.id < b.id ? -1 : 1));
  }

  get(id: string): Conversation | undefined {
    return this.conversations.get(id);
  }

  save(conversation: Conversation): void {
    this.conversations.set(conversation.id, conversation);
    this.write(PREFIX + conversation.id, JSON.stringify(conversation));
  }

  remove(id: string): void {
    this.conversations.delete(id);
    this.storage?.removeItem(PREFIX + id);
  }

  /** Takes over what another tab wrote under `key` (null: all). Conversations in `busy` are this tab's. */
  refresh(key: string | null, busy: (id: string) => boolean): boolean {
    if (key !== null && !key.startsWith(PREFIX)) return false;
    const ids = key === null ? [...this.conversations.keys()] : [key.slice(PREFIX.length)];
    for (const id of ids) {
      if (busy(id)) continue;
      this.conversations.delete(id);
      this.read(id);
    }
    return ids.length > 0;
  }

  /** Settings of the next conversation. */
  defaults(): Settings {
    try {
      return settingsFrom(JSON.parse(this.storage?.getItem(DEFAULTS) ?? "null"));
    } catch {
      return defaultSettings();
    }
  }

  saveDefaults(settings: Settings): void {
    this.write(DEFAULTS, JSON.stringify(settings));
  }

  apiKey(): string {
    return this.storage?.getItem(KEY) ?? "";
  }

  /** Empty forgets it. */
  saveApiKey(key: string): void {
    if (key === "") {
      this.storage?.removeItem(KEY);
    } else {
      this.write(KEY, key);
    }
  }

  private storedIds(): string[] {
    const ids: string[] = [];
    for (let i = 0; i < (this.storage?.length ?? 0); ++i) {
      const key = this.storage?.key(i);
      if (key?.startsWith(PREFIX)) ids.push(key.slice(PREFIX.length));
    }
    return ids;
  }

  private read(id: string): void {
    const text = this.storage?.getItem(PREFIX + id) ?? null;
    if (text === null) return;
    try {
      const conversation = conversationFrom(JSON.parse(text));
      if (conversation !== null && conversation.id === id) this.conversations.set(id, conversation);
    } catch {
      // Damaged: it stays in the storage and is not shown.
    }
  }

  private write(key: string, value: string): void {
    if (this.storage === null) return;
    try {
      this.storage.setItem(key, value);
      this.onProblem("");
    } catch {
      this.onProblem("The browser's storage is full: new messages are lost when the page closes. Delete conversations.");
    }
  }
}

/** A stored conversation, checked; null when it is none. */
export function conversationFrom(value: unknown): Conversation | null {
  const from = value as Partial<Conversation> | null;
  if (typeof from !== "object" || from === null || typeof from.id !== "string") return null;
  if (typeof from.turns !== "object" || from.turns === null || !isTree(from.turns)) return null;
  const turns = from.turns;
  for (const turn of Object.values(turns)) {
    // The page was closed while it was being written.
    if (turn.info?.state === "running") turn.info.state = "stopped";
  }
  return {
    id: from.id,
    title: typeof from.title === "string" ? from.title : "",
    created: typeof from.created === "number" ? from.created : 0,
    updated: typeof from.updated === "number" ? from.updated : 0,
    settings: settingsFrom(from.settings),
    turns,
  };
}

/** Every turn hangs below the root exactly once, and selections are children. */
function isTree(turns: Record<string, Turn>): boolean {
  const reached = new Set<string>();
  const waiting = [ROOT];
  for (let id = waiting.pop(); id !== undefined; id = waiting.pop()) {
    const turn = Object.hasOwn(turns, id) ? turns[id] : undefined;
    if (turn === undefined || reached.has(id) || turn.id !== id || typeof turn.content !== "string") return false;
    if (!Array.isArray(turn.children) || (turn.selected === "") !== (turn.children.length === 0)) return false;
    if (turn.selected !== "" && !turn.children.includes(turn.selected)) return false;
    if (turn.children.some((child) => turns[child]?.parent !== id)) return false;
    reached.add(id);
    waiting.push(...turn.children);
  }
  return reached.size === Object.keys(turns).length;
}

/** The browser's storage, or null where there is none or it may not be used. */
export function browserStorage(): Storage | null {
  try {
    const storage = window.localStorage;
    storage.setItem("deepinfer.probe", "1");
    storage.removeItem("deepinfer.probe");
    return storage;
  } catch {
    return null;
  }
}
