"""The extension module: the engine without comfort. Use the package."""

from typing import Any

from ._errors import DeepInferError

__version__: str

class TokenLogprob:
    id: int
    logprob: float

class PositionLogprobs:
    chosen: TokenLogprob
    top: list[TokenLogprob]

class Delta:
    index: int
    reasoning: str
    content: str
    ids: list[int]
    logprobs: list[PositionLogprobs]
    finished: bool

class Choice:
    ids: list[int]
    logprobs: list[PositionLogprobs]
    reasoning: str
    content: str
    finish_reason: str
    stop_sequence: str
    stop_token_id: int
    error: DeepInferError | None

class DraftCounts:
    steps: int
    drafted: int
    verified: int
    accepted: int

class Generation:
    choices: list[Choice]
    prompt_logprobs: list[PositionLogprobs]
    replay: str
    cached_tokens: int
    cached_tokens_by_tier: dict[str, int]
    replayed_tokens: int
    preemptions: int
    drafts: DraftCounts
    queue_ms: float
    first_token_ms: float
    total_ms: float

class Stream:
    def read(self, milliseconds: int) -> Delta | None: ...
    def drain(self, milliseconds: int) -> bool: ...
    def cancel(self) -> None: ...
    def result(self) -> Generation: ...
    @property
    def ended(self) -> bool: ...
    @property
    def tokens_read(self) -> int: ...

class Submission:
    prompt: list[int]
    cache_salt: str
    cache_ttl_seconds: int | None
    no_store: bool
    priority: int
    replay: str | None
    is_chat: bool
    starts_in_reasoning: bool

class RenderedChat:
    ids: list[int]
    text: str
    starts_in_reasoning: bool

class PlannedMemory:
    key: str
    text: str
    bytes: int
    at_start: bool
    on_device: bool

class Engine:
    def __init__(self, options: dict[str, Any], tokenizer_file: str = "") -> None: ...
    def submit(self, submission: Submission, sampling: Any) -> Stream: ...
    def render_chat(self, request: str, thinking: bool, effort: int | str | None = None) -> RenderedChat: ...
    def tokenize(self, text: str, special: bool = False) -> list[int]: ...
    def detokenize(self, ids: list[int]) -> str: ...
    @property
    def bos_token_id(self) -> int: ...
    def options(self) -> dict[str, Any]: ...
    def statistics(self) -> dict[str, Any]: ...
    def memory_plan(self) -> list[PlannedMemory]: ...
    def clear_prefix_cache(self) -> None: ...
    def close(self) -> None: ...

def parse_duration(text: str) -> int | None: ...
def check_sampling_params(params: Any) -> None: ...
