// node structured.mjs [DRAFT_LENGTH...]: answers under schemas, with an independent validator (ajv).
//
// For each draft length (0 to 5) a server answers the same requests: twenty schemas, thinking on and off, streamed and
// not, and required and named calls. Every answer must parse and validate, and be the same for every draft length. 77
// when something is missing.
import { need, startServer, stopServer } from "./server.mjs";

need("ajv", "ajv-formats");
const { default: Ajv2020 } = await import("ajv/dist/2020.js");
const { default: addFormats } = await import("ajv-formats");

const text = (more) => ({ type: "string", maxLength: 24, ...more });
const object = (properties, more) => ({
  type: "object", properties, required: Object.keys(properties), additionalProperties: false, ...more,
});
const SCHEMAS = {
  person: object({ name: text(), age: { type: "integer", minimum: 0, maximum: 120 } }),
  flags: object({ open: { type: "boolean" }, level: { enum: ["low", "middle", "high"] } }),
  list: { type: "array", items: { enum: ["fox", "bear", "owl"] }, minItems: 2, maxItems: 4 },
  date: object({ day: { type: "string", format: "date" }, at: { type: "string", format: "time" } }),
  mail: object({ to: { type: "string", format: "email", maxLength: 40 } }),
  id: object({ id: { type: "string", format: "uuid" }, ip: { type: "string", format: "ipv4" } }),
  pattern: object({ plate: { type: "string", pattern: "^[A-Z]{2}-[0-9]{3,4}$" } }),
  numbers: object({ x: { type: "number", minimum: -1, maximum: 1 }, n: { type: "integer", multipleOf: 5, maximum: 1000, minimum: 0 } }),
  nested: object({ a: object({ b: object({ c: { const: "deep" } }) }) }),
  any: { anyOf: [object({ cat: text() }), object({ dog: { type: "integer", minimum: 0, maximum: 99 } })] },
  one: { oneOf: [{ type: "null" }, { type: "boolean" }, text({ minLength: 3 })] },
  all: { allOf: [{ type: "string", maxLength: 9 }, { pattern: "^[a-z]+$" }, { not: { const: "no" } }] },
  optional: { type: "object", properties: { a: text(), b: text(), c: { type: "boolean" } }, required: ["c"], additionalProperties: false },
  keys: { type: "object", patternProperties: { "^k[0-9]$": { type: "boolean" } }, additionalProperties: false, minProperties: 1, maxProperties: 3 },
  tuple: { type: "array", prefixItems: [{ type: "integer", minimum: 0, maximum: 9 }, text({ maxLength: 8 })], items: false, minItems: 2 },
  tree: {
    $ref: "#/$defs/node",
    $defs: { node: object({ v: { type: "integer", minimum: 0, maximum: 99 }, next: { anyOf: [{ type: "null" }, { $ref: "#/$defs/leaf" }] } }), leaf: object({ v: { const: 1 } }) },
  },
  condition: {
    type: "object", properties: { kind: { enum: ["a", "b"] }, size: { type: "integer", minimum: 0, maximum: 9 } }, required: ["kind"], additionalProperties: false,
    if: { properties: { kind: { const: "a" } } }, then: { required: ["size"] },
  },
  unicode: object({ word: { enum: ["été", "Straße", "日本", "🦊 fox"] } }),
  contains: { type: "array", items: { type: "integer", minimum: 0, maximum: 9 }, contains: { const: 7 }, maxItems: 3 },
  scalar: { type: ["integer", "null"], minimum: 1900, maximum: 2100 },
};
const ajv = new Ajv2020({ strict: false });
addFormats(ajv);
const validators = Object.fromEntries(Object.entries(SCHEMAS).map(([name, schema]) => [name, ajv.compile(schema)]));

const tool = (name, parameters, strict) => ({ type: "function", function: { name, parameters, strict } });
const TOOLS = ["person", "flags", "optional", "pattern"].map((name, i) => tool(`save_${name}`, SCHEMAS[name], i % 2 === 0));

