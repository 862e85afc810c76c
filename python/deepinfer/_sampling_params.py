"""SamplingParams: how tokens are chosen, when an answer ends, and what is told about it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass
from typing import Any

from . import _deepinfer
from ._errors import InvalidArgumentError

SCHEMA_TYPES = ("regex", "json", "ebnf")


@dataclass
class SamplingParams:
    """How one request is answered. Names are vLLM's; docs/sampling.md says how they work together.

    All values are checked at once: a wrong one is an InvalidArgumentError that names it.
    """

    temperature: float = 1.0
    """0..2; 0 takes the most likely token."""
    top_k: int = 0
    """Keep the k most likely tokens; 0 or -1: all."""
    top_p: float = 1.0
    """Above 0, at most 1: keep the smallest most-likely set with at least this probability."""
    min_p: float = 0.0
    """0..1: drop tokens less likely than this share of the most likely one."""
    seed: int | None = None
    """The same seed, prompt and parameters give the same tokens. None: the LLM's seed decides, else chance."""
    seq_seed: InitVar[int | None] = None
    """DeepInfer's name of `seed`."""
    n: int = 1
    """Answers to one prompt; answer 0 has the seed itself, the others seeds derived from it."""

    max_tokens: int | None = 256
    """Longest answer (vLLM's default is 16); None: until the context is full."""
    min_tokens: int = 0
    """Nothing that would end the answer is chosen before that many tokens."""
    stop: Sequence[str] | str | None = None
    """Up to 16 texts that end the answer."""
    stop_token_ids: Sequence[int] | None = None
    """Tokens that end the answer."""
    include_stop_str_in_output: bool = False
    """The stop text is part of the answer."""
    ignore_eos: bool = False
    """The end-of-sentence token does not end the answer."""

    logprobs: int | None = None
    """Log probabilities of the chosen token and of this many (0..20) most likely ones, before temperature and filters."""
    prompt_logprobs: int | None = None
    """The same for the tokens of the prompt; the request then runs with exact replay."""

    presence_penalty: float = 0.0
    """-2..2; subtracted once when the output has the token."""
    frequency_penalty: float = 0.0
    """-2..2; subtracted for every time that the output has the token."""
    repetition_penalty: float = 1.0
    """Above 0; logits of tokens of prompt and output are divided by it, negative ones multiplied."""
    logit_bias: Mapping[int, float] | None = None
    """-100..100 for up to 1024 token ids, added to the logit."""
    bad_words: Sequence[str] | None = None
    """Texts that the answer never completes."""
    so_args: Mapping[str, Any] | None = None
    """Structured output: {"schema_type": "regex" | "json" | "ebnf", "schema": text}. A JSON Schema may be a dictionary.
    Behind the reasoning, where there is one, the answer belongs to it. What cannot be enforced exactly is refused when
    the request is submitted."""

    def __post_init__(self, seq_seed: int | None) -> None:
        if seq_seed is not None:
            if self.seed is not None and self.seed != seq_seed:
                raise InvalidArgumentError("seq_seed: differs from seed; give only one of them")
            self.seed = seq_seed
        if self.stop is None:
            self.stop = []
        elif isinstance(self.stop, str):
            self.stop = [self.stop]
        self.stop_token_ids = [] if self.stop_token_ids is None else self.stop_token_ids
        self.logit_bias = {} if self.logit_bias is None else self.logit_bias
        self.bad_words = [] if self.bad_words is None else self.bad_words
        if self.so_args is not None:
            self.so_args = _normal_so_args(self.so_args)
        _deepinfer.check_sampling_params(self)


def _normal_so_args(so_args: Mapping[str, Any]) -> dict[str, str]:
    if not isinstance(so_args, Mapping):
        raise InvalidArgumentError(f"so_args: expected a dictionary, found {so_args!r}")
    for key in so_args:
        if key not in ("schema_type", "schema"):
            raise InvalidArgumentError(f"so_args: expected schema_type and schema, found {key!r}")
    if so_args.get("schema_type") not in SCHEMA_TYPES:
        raise InvalidArgumentError(
            f"so_args.schema_type: expected regex, json or ebnf, found {so_args.get('schema_type')!r}"
        )
    schema = so_args.get("schema")
    if so_args["schema_type"] == "json" and isinstance(schema, (Mapping, bool)):
        try:
            schema = json.dumps(schema, ensure_ascii=False)
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(f"so_args.schema: expected a JSON Schema: {error}") from error
    if not isinstance(schema, str):
        raise InvalidArgumentError(f"so_args.schema: expected a text, found {schema!r}")
    return {"schema_type": so_args["schema_type"], "schema": schema}


def _get_seq_seed(params: SamplingParams) -> int | None:
    return params.seed


def _set_seq_seed(params: SamplingParams, seed: int | None) -> None:
    params.seed = seed


# The alias after construction; as the parameter of the constructor the name is taken above.
SamplingParams.seq_seed = property(_get_seq_seed, _set_seq_seed, doc="DeepInfer's name of `seed`.")  # type: ignore
