"""DeepInfer: runs DeepSeek-V4.1 checkpoints. docs/python.md is the guide.

    from deepinfer import LLM, SamplingParams

    llm = LLM(model="models/nano")
    for output in llm.generate(["Once upon a time"], SamplingParams(temperature=0, max_tokens=40)):
        print(output.outputs[0].text)
"""

from ._deepinfer import __version__
from ._errors import (
    CancelledError,
    CorruptionError,
    DeepInferError,
    InternalError,
    InvalidArgumentError,
    IoError,
    NotFoundError,
    ResourceExhaustedError,
    UnsupportedError,
)
from ._llm import LLM, Prompt
from ._outputs import Acceptance, CompletionOutput, Logprob, PlannedMemory, RequestOutput, StreamDelta
from ._sampling_params import SamplingParams
from ._stream import AnswerStream

__all__ = [
    "LLM",
    "Acceptance",
    "AnswerStream",
    "CancelledError",
    "CompletionOutput",
    "CorruptionError",
    "DeepInferError",
    "InternalError",
    "InvalidArgumentError",
    "IoError",
    "Logprob",
    "NotFoundError",
    "PlannedMemory",
    "Prompt",
    "RequestOutput",
    "ResourceExhaustedError",
    "SamplingParams",
    "StreamDelta",
    "UnsupportedError",
    "__version__",
]
