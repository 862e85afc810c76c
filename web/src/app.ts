// The page: joins store, server and views.

import { Api, ApiError, type Model } from "./api";
import { Composer } from "./composer";
import { addTurn, leafOf, newConversation, pathOf, removeLeaf, selectSibling, turnOf, type Conversation, type Turn } from "./conversation";
import { h, iconButton } from "./dom";
import { EmptyView } from "./empty_view";
import { EnginePanel } from "./engine_panel";
import { contextSize, count } from "./format";
import { Generations, type Generation } from "./generations";
import { KeyView } from "./key_view";
import { parseTools, type Settings, type Thinking } from "./settings";
import { SettingsView } from "./settings_view";
import { Sidebar } from "./sidebar";
import { Store, browserStorage } from "./store";
import { toggleTheme } from "./theme";
import { ThreadView } from "./thread_view";

const SAVE_PERIOD_MS = 1000;
const CLOCK_PERIOD_MS = 200; // of the running times

export class App {
  private readonly api = new Api();
  private readonly notice = h("p", { class: "notice", role: "status", hidden: true });
  private readonly store = new Store(browserStorage(), (problem) => this.showNotice(problem));
  private readonly generations = new Generations(this.api, {
    onNews: (generation) => this.onNews(generation),
    onEnd: (generation, status) => this.onEnd(generation, status),
  });
  private readonly live = h("div", { class: "off-screen", "aria-live": "polite" });
  private readonly title = h("h1", { class: "title" });
  private readonly modelPlace = h("span", { class: "model" });
  private readonly preamble = h("button", { type: "button", class: "preamble", onclick: () => this.openSettings() });
  private readonly empty = new EmptyView((prompt) => this.send(prompt));
  private readonly panel = new EnginePanel(() => this.api.load());
  private readonly thread: ThreadView;
  private readonly composer: Composer;
  private readonly sidebar: Sidebar;
  private readonly settings: SettingsView;
  private readonly keys: KeyView;
  private readonly scrim = h("div", { class: "scrim", onclick: () => this.setDrawer(false) });
  private readonly menu: HTMLButtonElement;
  private readonly narrow = window.matchMedia("(max-width: 760px)");

  private current: Conversation;
  private models: Model[] = [];
  private model = "";
  private version = "";
  private lastSave = 0;
  private frame = 0;
  private retryAfterKey: (() => void) | null = null;

  constructor() {
    this.api.key = this.store.apiKey();
    this.current = this.store.get(location.hash.slice(1)) ?? newConversation(this.store.defaults(), Date.now());
    this.thread = new ThreadView(
      {
        edit: (turn, text) => this.ask(turnOf(this.current, turn.parent), text),
        regenerate: (turn) => this.regenerate(turn),
        switchBranch: (turn, step) => this.switchBranch(turn, step),
        sendResults: (turn, results) => {
          this.answer(addTurn(this.current, turn.id, { role: "tools", content: "", results }));
        },
      },
      this.empty.element,
      this.preamble,
    );
    this.composer = new Composer({
      send: (text) => this.send(text),
      stop: () => this.stop(),
      setThinking: (thinking) => this.setThinking(thinking),
    });
    this.sidebar = new Sidebar(
      {
        create: () => this.open(newConversation(this.store.defaults(), Date.now())),
        open: (id) => this.open(this.store.get(id) ?? this.current),
        rename: (id, title) => this.rename(id, title),
        remove: (id) => this.remove(id),
        download: (id) => this.download(id),
        close: () => this.setDrawer(false),
      },
      this.panel.element,
    );
    this.settings = new SettingsView((settings) => this.applySettings(settings), () => this.openKeys(""));
    this.keys = new KeyView((key, keep) => this.useKey(key, keep));
    this.menu = iconButton("menu", "Conversations and engine", () => this.setDrawer(true), "drawer-only");
    this.menu.setAttribute("aria-controls", "sidebar");
  }

  start(): void {
    document.body.append(
      h("a", { class: "skip", href: "#message", onclick: (event: Event) => this.skip(event) }, "Skip to the message field"),
      h(
        "div",
        { class: "app" },
        this.sidebar.element,
        this.scrim,
        h(
          "main",
          {},
          h(
            "header",
            { class: "bar" },
            this.menu,
            this.title,
            this.modelPlace,
            iconButton("theme", "Light or dark", toggleTheme),
            iconButton("sliders", "Settings", () => this.openSettings()),
          ),
          this.notice,
          this.thread.element,
          this.composer.element,
        ),
      ),
      this.settings.element,
      this.keys.element,
      this.live,
    );
    document.addEventListener("keydown", (event) => this.onKey(event));
    window.addEventListener("pagehide", () => this.generations.all().forEach(({ conversation }) => this.store.save(conversation)));
    window.addEventListener("storage", (event) => this.onStorage(event.key));
    this.narrow.addEventListener("change", () => this.setDrawer(false));
    this.setDrawer(false);
    this.render();
    this.focusComposer();
    this.panel.start();
    void this.meetServer();
  }

