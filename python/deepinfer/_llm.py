"""LLM: many prompts at once on one model."""

from __future__ import annotations

import itertools
import os
import random
import secrets
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Union

from . import _deepinfer
from ._chat import Conversations, Conversation, Tool, chat_request, split_conversations
from ._errors import InvalidArgumentError, NotFoundError
from ._outputs import PlannedMemory, RequestOutput, Submitted
from ._progress import Progress
from ._sampling_params import SamplingParams
from ._stream import TICK_MS, AnswerStream

Prompt = Union[str, Mapping[str, Any]]
"""A text, or a dictionary with `prompt` (text) or `prompt_token_ids`, and if wanted `cache_salt` (prefixes are shared
only between equal ones), `cache_ttl` (how long the KV tiers keep it: seconds, or a text such as "3d"), `no_store` (True:
they do not keep it), `priority` (lower ones are served first) and `replay` ("bounded" or "exact")."""

_PROMPT_KEYS = ("prompt", "prompt_token_ids", "cache_salt", "cache_ttl", "no_store", "priority", "replay")
_MOST_CACHE_TTL = 365 * 86_400
_MOST_STREAM_THREADS = 1024


class LLM:
    """A model, ready to answer. Opening it takes seconds and reserves all memory it will use (`memory_plan`).

    What is None comes from the DEEPINFER_* environment variables, then from the engine's defaults. What a request gets
    depends on the request alone: not on the others, their order, threads, drafts or cache hits (docs/python.md).
    All methods may be called from any thread. `close()`, or a `with` block, gives the memory back.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | None = None,
        *,
        tokenizer: str | os.PathLike[str] | None = None,
        device: str | None = None,
        gpu_layers: int | None = None,
        engram: str | None = None,
        threads: int | None = None,
        max_num_seqs: int | None = None,
        max_num_batched_tokens: int | None = None,
        max_model_len: int | None = None,
        kv_memory: int | str | None = None,
        snapshot_memory: int | str | None = None,
        tpot_target_ms: float | None = None,
        enable_prefix_caching: bool | None = None,
        kv_host: int | str | None = None,
        kv_host_file: str | os.PathLike[str] | None = None,
        kv_disk: str | os.PathLike[str] | None = None,
        kv_disk_size: int | str | None = None,
        kv_shared: str | os.PathLike[str] | None = None,
        kv_shared_size: int | str | None = None,
        kv_ttl: int | str | None = None,
        kv_key_file: str | os.PathLike[str] | None = None,
        kv_least_tokens: int | None = None,
        replay: str | None = None,
        replay_keep: int | None = None,
        replay_grid: int | None = None,
        draft_length: int | None = None,
        variable_drafts: bool | None = None,
        speculation_rule: str | None = None,
        activation_quant: str | None = None,
        asynchronous: bool | None = None,
        profile_steps: bool | None = None,
        seed: int | None = None,
    ) -> None:
        """Opens the model.

        Args:
            model: folder of the checkpoint; None: $DEEPINFER_MODEL.
            tokenizer: a tokenizer.json; None: the model's.
            device: "cpu", "cuda", "cuda:N", or "auto" (the default): a GPU where there is one.
            gpu_layers: layers whose weights stay on the GPU; those of the rest cross from host memory; None: all.
            engram: Engram tables: "disk" (the default): rows are read when asked for; "host": all into memory at the
                start; "device": into the GPU's.
            threads: that compute on the CPU; None: all this process may use.
            max_num_seqs: requests computed at once (16).
            max_num_batched_tokens: cost of one step, in tokens that pass all layers (512).
            max_model_len: longest prompt and answer in tokens; None: what the model was made for.
            kv_memory: of the KV pool: bytes, or a text such as "2GiB"; None: from what is free.
            snapshot_memory: of the prefix cache's ring snapshots, likewise.
            tpot_target_ms: prefill yields when a step would take longer; 0: never.
            enable_prefix_caching: share what prompts have in common (on).
            kv_host: host memory for prefixes that the KV pool has no room for, a size; None: none.
            kv_host_file: engines that name the same file share the host tier.
            kv_disk: folder on a local disk that keeps prefixes, also for the next start.
            kv_disk_size: of all engines in that folder together ("16GiB").
            kv_shared: folder that several machines mount, or "redis://...".
            kv_shared_size: of the shared folder ("64GiB").
            kv_ttl: how long prefixes are kept there: seconds, or a text such as "90s", "30m", "12h" ("3d").
            kv_key_file: 32 bytes, or 64 hexadecimal digits: what is kept is encrypted.
            kv_least_tokens: shorter prefixes are neither kept nor fetched (256).
            replay: "bounded", as the model is served, or "exact" (docs/kv-cache.md).
            replay_keep: with bounded replay, tokens of a prompt that pass the decoder.
            replay_grid: with bounded replay, tokens between restart points.
            draft_length: most DSpark drafts of a step (5); 0: no speculation.
            variable_drafts: verify only the drafts that are worth their cost (on).
            speculation_rule: "coupled": speculation changes no token; "rejection": only the distribution stays.
            activation_quant: "official": FP8 activations as released; "off": unquantised.
            asynchronous: plan a step before the last one's tokens are known (on).
            profile_steps: measure the cost of steps at the start, for variable_drafts (on).
            seed: of requests whose SamplingParams have none, so that a run can be repeated.

        Raises:
            NotFoundError, CorruptionError, UnsupportedError, IoError: the model cannot be opened.
            InvalidArgumentError: names the argument. ResourceExhaustedError: it does not fit into the memory.
        """
        if model is None:
            model = os.environ.get("DEEPINFER_MODEL") or None
        if model is None:
            raise NotFoundError("no model: neither model nor $DEEPINFER_MODEL is given")
        if activation_quant not in (None, "official", "off"):
            raise InvalidArgumentError(f"activation_quant: expected official or off, found {activation_quant!r}")
        options = {
            "model": os.fspath(model),
            "device": device,
            "gpu_layers": gpu_layers,
            "engram": engram,
            "threads": threads,
            "max_num_seqs": max_num_seqs,
            "max_num_batched_tokens": max_num_batched_tokens,
            "max_model_len": max_model_len,
            "kv_memory_bytes": _memory_size("kv_memory", kv_memory),
            "snapshot_memory_bytes": _memory_size("snapshot_memory", snapshot_memory),
            "tpot_target_ms": tpot_target_ms,
            "prefix_cache": enable_prefix_caching,
            "kv_host_bytes": _memory_size("kv_host", kv_host),
            "kv_host_file": _path(kv_host_file),
            "kv_disk": _path(kv_disk),
            "kv_disk_bytes": _memory_size("kv_disk_size", kv_disk_size),
            "kv_shared": _path(kv_shared),
            "kv_shared_bytes": _memory_size("kv_shared_size", kv_shared_size),
            "kv_ttl_seconds": _ttl("kv_ttl", kv_ttl),
            "kv_key_file": _path(kv_key_file),
            "kv_least_tokens": kv_least_tokens,
            "replay": replay,
            "replay_keep": replay_keep,
            "replay_grid": replay_grid,
            "draft_length": draft_length,
            "variable_drafts": variable_drafts,
            "speculation_rule": speculation_rule,
            "exact_activations": None if activation_quant is None else activation_quant == "off",
            "asynchronous": asynchronous,
            "profile_steps": profile_steps,
        }
        given = {name: value for name, value in options.items() if value is not None}
        self._engine = _deepinfer.Engine(given, "" if tokenizer is None else os.fspath(tokenizer))
        self._request_numbers = itertools.count()
        self._seeds = None if seed is None else random.Random(seed)
        self._executor: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Continues texts without a chat template; waits for all of them.

        A text gets the begin-of-sentence token in front unless it begins with it, and control tokens that it spells out
        stay text; ids are taken as they are. One SamplingParams for all, or one for each prompt.

        With `use_tqdm` a batch that takes long shows its progress on standard error if that is a terminal. Ctrl-C
        cancels all of the batch. A request that cannot be submitted raises its error, and nothing of the batch goes on.
        """
        listed: list[Prompt] = [prompts] if isinstance(prompts, (str, Mapping)) else list(prompts)
        params = _params_for_each(sampling_params, len(listed))
        return self._run([(self._submission(prompt), one) for prompt, one in zip(listed, params)], use_tqdm)

    def chat(
        self,
        messages: Conversations,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool = True,
        *,
        tools: Sequence[Tool] | None = None,
        tool_choice: Any = None,
        thinking: bool | None = None,
        effort: int | str | None = None,
    ) -> list[RequestOutput]:
        """Answers one conversation, or each of several, as the assistant.

        Args:
            messages: OpenAI's Chat Completions messages, or a list of such lists.
            tools, tool_choice: as Chat Completions has them. Calls in the answer are not parsed; they stay text.
            thinking: reason before the answer (off); see CompletionOutput.reasoning.
            effort: how thoroughly: "low", "medium", "high", "max" or 1 to 100; implies thinking.
        """
        conversations = split_conversations(messages)
        params = _params_for_each(sampling_params, len(conversations))
        chats = [self._chat_submission(one, tools, tool_choice, thinking, effort) for one in conversations]
        return self._run(list(zip(chats, params)), use_tqdm)

    def stream(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> AnswerStream:
        """Continues one prompt (as `generate`) and hands the answers out as they come: `async for delta in ...`."""
        return self._stream(self._submission(prompt), sampling_params)

    def stream_chat(
        self,
        messages: Conversation,
        sampling_params: SamplingParams | None = None,
        *,
        tools: Sequence[Tool] | None = None,
        tool_choice: Any = None,
        thinking: bool | None = None,
        effort: int | str | None = None,
    ) -> AnswerStream:
        """Answers one conversation (as `chat`) and hands the answer out as it comes."""
        return self._stream(self._chat_submission(messages, tools, tool_choice, thinking, effort), sampling_params)

    def tokenize(self, text: str, special: bool = False) -> list[int]:
        """Token ids of a text, nothing put in front. `special`: control tokens that it spells out become tokens."""
        return self._engine.tokenize(_encodable(text), special)

    def detokenize(self, token_ids: Sequence[int]) -> str:
        """The text of ids, special tokens included."""
        return self._engine.detokenize(list(token_ids))

    @property
    def bos_token_id(self) -> int:
        return self._engine.bos_token_id

    @property
    def options(self) -> dict[str, Any]:
        """The engine's options with everything chosen, as EngineOptions of the C++ API names them."""
        return self._engine.options()

    def statistics(self) -> dict[str, Any]:
        """Counts since the start: requests, tokens, rows, blocks, drafts, seconds; `kv_tiers`, a list of what each tier
        behind the KV pool holds and did, nearest first; `kv_transfers`, what came from them and went to them."""
        return self._engine.statistics()

    def memory_plan(self) -> dict[str, PlannedMemory]:
        """Every large allocation, by its name: how many bytes, for what, in which memory."""
        return {
            line.key: PlannedMemory(line.text, line.bytes, line.at_start, line.on_device)
            for line in self._engine.memory_plan()
        }

    def clear_prefix_cache(self) -> None:
        """Forgets every cached prefix in the KV pool that no running request uses. What KV tiers keep, stays."""
        self._engine.clear_prefix_cache()

    def close(self) -> None:
        """Ends what runs (as cancelled) and gives the memory back. The LLM can then no longer be used."""
        self._engine.close()
        with self._lock:
            self._executor = None  # streams that are still read keep it, and its threads end with the last of them

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _submission(self, prompt: Prompt) -> tuple[_deepinfer.Submission, str | None]:
        entry = {"prompt": prompt} if isinstance(prompt, str) else prompt
        if not isinstance(entry, Mapping):
            raise InvalidArgumentError(
                f"prompts: expected a text or a dictionary with prompt or prompt_token_ids, found {prompt!r:.80}"
            )
        for key in entry:
            if key not in _PROMPT_KEYS:
                raise InvalidArgumentError(f"prompts: expected {', '.join(_PROMPT_KEYS)}, found {key!r}")
        text = entry.get("prompt")
        ids = entry.get("prompt_token_ids")
        if (text is None) == (ids is None):
            raise InvalidArgumentError("prompts: expected either prompt or prompt_token_ids")
        submission = _deepinfer.Submission()
        if ids is None:
            if not isinstance(text, str):
                raise InvalidArgumentError(f"prompt: expected a text, found {text!r:.80}")
            ids = self.tokenize(text)
            if ids[:1] != [self.bos_token_id]:
                ids.insert(0, self.bos_token_id)
        _assign(submission, "prompt", "prompt_token_ids", ids, "a list of token ids")
        _assign(submission, "cache_salt", "cache_salt", entry.get("cache_salt", ""), "a text")
        submission.cache_ttl_seconds = _ttl("cache_ttl", entry.get("cache_ttl"))
        no_store = entry.get("no_store", False)
        if not isinstance(no_store, bool):
            raise InvalidArgumentError(f"no_store: expected True or False, found {no_store!r:.80}")
        submission.no_store = no_store
        _assign(submission, "priority", "priority", entry.get("priority", 0), "an integer")
        _assign(submission, "replay", "replay", entry.get("replay"), "bounded or exact")
        return submission, text

    def _chat_submission(
        self,
        messages: Conversation,
        tools: Sequence[Tool] | None,
        tool_choice: Any,
        thinking: bool | None,
        effort: int | str | None,
    ) -> tuple[_deepinfer.Submission, str | None]:
        if thinking is None:
            thinking = effort is not None
        elif not thinking and effort is not None:
            raise InvalidArgumentError("effort: needs thinking=True, found thinking=False")
        rendered = self._engine.render_chat(chat_request(messages, tools, tool_choice), thinking, effort)
        submission = _deepinfer.Submission()
        submission.prompt = rendered.ids
        submission.is_chat = True
        submission.starts_in_reasoning = rendered.starts_in_reasoning
        return submission, rendered.text

    def _submit(self, submission: _deepinfer.Submission, text: str | None, params: SamplingParams) -> Submitted:
        if not isinstance(params, SamplingParams):
            raise InvalidArgumentError(f"sampling_params: expected SamplingParams, found {params!r:.80}")
        with self._lock:
            number = next(self._request_numbers)
            seed = params.seed
            if seed is None:
                seed = secrets.randbits(63) if self._seeds is None else self._seeds.getrandbits(63)
        return Submitted(
            request_id=str(number),
            prompt=text,
            prompt_token_ids=submission.prompt,
            seed=seed,
            wants_logprobs=params.logprobs is not None,
            stop_token_ids=frozenset(params.stop_token_ids or ()),
            detokenize=self._engine.detokenize,
            stream=self._engine.submit(submission, _WithSeed(params, seed)),
        )

    def _run(
        self, requests: Sequence[tuple[tuple[_deepinfer.Submission, str | None], SamplingParams]], use_tqdm: bool
    ) -> list[RequestOutput]:
        submitted: list[Submitted] = []
        progress = Progress(len(requests), use_tqdm)
        try:
            for (submission, text), params in requests:
                submitted.append(self._submit(submission, text, params))
            waiting = list(submitted)
            while waiting:
                # Short waits without the GIL: in between, Python handles Ctrl-C.
                waiting[0].stream.drain(TICK_MS)
                waiting = [one for one in waiting if not one.stream.drain(0)]
                progress.show(len(submitted) - len(waiting), sum(one.stream.tokens_read for one in submitted))
        except BaseException:
            for one in submitted:
                one.stream.cancel()
            raise
        finally:
            progress.close()
        return [one.output() for one in submitted]

    def _stream(
        self, prepared: tuple[_deepinfer.Submission, str | None], sampling_params: SamplingParams | None
    ) -> AnswerStream:
        submission, text = prepared
        params = SamplingParams() if sampling_params is None else sampling_params
        submitted = self._submit(submission, text, params)
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(_MOST_STREAM_THREADS, thread_name_prefix="deepinfer-stream")
            return AnswerStream(submitted, self._executor)


class _WithSeed:
    """SamplingParams with the seed of one request."""

    def __init__(self, params: SamplingParams, seed: int) -> None:
        self._params = params
        self.seed = seed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._params, name)


