// What a conversation asks of the server. An empty value is left to the server and not sent.

export type Thinking = "" | "off" | "low" | "high" | "max";

export interface Settings {
  system: string;
  tools: string; // JSON text, as it was typed
  thinking: Thinking;
  temperature: number | null;
  top_p: number | null;
  top_k: number | null;
  max_tokens: number | null;
  seed: number | null;
}

export type NumberName = "temperature" | "top_p" | "top_k" | "max_tokens" | "seed";

export interface NumberField {
  name: NumberName;
  label: string;
  hint: string;
  minimum: number;
  maximum: number;
  whole: boolean;
}

export const NUMBER_FIELDS: NumberField[] = [
  { name: "temperature", label: "Temperature", hint: "0 to 2, 0 is greedy", minimum: 0, maximum: 2, whole: false },
  { name: "top_p", label: "Top p", hint: "above 0, to 1", minimum: 0.000001, maximum: 1, whole: false },
  { name: "top_k", label: "Top k", hint: "0 for all tokens", minimum: 0, maximum: 1e6, whole: true },
  { name: "max_tokens", label: "Max tokens", hint: "reasoning and answer", minimum: 1, maximum: 1e7, whole: true },
  { name: "seed", label: "Seed", hint: "same seed, same answer", minimum: 0, maximum: 2 ** 53 - 1, whole: true },
];

export const THINKING_CHOICES: { value: Thinking; label: string }[] = [
  { value: "", label: "default" },
  { value: "off", label: "off" },
  { value: "low", label: "low" },
  { value: "high", label: "high" },
  { value: "max", label: "max" },
];

export function defaultSettings(): Settings {
  return {
    system: "",
    tools: "",
    thinking: "",
    temperature: null,
    top_p: null,
    top_k: null,
    max_tokens: null,
    seed: null,
  };
}

/** Settings out of stored JSON; what is missing or of a wrong type is the default. */
export function settingsFrom(stored: unknown): Settings {
  const settings = defaultSettings();
  if (typeof stored !== "object" || stored === null) return settings;
  const from = stored as Record<string, unknown>;
  if (typeof from.system === "string") settings.system = from.system;
  if (typeof from.tools === "string") settings.tools = from.tools;
  const thinking = THINKING_CHOICES.find((choice) => choice.value === from.thinking);
  if (thinking !== undefined) settings.thinking = thinking.value;
  for (const field of NUMBER_FIELDS) {
    const value = from[field.name];
    if (typeof value === "number" && checkNumber(field, value) === "") settings[field.name] = value;
  }
  return settings;
}

/** Why `value` cannot be sent; empty when it can. */
export function checkNumber(field: NumberField, value: number): string {
  if (!Number.isFinite(value) || value < field.minimum || value > field.maximum || (field.whole && value % 1 !== 0)) {
    return `${field.label}: expected ${field.whole ? "a whole number" : "a number"}, ${field.hint}`;
  }
  return "";
}

export type ParsedTools = { tools: object[] } | { error: string };

/** The tools as the API takes them. Bare functions ({name, parameters}) are wrapped. */
export function parseTools(text: string): ParsedTools {
  if (text.trim() === "") return { tools: [] };
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (problem) {
    return { error: `Tools: ${problem instanceof Error ? problem.message : "no JSON"}` };
  }
  const tools: object[] = [];
  for (const entry of Array.isArray(value) ? value : [value]) {
    const tool = entry as { type?: unknown; function?: { name?: unknown }; name?: unknown } | null;
    if (typeof tool?.function?.name === "string") {
      tools.push({ type: "function", ...tool });
    } else if (typeof tool?.name === "string") {
      tools.push({ type: "function", function: tool });
    } else {
      return { error: 'Tools: expected a list of {"type": "function", "function": {"name": ..., "parameters": ...}}' };
    }
  }
  return { tools };
}