  // The server

  private async meetServer(): Promise<void> {
    try {
      this.models = await this.api.models();
      if (!this.models.some(({ id }) => id === this.model)) this.model = this.models[0]?.id ?? "";
      this.version = await this.api.version();
    } catch (problem) {
      if (problem instanceof ApiError && problem.status === 401) this.openKeys(problem.message);
    }
    this.renderModel();
    this.renderContext();
  }

  private useKey(key: string, keep: boolean): void {
    this.api.key = key;
    this.store.saveApiKey(keep ? key : "");
    const retry = this.retryAfterKey;
    this.retryAfterKey = null;
    void this.meetServer().then(() => {
      this.panel.poke();
      retry?.();
    });
  }

  private openKeys(reason: string): void {
    this.keys.open(this.api.key, this.store.apiKey() !== "", reason);
  }

  // What the user does

  private send(text: string): void {
    const leaf = leafOf(this.current);
    if (this.generations.of(this.current.id) === null) this.ask(leaf, text);
  }

  private ask(parent: Turn, text: string): void {
    this.answer(addTurn(this.current, parent.id, { role: "user", content: text }));
  }

  private answer(parent: Turn): void {
    const conversation = this.current;
    this.render();
    if (this.model === "") {
      void this.meetServer().then(() => this.generate(conversation, parent));
    } else {
      this.generate(conversation, parent);
    }
  }

  private generate(conversation: Conversation, parent: Turn): void {
    this.generations.start(conversation, parent, this.model);
    conversation.updated = Date.now();
    this.store.save(conversation);
    this.announce("Answering");
    this.render();
    this.thread.followEnd();
    this.keepClock();
  }

  private regenerate(turn: Turn): void {
    const parent = turnOf(this.current, turn.parent);
    if (turn.info?.state === "failed" && turn.content === "") removeLeaf(this.current, turn);
    this.answer(parent);
  }

  private stop(): void {
    this.generations.stop(this.current.id);
  }

  private switchBranch(turn: Turn, step: number): void {
    selectSibling(this.current, turn, step);
    this.store.save(this.current);
    this.render();
  }

  private setThinking(thinking: Thinking): void {
    this.applySettings({ ...this.current.settings, thinking });
  }

  private applySettings(settings: Settings): void {
    this.current.settings = settings;
    this.store.saveDefaults(settings);
    if (this.store.get(this.current.id) !== undefined) this.store.save(this.current);
    this.render();
  }

  private openSettings(): void {
    this.settings.open(this.current.settings);
  }

  private open(conversation: Conversation): void {
    this.setDrawer(false);
    this.current = conversation;
    const known = this.store.get(conversation.id) !== undefined;
    history.replaceState(null, "", known ? `#${conversation.id}` : location.pathname + location.search);
    this.thread.reset();
    this.render();
    this.focusComposer();
  }

  private rename(id: string, title: string): void {
    const conversation = this.store.get(id);
    if (conversation === undefined) return;
    conversation.title = title;
    this.store.save(conversation);
    this.render();
  }

  private remove(id: string): void {
    this.generations.stop(id);
    this.store.remove(id);
    if (id === this.current.id) {
      this.open(newConversation(this.store.defaults(), Date.now()));
    } else {
      this.render();
    }
  }

