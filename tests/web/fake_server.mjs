// A server whose answers the test writes piece by piece, so that what the page shows in between can be checked without
// waiting for time to pass. It sends the page with the headers of src/server/api_service.cc.
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";

const PAGE = fileURLToPath(new URL("../../src/server/web/index.html", import.meta.url));
const POLICY =
  "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; " +
  "base-uri 'none'; form-action 'none'";

export const MODEL = "DeepSeek-V4.1-Test";
const LOAD = {
  running: 2,
  waiting: 1,
  kv_blocks: 1000,
  kv_blocks_free: 500,
  kv_blocks_cached: 300,
  kv_tiers: [],
  generated_tokens: 5000,
  prompt_tokens: 20000,
  cached_tokens: 15000,
  drafts_verified: 1000,
  drafts_accepted: 720,
  decode_steps: 2500,
  draining: false,
};

/** One POST /v1/chat/completions. */
class Exchange {
  constructor(request, response, body) {
    this.headers = request.headers;
    this.body = body;
    this.response = response;
    this.closed = new Promise((resolve) => response.on("close", () => resolve(response.writableFinished)));
  }

  #send(object) {
    if (!this.response.headersSent) {
      this.response.writeHead(200, { "Content-Type": "text/event-stream" });
      this.response.write(": keep-alive\n\n");
    }
    this.response.write(`data: ${JSON.stringify(object)}\n\n`);
  }

  delta(delta) {
    this.#send({ model: MODEL, choices: [{ index: 0, delta, finish_reason: null }], usage: null });
  }

  end(finish_reason = "stop", usage = { prompt_tokens: 100, cached: 60, completion_tokens: 21 }) {
    this.#send({
      model: MODEL,
      choices: [{ index: 0, delta: { content: "" }, finish_reason }],
      usage: {
        prompt_tokens: usage.prompt_tokens,
        completion_tokens: usage.completion_tokens,
        prompt_tokens_details: { cached_tokens: usage.cached },
      },
    });
    this.response.end("data: [DONE]\n\n");
  }

  answer(content) {
    this.delta({ content });
    this.end();
  }

  failMidway(message) {
    this.#send({ error: { message, type: "internal_error" } });
    this.response.end("data: [DONE]\n\n");
  }

  refuse(status, message) {
    this.response.writeHead(status, { "Content-Type": "application/json" });
    this.response.end(JSON.stringify({ error: { message, type: "invalid_request_error" } }));
  }
}

export class FakeServer {
  load = { ...LOAD };
  key = null; // what callers must send, if anything
  #arrived = [];
  #wanted = [];

  static async start() {
    const server = new FakeServer();
    server.http = createServer((request, response) => server.#handle(request, response));
    await new Promise((resolve) => server.http.listen(0, "127.0.0.1", resolve));
    server.origin = `http://127.0.0.1:${server.http.address().port}`;
    return server;
  }

  stop() {
    this.http.closeAllConnections();
    return new Promise((resolve) => this.http.close(resolve));
  }

  /** The next chat request, whether it has come or not. */
  nextChat() {
    const exchange = this.#arrived.shift();
    return exchange ? Promise.resolve(exchange) : new Promise((resolve) => this.#wanted.push(resolve));
  }

  #handle(request, response) {
    const json = (value) => response.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify(value));
    const path = new URL(request.url, "http://localhost").pathname;
    if (path === "/") {
      response.writeHead(200, { "Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": POLICY });
      return response.end(readFileSync(PAGE));
    }
    if (this.key !== null && request.headers.authorization !== `Bearer ${this.key}`) {
      response.writeHead(401, { "Content-Type": "application/json" });
      return response.end(JSON.stringify({ error: { message: "no valid API key" } }));
    }
    if (path === "/v1/models") return json({ object: "list", data: [{ id: MODEL, object: "model", max_model_len: 32768 }] });
    if (path === "/version") return json({ version: "9.9.9" });
    if (path === "/load") return json(this.load);
    if (path !== "/v1/chat/completions") return response.writeHead(404).end();
    let text = "";
    request.on("data", (piece) => (text += piece));
    request.on("end", () => {
      const exchange = new Exchange(request, response, JSON.parse(text));
      const wanted = this.#wanted.shift();
      if (wanted) {
        wanted(exchange);
      } else {
        this.#arrived.push(exchange);
      }
    });
  }
}
