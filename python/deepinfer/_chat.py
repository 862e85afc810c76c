"""Messages -> the Chat Completions request that the engine renders."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Union, cast

from ._errors import InvalidArgumentError

Message = Mapping[str, Any]
"""A message of OpenAI's Chat Completions: {"role": "user", "content": "..."} and so on (docs/prompt-format.md)."""
Tool = Mapping[str, Any]
"""A tool of OpenAI's Chat Completions: {"type": "function", "function": {...}}."""
Conversation = Sequence[Message]
Conversations = Union[Conversation, Sequence[Conversation]]


def split_conversations(messages: Conversations) -> list[Conversation]:
    """One conversation or many -> a list of conversations."""
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
        raise InvalidArgumentError(f"messages: expected a list of messages, found {messages!r:.80}")
    many: list[Conversation] = [entry for entry in messages if isinstance(entry, (list, tuple))]
    if many and len(many) == len(messages):
        return many
    return [cast(Conversation, messages)]


def chat_request(messages: Conversation, tools: Sequence[Tool] | None, tool_choice: Any) -> str:
    request: dict[str, Any] = {"model": "local", "messages": messages}
    if tools is not None:
        request["tools"] = tools
    if tool_choice is not None:
        request["tool_choice"] = tool_choice
    try:
        return json.dumps(request, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"messages, tools: expected what JSON can hold: {error}") from None
