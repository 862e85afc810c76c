"""What LLM returns. All of it is plain data and outlives the LLM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from . import _deepinfer
from ._errors import DeepInferError


@dataclass(frozen=True)
class Logprob:
    """A natural logarithm of the softmax of the raw logits, before temperature, penalties and filters."""

    logprob: float
    rank: int | None
    """1 for the most likely token; None when the token is not among those that were asked for."""
    decoded_token: str
    """The token alone as text; a part of a character shows as U+FFFD."""


Logprobs = dict[int, Logprob]
"""Of one position, by token id: the token itself first, then the most likely ones."""


@dataclass(frozen=True)
class Acceptance:
    """What speculation with DSpark did for a request (docs/dspark.md). It never changes a token."""

    steps: int
    """Steps that decoded."""
    drafted: int
    """Tokens drafted."""
    verified: int
    """Drafts that the model checked."""
    accepted: int
    """Drafts that stood."""

    @property
    def mean_accepted_length(self) -> float:
        """Tokens per decoding step: the accepted drafts and the one token that every step yields. 0 without steps."""
        return 1 + self.accepted / self.steps if self.steps else 0.0


@dataclass(frozen=True)
class PlannedMemory:
    """One line of the memory plan."""

    text: str
    """What it is for, for people."""
    bytes: int
    at_start: bool
    """Reserved at the start; False: at most so much, and only while it is needed."""
    on_device: bool
    """In memory of a GPU's own; False: in host memory."""


@dataclass
class CompletionOutput:
    """One of the n answers to a prompt."""

    index: int
    text: str
    """The answer, without reasoning, and without the stop text unless it was asked for."""
    token_ids: list[int]
    """Every sampled token, reasoning and the one that ended the answer included."""
    cumulative_logprob: float | None
    """Sum over token_ids; None unless logprobs were asked for."""
    logprobs: list[Logprobs] | None
    """One entry for each of token_ids; None unless asked for."""
    finish_reason: str
    """stop, length, cancelled or error."""
    stop_reason: str | int | None
    """With stop: the stop text or the stop token id that ended the answer; None for the end-of-sentence token."""
    reasoning: str = ""
    """What was thought before the answer (chat with thinking)."""
    error: DeepInferError | None = None
    """With finish_reason error: what went wrong with this answer; others are not affected."""


@dataclass
class RequestOutput:
    """Everything about one prompt and its answers."""

    request_id: str
    prompt: str | None
    """The prompt as text; None when it was given as ids."""
    prompt_token_ids: list[int]
    prompt_logprobs: list[Logprobs | None] | None
    """One entry for each of prompt_token_ids, None for the first; None unless asked for."""
    outputs: list[CompletionOutput]
    seed: int
    """The seed that was used."""
    num_cached_tokens: int
    """Tokens of the prompt that came from the prefix cache."""
    num_replayed_tokens: int
    """Of those: computed again to rebuild attention windows."""
    acceptance: Acceptance
    replay: str
    """bounded or exact: the mode that was used (docs/kv-cache.md)."""
    preemptions: int
    queue_ms: float
    """Submission to the first step."""
    first_token_ms: float
    """Submission to the first token."""
    total_ms: float
    """Submission to the end."""
    cached_tokens_by_tier: dict[str, int] = field(default_factory=dict)
    """num_cached_tokens by where they came from: device, host, disk, shared or redis."""
    finished: bool = True


@dataclass
class StreamDelta:
    """What is new of one answer since the stream was last read."""

    index: int
    """Which of the n answers."""
    text: str
    token_ids: list[int]
    logprobs: list[Logprobs] | None
    reasoning: str = ""
    finished: bool = False
    """Nothing more comes of this answer; `AnswerStream.output` says why once all have ended."""


@dataclass
class Submitted:
    """A request on its way: what its outputs need besides the engine's results."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    seed: int
    wants_logprobs: bool
    stop_token_ids: frozenset[int]
    detokenize: Callable[[list[int]], str]
    stream: _deepinfer.Stream = field(repr=False)

    def delta(self, delta: _deepinfer.Delta) -> StreamDelta:
        return StreamDelta(
            index=delta.index,
            text=delta.content,
            token_ids=delta.ids,
            logprobs=[self._logprobs(position) for position in delta.logprobs] if self.wants_logprobs else None,
            reasoning=delta.reasoning,
            finished=delta.finished,
        )

    def output(self) -> RequestOutput:
        """Waits for the end."""
        generation = self.stream.result()
        drafts = generation.drafts
        prompt_logprobs: list[Logprobs | None] | None = None
        if generation.prompt_logprobs:
            prompt_logprobs = [None, *(self._logprobs(position) for position in generation.prompt_logprobs)]
        return RequestOutput(
            request_id=self.request_id,
            prompt=self.prompt,
            prompt_token_ids=self.prompt_token_ids,
            prompt_logprobs=prompt_logprobs,
            outputs=[self._completion(index, choice) for index, choice in enumerate(generation.choices)],
            seed=self.seed,
            num_cached_tokens=generation.cached_tokens,
            num_replayed_tokens=generation.replayed_tokens,
            acceptance=Acceptance(drafts.steps, drafts.drafted, drafts.verified, drafts.accepted),
            replay=generation.replay,
            preemptions=generation.preemptions,
            queue_ms=generation.queue_ms,
            first_token_ms=generation.first_token_ms,
            total_ms=generation.total_ms,
            cached_tokens_by_tier=generation.cached_tokens_by_tier,
        )

    def _completion(self, index: int, choice: _deepinfer.Choice) -> CompletionOutput:
        positions = choice.logprobs
        reason = choice.finish_reason
        stop_reason: str | int | None = None
        if reason == "stop_sequence":
            reason, stop_reason = "stop", choice.stop_sequence
        elif reason == "stop" and choice.stop_token_id in self.stop_token_ids:
            stop_reason = choice.stop_token_id
        return CompletionOutput(
            index=index,
            text=choice.content,
            token_ids=choice.ids,
            cumulative_logprob=sum(position.chosen.logprob for position in positions) if self.wants_logprobs else None,
            logprobs=[self._logprobs(position) for position in positions] if self.wants_logprobs else None,
            finish_reason=reason,
            stop_reason=stop_reason,
            reasoning=choice.reasoning,
            error=choice.error,
        )

    def _logprobs(self, position: _deepinfer.PositionLogprobs) -> Logprobs:
        chosen = position.chosen
        ranks = {entry.id: rank for rank, entry in enumerate(position.top, start=1)}
        entries = {}
        for entry in (chosen, *position.top):
            if entry.id not in entries:
                entries[entry.id] = Logprob(entry.logprob, ranks.get(entry.id), self.detokenize([entry.id]))
        return entries
