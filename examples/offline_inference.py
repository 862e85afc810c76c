#!/usr/bin/python3
"""Answers prompts offline, with the flags of DeepInfer's example of this name (docs/python.md)."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from deepinfer import LLM, DeepInferError, SamplingParams

NANO = Path(__file__).resolve().parents[1] / "models" / "nano"
PROMPTS = ["Once upon a time there was a little robot who", "The best thing about rain is", "def add(a, b):"]


def only_one(text: str) -> int:
    """A degree of parallelism."""
    if text != "1":
        raise argparse.ArgumentTypeError(f"expected 1, found {text!r}: this version computes on one machine's processors")
    return 1


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=str(NANO), help="folder of the checkpoint (default: the bundled Nano)")
    parser.add_argument("--prompt", action="append", metavar="TEXT", help="may be given many times")
    parser.add_argument("--chat", action="store_true", help="prompts are messages to the assistant")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0.6)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--seed", "--seq-seed", type=int, help="the same seed gives the same texts")
    parser.add_argument("--max-num-seqs", type=int, help="requests computed at once")
    parser.add_argument("--max-model-len", type=int, help="longest prompt and answer")
    parser.add_argument("--draft-length", type=int, help="most DSpark drafts of a step; 0: no speculation")
    parser.add_argument("--replay", choices=["bounded", "exact"])
    parallel = (
        ("--tp", "--tensor-parallel-size"), ("--ep", "--expert-parallel-size"), ("--dp", "--data-parallel-size"),
        ("--cp", "--context-parallel-size"), ("--pp", "--pipeline-parallel-size"),
    )
    for names in parallel:
        parser.add_argument(*names, type=only_one, default=1, help="1")
    parser.add_argument("--check_structured_output", "--check-structured-output", action="store_true",
                        help="check regex, JSON and EBNF outputs instead of answering prompts")
    return parser.parse_args(arguments)


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "pets": {"type": "array", "items": {"enum": ["cat", "dog", "fox"]}, "maxItems": 3},
    },
    "required": ["name", "age", "pets"],
    "additionalProperties": False,
}
PHONE = r"\+[1-9][0-9]{0,2} [0-9]{3}-[0-9]{4}"
SUM = """
root ::= sum
sum ::= number (" + " number){1,3}
number ::= [1-9] [0-9]{0,2}
"""


def is_person(text: str) -> bool:
    value = json.loads(text)
    return (
        list(value) == ["name", "age", "pets"] and len(value["name"]) <= 20 and 0 <= value["age"] <= 120
        and isinstance(value["age"], int) and len(value["pets"]) <= 3 and set(value["pets"]) <= {"cat", "dog", "fox"}
    )


def check_structured_output(flags: argparse.Namespace) -> int:
    """Every answer belongs to its grammar, and ends where the grammar lets it."""
    checks = [
        ("json", PERSON, is_person),
        ("regex", PHONE, lambda text: re.fullmatch(PHONE, text) is not None),
        ("ebnf", SUM, lambda text: re.fullmatch(r"[1-9][0-9]{0,2}( \+ [1-9][0-9]{0,2}){1,3}", text) is not None),
    ]
    wrong = 0
    with LLM(model=flags.model, max_num_seqs=flags.max_num_seqs, draft_length=flags.draft_length) as llm:
        for schema_type, schema, belongs in checks:
            params = SamplingParams(
                temperature=flags.temperature, seed=flags.seed, n=3, max_tokens=400,
                so_args={"schema_type": schema_type, "schema": schema},
            )
            for answer in llm.generate(["Here is what you asked for:\n"], params)[0].outputs:
                right = answer.finish_reason == "stop" and belongs(answer.text)
                wrong += not right
                print(f"{schema_type}: {'ok' if right else 'WRONG'}: {answer.text!r} ({answer.finish_reason})")
    print("structured output: " + (f"{wrong} wrong" if wrong else "all right"))
    return 1 if wrong else 0


def run(flags: argparse.Namespace) -> int:
    sampling_params = SamplingParams(
        temperature=flags.temperature, top_p=flags.top_p, seed=flags.seed, max_tokens=flags.max_tokens
    )
    prompts = flags.prompt or PROMPTS
    with LLM(
        model=flags.model,
        max_num_seqs=flags.max_num_seqs,
        max_model_len=flags.max_model_len,
        draft_length=flags.draft_length,
        replay=flags.replay,
    ) as llm:
        if flags.chat:
            outputs = llm.chat([[{"role": "user", "content": prompt}] for prompt in prompts], sampling_params)
        else:
            outputs = llm.generate(prompts, sampling_params)
    for prompt, output in zip(prompts, outputs):
        answer = output.outputs[0]
        print(f"Prompt: {prompt!r}\nAnswer: {answer.text!r}")
        print(
            f"  {len(output.prompt_token_ids)} prompt tokens ({output.num_cached_tokens} cached), "
            f"{len(answer.token_ids)} generated ({answer.finish_reason}), "
            f"{output.acceptance.mean_accepted_length:.2f} tokens a step, seed {output.seed}"
        )
    return 0


def main(arguments: list[str] | None = None) -> int:
    flags = parse(arguments)
    try:
        return check_structured_output(flags) if flags.check_structured_output else run(flags)
    except DeepInferError as error:
        print(f"offline_inference: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
