// Puts the chunks of a streamed answer together in a turn, and takes its times.

import type { ChatChunk } from "./api";
import type { AnswerInfo, Turn } from "./conversation";

export class Answer {
  readonly info: AnswerInfo;
  private readonly begin: number;
  private reasoningBegin: number | null = null;

  constructor(
    readonly turn: Turn,
    model: string,
    private readonly now: () => number,
  ) {
    this.begin = now();
    this.info = { model, state: "running" };
    turn.info = this.info;
  }

  add(chunk: ChatChunk): void {
    if (chunk.model) this.info.model = chunk.model;
    if (chunk.usage) this.info.usage = chunk.usage;
    const choice = chunk.choices?.[0];
    if (choice === undefined) return;
    const { content, reasoning_content: reasoning, tool_calls: calls } = choice.delta ?? {};
    if (reasoning) {
      this.noteToken();
      this.reasoningBegin ??= this.now();
      this.turn.reasoning = (this.turn.reasoning ?? "") + reasoning;
    }
    if (content) {
      this.noteToken();
      this.endReasoning();
      this.turn.content += content;
    }
    for (const call of calls ?? []) {
      this.noteToken();
      this.endReasoning();
      const list = (this.turn.calls ??= []);
      const known = (list[call.index] ??= { id: "", name: "", arguments: "" });
      if (call.id) known.id = call.id;
      known.name += call.function?.name ?? "";
      known.arguments += call.function?.arguments ?? "";
    }
    if (choice.finish_reason) this.info.finish = choice.finish_reason;
  }

  end(state: "done" | "stopped" | "failed", error?: string): void {
    this.endReasoning();
    this.info.state = state;
    this.info.totalMs = this.elapsed();
    if (error !== undefined) this.info.error = error;
  }

  elapsed(): number {
    return this.now() - this.begin;
  }

  /** How long it has been thinking, null when it does not. */
  thinkingFor(): number | null {
    return this.reasoningBegin === null || this.info.reasoningMs !== undefined ? null : this.now() - this.reasoningBegin;
  }

  private noteToken(): void {
    this.info.firstTokenMs ??= this.elapsed();
  }

  private endReasoning(): void {
    if (this.reasoningBegin !== null) this.info.reasoningMs ??= this.now() - this.reasoningBegin;
  }
}

/** Tokens a second after the first one; null when there is nothing to divide. */
export function decodeRate(info: AnswerInfo): number | null {
  const tokens = (info.usage?.completion_tokens ?? 0) - 1;
  const ms = (info.totalMs ?? 0) - (info.firstTokenMs ?? 0);
  return info.firstTokenMs === undefined || tokens < 1 || ms <= 0 ? null : (tokens * 1000) / ms;
}