/** The requests: [name of the schema or null for a call, body, whether to stream]. */
function requests() {
  const list = [];
  Object.entries(SCHEMAS).forEach(([name, schema], i) => {
    const format = { type: "json_schema", json_schema: { name, schema, strict: true } };
    const body = { response_format: format, messages: [{ role: "user", content: `Answer as JSON: ${name}.` }] };
    list.push([name, { ...body, temperature: i % 2, seed: i, thinking: { type: "disabled" } }, i % 3 === 0]);
    if (i % 2 === 0) list.push([name, { ...body, temperature: 1, seed: 100 + i, thinking: { type: "enabled" } }, i % 4 === 0]);
  });
  ["required", { type: "function", function: { name: "save_person" } }, { type: "function", function: { name: "save_pattern" } }].forEach((choice, i) => {
    for (const type of ["enabled", "disabled"]) {
      const body = { tools: TOOLS, tool_choice: choice, messages: [{ role: "user", content: "Save something for me." }] };
      list.push([null, { ...body, temperature: 1, seed: 7 + i, thinking: { type } }, i === 1]);
    }
  });
  return list;
}

async function ask(url, body, stream) {
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: "POST", body: JSON.stringify({ model: "nano", max_tokens: 1500, ...body, stream }),
  });
  if (response.status !== 200) throw new Error(`${response.status}: ${await response.text()}`);
  if (!stream) {
    const { message, finish_reason } = (await response.json()).choices[0];
    return { content: message.content ?? "", calls: (message.tool_calls ?? []).map((call) => call.function), finish_reason };
  }
  const answer = { content: "", calls: [], finish_reason: "" };
  for (const line of (await response.text()).split("\n")) {
    if (!line.startsWith("data: {")) continue;
    const choice = JSON.parse(line.slice(6)).choices[0];
    if (choice === undefined) continue;
    answer.content += choice.delta.content ?? "";
    for (const call of choice.delta.tool_calls ?? []) {
      answer.calls[call.index] ??= { name: "", arguments: "" };
      answer.calls[call.index].name += call.function.name ?? "";
      answer.calls[call.index].arguments += call.function.arguments ?? "";
    }
    answer.finish_reason = choice.finish_reason ?? answer.finish_reason;
  }
  return answer;
}

/** What is wrong with an answer; empty: nothing. */
function problem(name, body, answer) {
  try {
    if (name !== null) {
      if (answer.finish_reason !== "stop") return `finish reason ${answer.finish_reason}: ${answer.content}`;
      return validators[name](JSON.parse(answer.content)) ? "" : `${ajv.errorsText(validators[name].errors)}: ${answer.content}`;
    }
    if (answer.finish_reason !== "tool_calls" || answer.calls.length === 0) return `no call: ${JSON.stringify(answer)}`;
    if (answer.content !== "") return `content beside the call: ${answer.content}`;
    const wanted = body.tool_choice.function?.name;
    for (const call of answer.calls) {
      if (wanted !== undefined && call.name !== wanted) return `a call of ${call.name}`;
      const validate = validators[call.name.replace("save_", "")];
      if (validate === undefined || !validate(JSON.parse(call.arguments))) return `${call.name}(${call.arguments})`;
    }
    return "";
  } catch (error) {
    return `${error.message}: ${JSON.stringify(answer)}`;
  }
}

const lengths = process.argv.length > 2 ? process.argv.slice(2) : ["0", "1", "2", "3", "4", "5"];
const all = requests();
let first = null;
let wrong = 0;
let asked = 0;
for (const length of lengths) {
  const { server, url } = await startServer(["--draft-length", length]);
  const answers = await Promise.all(all.map(([, body, stream]) => ask(url, body, stream)));
  wrong += (await stopServer(server)) === "" ? 0 : 1;
  asked += answers.length;
  answers.forEach((answer, i) => {
    const [name, body] = all[i];
    const said = problem(name, body, answer);
    const same = first === null || JSON.stringify(answer) === JSON.stringify(first[i]);
    if (said !== "") process.stdout.write(`draft length ${length}, request ${i} (${name ?? "call"}): ${said}\n`);
    if (!same) process.stdout.write(`draft length ${length}, request ${i}: ${JSON.stringify(answer)} instead of ${JSON.stringify(first[i])}\n`);
    wrong += said === "" && same ? 0 : 1;
  });
  first ??= answers;
}
process.stdout.write(`${asked} answers, ${Object.keys(SCHEMAS).length} schemas, ${lengths.length} draft lengths: ${wrong} wrong\n`);
process.exit(wrong === 0 ? 0 : 1);
