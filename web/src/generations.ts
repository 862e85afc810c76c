// The answers that are being written, at most one in a conversation. They go on while another conversation is shown.

import { Answer } from "./answer";
import { ApiError, type Api } from "./api";
import { chatRequest } from "./chat_request";
import { addTurn, type Conversation, type Turn } from "./conversation";

export interface Generation {
  conversation: Conversation;
  answer: Answer;
}

export interface GenerationListener {
  onNews(generation: Generation): void;
  /** `status` is that of the HTTP error which ended it, 0 for all else. */
  onEnd(generation: Generation, status: number): void;
}

export class Generations {
  private readonly running = new Map<string, Generation & { abort: AbortController }>();

  constructor(
    private readonly api: Api,
    private readonly listener: GenerationListener,
  ) {}

  of(conversationId: string): Generation | null {
    return this.running.get(conversationId) ?? null;
  }

  all(): Generation[] {
    return [...this.running.values()];
  }

  /** Answers `parent`, a turn of the shown path, unless an answer of this conversation is under way. */
  start(conversation: Conversation, parent: Turn, model: string): void {
    if (this.running.has(conversation.id)) return;
    const body = chatRequest(conversation, parent, model);
    const turn = addTurn(conversation, parent.id, { role: "assistant", content: "" });
    const answer = new Answer(turn, model, () => performance.now());
    const generation = { conversation, answer, abort: new AbortController() };
    this.running.set(conversation.id, generation);
    void this.run(generation, body);
  }

  stop(conversationId: string): void {
    this.running.get(conversationId)?.abort.abort();
  }

  private async run(generation: Generation & { abort: AbortController }, body: object): Promise<void> {
    const { answer, abort } = generation;
    let status = 0;
    try {
      await this.api.chat(
        body,
        (chunk) => {
          answer.add(chunk);
          this.listener.onNews(generation);
        },
        abort.signal,
      );
      answer.end("done");
    } catch (problem) {
      if (abort.signal.aborted) {
        answer.end("stopped");
      } else {
        answer.end("failed", problem instanceof Error ? problem.message : String(problem));
        status = problem instanceof ApiError ? problem.status : 0;
      }
    }
    this.running.delete(generation.conversation.id);
    this.listener.onEnd(generation, status);
  }
}