  private download(id: string): void {
    const conversation = this.store.get(id);
    if (conversation === undefined) return;
    const text = JSON.stringify(conversation, null, 2);
    const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    const name = (conversation.title || "conversation").replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 60);
    h("a", { href: url, download: `${name}.json` }).click();
    URL.revokeObjectURL(url);
  }

  /** Not on a phone, where the keyboard would hide the page. */
  private focusComposer(): void {
    if (!this.narrow.matches) this.composer.focus();
  }

  private skip(event: Event): void {
    event.preventDefault();
    this.composer.focus();
  }

  private onKey(event: KeyboardEvent): void {
    if (event.key !== "Escape" || document.querySelector("dialog[open]") !== null) return;
    if (document.body.classList.contains("drawer-open")) {
      this.setDrawer(false);
    } else {
      this.stop();
    }
  }

  // What happens by itself

  private onNews(generation: Generation): void {
    const now = Date.now();
    if (now - this.lastSave > SAVE_PERIOD_MS) {
      this.lastSave = now;
      this.saveIfKept(generation.conversation);
    }
    if (generation.conversation === this.current) this.schedule();
  }

  private onEnd(generation: Generation, status: number): void {
    const { conversation, answer } = generation;
    conversation.updated = Date.now();
    this.saveIfKept(conversation);
    this.announce(answer.info.state === "done" ? "The answer is complete" : `The answer was ${answer.info.state}`);
    if (status === 401) {
      this.retryAfterKey = () => {
        if (conversation === this.current && leafOf(conversation) === answer.turn) this.regenerate(answer.turn);
      };
      this.openKeys(answer.info.error ?? "");
    }
    this.render();
    this.panel.poke();
  }

  /** Not what was deleted while its answer was being written. */
  private saveIfKept(conversation: Conversation): void {
    if (this.store.get(conversation.id) === conversation) this.store.save(conversation);
  }

  private onStorage(key: string | null): void {
    if (!this.store.refresh(key, (id) => this.generations.of(id) !== null)) return;
    const kept = this.store.get(this.current.id);
    if (kept !== undefined && kept !== this.current && this.generations.of(kept.id) === null) {
      this.current = kept;
      this.thread.reset();
    }
    this.render();
  }

  /** Waiting and thinking show how long they take. */
  private keepClock(): void {
    const clock = window.setInterval(() => {
      if (this.generations.of(this.current.id) !== null) this.schedule();
      if (this.generations.all().length === 0) window.clearInterval(clock);
    }, CLOCK_PERIOD_MS);
  }

  private schedule(): void {
    if (this.frame !== 0) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      const generation = this.generations.of(this.current.id);
      if (generation !== null) this.thread.renderAnswer(this.current, generation.answer);
    });
  }

  // What is shown

  private render(): void {
    const generation = this.generations.of(this.current.id);
    this.thread.render(this.current, generation?.answer ?? null);
    this.composer.setRunning(generation !== null);
    this.composer.setThinking(this.current.settings.thinking);
    this.sidebar.render(this.store.list(), this.current.id, (id) => this.generations.of(id) !== null);
    const title = this.current.title || "New conversation";
    this.title.textContent = title;
    document.title = `${title} · DeepInfer`;
    if (this.store.get(this.current.id) !== undefined) history.replaceState(null, "", `#${this.current.id}`);
    this.renderPreamble();
    this.renderContext();
  }

  private renderPreamble(): void {
    const { system, tools } = this.current.settings;
    const parsed = parseTools(tools);
    const parts: string[] = [];
    if (system.trim() !== "") parts.push(`System: ${system.trim()}`);
    if ("tools" in parsed && parsed.tools.length > 0) parts.push(`Tools: ${parsed.tools.length}`);
    this.preamble.textContent = parts.join(" · ");
    this.preamble.hidden = parts.length === 0;
  }

  private renderModel(): void {
    const longest = this.models.find(({ id }) => id === this.model)?.max_model_len;
    const facts = [longest === undefined ? "" : `context ${contextSize(longest)}`, this.version && `DeepInfer ${this.version}`];
    this.empty.set(this.model || "DeepInfer", facts.filter(Boolean).join(" · "));
    if (this.models.length < 2) return this.modelPlace.replaceChildren(this.model);
    const choose = h(
      "select",
      {
        "aria-label": "Model",
        onchange: () => {
          this.model = choose.value;
          this.renderModel();
        },
      },
      ...this.models.map(({ id }) => h("option", { value: id, selected: id === this.model }, id)),
    );
    this.modelPlace.replaceChildren(choose);
  }

  /** How full the context is, after the last answer that was counted. */
  private renderContext(): void {
    const longest = this.models.find(({ id }) => id === this.model)?.max_model_len;
    const usage = pathOf(this.current).findLast((turn) => turn.info?.usage !== undefined)?.info?.usage;
    if (longest === undefined || usage === undefined) return this.composer.setContext("");
    this.composer.setContext(`${count(usage.prompt_tokens + usage.completion_tokens)} of ${contextSize(longest)} context`);
  }

  private showNotice(problem: string): void {
    this.notice.textContent = problem;
    this.notice.hidden = problem === "";
  }

  private announce(text: string): void {
    this.live.textContent = text;
  }

  private setDrawer(open: boolean): void {
    document.body.classList.toggle("drawer-open", open);
    this.sidebar.element.inert = this.narrow.matches && !open;
    this.menu.setAttribute("aria-expanded", String(open));
    if (open) {
      this.sidebar.element.querySelector("button")?.focus();
      this.panel.poke();
    } else if (this.narrow.matches && this.sidebar.element.contains(document.activeElement)) {
      this.menu.focus();
    }
  }
}