def _params_for_each(
    params: SamplingParams | Sequence[SamplingParams] | None, count: int
) -> Sequence[SamplingParams]:
    if params is None:
        params = SamplingParams()
    if isinstance(params, SamplingParams):
        return [params] * count
    if not isinstance(params, Sequence) or len(params) != count:
        found = len(params) if isinstance(params, Sequence) else repr(params)
        raise InvalidArgumentError(f"sampling_params: expected one, or one for each of {count} prompts, found {found}")
    return params


def _assign(submission: _deepinfer.Submission, member: str, field: str, value: Any, expected: str) -> None:
    try:
        setattr(submission, member, value)
    except TypeError:
        raise InvalidArgumentError(f"{field}: expected {expected}, found {value!r:.80}") from None


def _encodable(text: str) -> str:
    """Lone surrogates, which UTF-8 has no bytes for, become U+FFFD, as ill-formed input does elsewhere."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def _path(value: str | os.PathLike[str] | None) -> str | None:
    return None if value is None else os.fspath(value)


def _ttl(field: str, value: int | str | None) -> int | None:
    """Seconds of a number or of a text such as 30m, 12h, 3d."""
    if value is None:
        return None
    seconds = _deepinfer.parse_duration(value) if isinstance(value, str) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 1 <= seconds <= _MOST_CACHE_TTL:
        raise InvalidArgumentError(
            f"{field}: expected 1 s to 365 d, as whole seconds or a text such as 90s, 30m, 12h or 3d, found {value!r:.80}"
        )
    return seconds


def _memory_size(field: str, value: int | str | None) -> int | None:
    """Bytes of a number or of a text such as 512MiB, 1.5G, 100MB (the rules of --kv-memory)."""
    if value is None or isinstance(value, int):
        return value
    error = InvalidArgumentError(
        f"{field}: expected a size such as 512MiB, 1.5G or a number of bytes, found {value!r}"
    )
    if not isinstance(value, str):
        raise error
    unit = value.lstrip("0123456789.")
    number = value[: len(value) - len(unit)]
    unit = unit.strip().lower()
    powers = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
    power = powers.get(unit[:1].replace("b", ""))
    rest = unit[1:]
    if power is None or rest not in ("", "b", "ib"):
        raise error
    try:
        return int(float(number) * (1000 if rest == "b" else 1024) ** power)
    except ValueError:
        raise error from None
