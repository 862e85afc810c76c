// Checks the walks of grammar_bench with ajv, an independent validator.
//   npm ci && node validate.mjs FOLDER_OF_SCHEMAS WALKS_FOLDER
// Each line of WALKS_FOLDER/SET_NAME.jsonl is a text that the grammar of FOLDER_OF_SCHEMAS/SET/NAME.json admitted. Exit
// status 1 when a text is not valid.
import fs from 'node:fs';
import path from 'node:path';
import Ajv from 'ajv';
import Ajv2019 from 'ajv/dist/2019.js';
import Ajv2020 from 'ajv/dist/2020.js';
import AjvDraft04 from 'ajv-draft-04';
import addFormats from 'ajv-formats';

const [schemasFolder, walksFolder] = process.argv.slice(2);

function* jsonFiles(folder) {
  for (const entry of fs.readdirSync(folder, { withFileTypes: true })) {
    const inside = path.join(folder, entry.name);
    if (entry.isDirectory()) yield* jsonFiles(inside);
    else if (entry.name.endsWith('.json')) yield inside;
  }
}

// The classes whose rules may hold, the likeliest first.
function classesFor(schema) {
  const edition = String(schema.$schema ?? '');
  if (/draft-0[34]/.test(edition)) return [AjvDraft04];
  if (/draft-0[567]/.test(edition)) return [Ajv];
  if (/2019-09/.test(edition)) return [Ajv2019];
  if (/2020-12/.test(edition)) return [Ajv2020];
  return [Ajv2020, Ajv, AjvDraft04];
}

function validatorFor(schema) {
  let failure;
  for (const Class of classesFor(schema)) {
    for (const unicodeRegExp of [true, false]) {
      try {
        const ajv = new Class({
          strict: false,
          validateSchema: false,
          allErrors: false,
          multipleOfPrecision: 6,
          unicodeRegExp,
          logger: false,
        });
        addFormats(ajv);
        for (const number of ['int64', 'uint32', 'uint64']) ajv.addFormat(number, true);
        const copy = structuredClone(schema);
        if (typeof copy.$schema === 'string') delete copy.$schema;
        return ajv.compile(copy);
      } catch (error) {
        failure ??= error;
      }
    }
  }
  throw failure;
}

const tally = { schemas: 0, texts: 0, invalid: 0, unusable: 0 };
for (const file of jsonFiles(schemasFolder)) {
  const name = path.relative(schemasFolder, file).replaceAll('/', '_') + 'l';
  const walks = path.join(walksFolder, name);
  if (!fs.existsSync(walks)) continue;
  const lines = fs.readFileSync(walks, 'utf8').split('\n').filter((line) => line !== '');
  if (lines.length === 0) continue;
  let validate;
  try {
    validate = validatorFor(JSON.parse(fs.readFileSync(file, 'utf8')));
  } catch (error) {
    ++tally.unusable;
    console.log(`ajv cannot use ${name}: ${error.message.split('\n')[0]}`);
    continue;
  }
  ++tally.schemas;
  for (const line of lines) {
    ++tally.texts;
    let problem = null;
    try {
      if (!validate(JSON.parse(line))) problem = JSON.stringify(validate.errors[0]);
    } catch (error) {
      problem = error.message;
    }
    if (problem === null) continue;
    ++tally.invalid;
    console.log(`INVALID ${name}: ${problem}\n  ${line.slice(0, 2000)}`);
  }
}
console.log(
  `${tally.texts - tally.invalid} of ${tally.texts} texts of ${tally.schemas} schemas are valid; ` +
    `ajv cannot use ${tally.unusable} schemas`,
);
process.exit(tally.invalid === 0 && tally.texts > 0 ? 0 : 1);
