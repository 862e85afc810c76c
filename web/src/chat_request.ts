// A conversation as the body of POST /v1/chat/completions.
//
// The messages of a turn are the same in every later request, so that the server finds the whole history in its prefix
// cache. Reasoning is sent back only when tools are in use: otherwise the prompt format drops it anyway.

import { pathOf, type Conversation, type ToolCall, type Turn } from "./conversation";
import { parseTools } from "./settings";

export const NOT_RUN = "The call was not run.";

/** The request that makes the next turn behind `last`, which is on the selected path. */
export function chatRequest(conversation: Conversation, last: Turn, model: string): object {
  const { settings } = conversation;
  const parsed = parseTools(settings.tools);
  const tools = "tools" in parsed ? parsed.tools : [];
  const body: Record<string, unknown> = {
    model,
    messages: messagesUpTo(conversation, last, tools.length > 0),
    stream: true,
    stream_options: { include_usage: true },
  };
  if (tools.length > 0) body.tools = tools;
  if (settings.thinking === "off") body.thinking = { type: "disabled" };
  if (settings.thinking !== "off" && settings.thinking !== "") {
    body.thinking = { type: "enabled" };
    body.reasoning_effort = settings.thinking;
  }
  for (const name of ["temperature", "top_p", "top_k", "max_tokens", "seed"] as const) {
    if (settings[name] !== null) body[name] = settings[name];
  }
  return body;
}

function messagesUpTo(conversation: Conversation, last: Turn, withTools: boolean): object[] {
  const messages: object[] = [];
  const { system } = conversation.settings;
  if (system.trim() !== "") messages.push({ role: "system", content: system });
  if (last.role === "root") return messages;
  let open: ToolCall[] = [];
  for (const turn of pathOf(conversation)) {
    if (turn.role === "user") {
      for (const call of open) messages.push({ role: "tool", tool_call_id: call.id, content: NOT_RUN });
      open = [];
      messages.push({ role: "user", content: turn.content });
    } else if (turn.role === "tools") {
      for (const call of open) {
        messages.push({ role: "tool", tool_call_id: call.id, content: turn.results?.[call.id] ?? NOT_RUN });
      }
      open = [];
    } else {
      open = usableCalls(turn);
      const message = assistantMessage(turn, open, withTools);
      if (message !== null) messages.push(message);
    }
    if (turn.id === last.id) break;
  }
  return messages;
}

/** The calls of an answer that can be run. One that was stopped early may end within a call. */
export function usableCalls(turn: Turn): ToolCall[] {
  const calls = turn.calls ?? [];
  const whole = turn.info === undefined || (turn.info.state === "done" && turn.info.finish !== "length");
  return whole ? calls : calls.filter((call) => isJson(call.arguments));
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function assistantMessage(turn: Turn, calls: ToolCall[], withTools: boolean): object | null {
  if (turn.content === "" && calls.length === 0) return null; // stopped or failed before it said anything
  const message: Record<string, unknown> = { role: "assistant", content: turn.content };
  if (withTools && turn.reasoning !== undefined) message.reasoning_content = turn.reasoning;
  if (calls.length > 0) {
    message.tool_calls = calls.map((call) => ({
      id: call.id,
      type: "function",
      function: { name: call.name, arguments: call.arguments },
    }));
  }
  return message;
}
