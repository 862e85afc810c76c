// The server's endpoints. Addresses are relative, so that the page also works behind a proxy that serves it from a folder.

import { SseParser } from "./sse";

export interface Model {
  id: string;
  max_model_len?: number;
}

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  prompt_tokens_details?: { cached_tokens?: number } | null;
  completion_tokens_details?: { reasoning_tokens?: number } | null;
}

export interface CallDelta {
  index: number;
  id?: string;
  function?: { name?: string; arguments?: string };
}

export interface ChatChunk {
  model?: string;
  choices?: {
    delta?: { content?: string | null; reasoning_content?: string | null; tool_calls?: CallDelta[] };
    finish_reason?: string | null;
  }[];
  usage?: Usage | null;
  error?: { message?: string; code?: string | null };
}

/** A tier behind the KV pool: host, disk, shared or redis. */
export interface KvTier {
  name: string;
  up: boolean;
  records: number;
  bytes: number;
  budget_bytes: number; // 0: none
  cached_tokens: number;
  queued_bytes: number;
}

/** What GET /load says about the engine. */
export interface Load {
  running: number;
  waiting: number;
  kv_blocks: number;
  kv_blocks_free: number;
  kv_blocks_cached: number;
  kv_tiers: KvTier[];
  generated_tokens: number;
  prompt_tokens: number;
  cached_tokens: number;
  drafts_verified: number;
  drafts_accepted: number;
  decode_steps: number;
  draining: boolean;
}

/** The server refused, failed or could not be reached (status 0). The message is its own. */
export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number,
  ) {
    super(message);
  }
}

const POLL_DEADLINE_MS = 5000;

export class Api {
  key = "";

  async models(): Promise<Model[]> {
    const list = (await this.getJson("v1/models")) as { data?: Model[] };
    return list.data ?? [];
  }

  async version(): Promise<string> {
    return ((await this.getJson("version")) as { version?: string }).version ?? "";
  }

  async load(): Promise<Load> {
    return (await this.getJson("load")) as Load;
  }

  /** Streams an answer; returns when the server has said that it is complete. Aborting `signal` rejects with AbortError. */
  async chat(body: object, onChunk: (chunk: ChatChunk) => void, signal: AbortSignal): Promise<void> {
    const response = await this.fetch("v1/chat/completions", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
      signal,
    });
    if (response.body === null) throw new ApiError("the server sent no answer", response.status);
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    const parser = new SseParser();
    try {
      for (;;) {
        const { done, value } = await readOrExplain(reader);
        for (const event of parser.push(decoder.decode(value, { stream: !done }))) {
          if (event.data === "[DONE]") return;
          onChunk(parseChunk(event.data));
        }
        if (done) throw new ApiError("the connection ended before the answer did", 0);
      }
    } finally {
      void drain(reader);
    }
  }

  private async getJson(path: string): Promise<unknown> {
    const response = await this.fetch(path, { signal: AbortSignal.timeout(POLL_DEADLINE_MS), cache: "no-store" });
    return response.json();
  }

  private async fetch(path: string, options: RequestInit): Promise<Response> {
    const headers = new Headers(options.headers);
    if (this.key !== "") headers.set("Authorization", `Bearer ${this.key}`);
    let response: Response;
    try {
      response = await fetch(path, { ...options, headers });
    } catch (problem) {
      throw explained(problem);
    }
    if (!response.ok) throw new ApiError(await errorMessage(response), response.status);
    return response;
  }
}

/** Takes what is left, so that the connection can be used again and the server sees no client leave. */
async function drain(reader: ReadableStreamDefaultReader<Uint8Array>): Promise<void> {
  try {
    while (!(await reader.read()).done);
  } catch {
    // It was stopped or broke: there is nothing to take.
  }
}

async function readOrExplain(
  reader: ReadableStreamDefaultReader<Uint8Array>,
): Promise<{ done: boolean; value?: Uint8Array | undefined }> {
  try {
    return await reader.read();
  } catch (problem) {
    throw explained(problem, "the connection to the server broke");
  }
}

/** Browsers say no more than "Failed to fetch"; aborts stay as they are. */
function explained(problem: unknown, message = "the server cannot be reached"): unknown {
  if (problem instanceof DOMException && problem.name === "AbortError") return problem;
  if (problem instanceof DOMException && problem.name === "TimeoutError") {
    return new ApiError("the server does not answer", 0);
  }
  return new ApiError(message, 0);
}

function parseChunk(data: string): ChatChunk {
  let chunk: ChatChunk;
  try {
    chunk = JSON.parse(data) as ChatChunk;
  } catch {
    throw new ApiError("the server sent an event that is no JSON", 0);
  }
  if (chunk.error) throw new ApiError(chunk.error.message ?? "the server failed", 500);
  return chunk;
}

async function errorMessage(response: Response): Promise<string> {
  let message = "";
  try {
    const body = JSON.parse(await response.text()) as { error?: { message?: string } | string };
    message = (typeof body.error === "string" ? body.error : body.error?.message) ?? "";
  } catch {
    // A proxy may answer with a page of its own; the status says enough.
  }
  if (message === "") message = `the server answered ${response.status} ${response.statusText}`.trim();
  const seconds = response.headers.get("Retry-After");
  return seconds === null ? message : `${message} (again in ${seconds} s)`;
}
