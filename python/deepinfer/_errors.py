"""What can go wrong, by kind. The messages are the engine's own: they name the field, what was expected and the remedy."""


class DeepInferError(Exception):
    """The base of all errors of this package."""


class InvalidArgumentError(DeepInferError, ValueError):
    """An argument is wrong; the message names it and the remedy."""


class NotFoundError(DeepInferError, FileNotFoundError):
    """A file, model or name does not exist."""


class CorruptionError(DeepInferError):
    """Data contradicts itself: a damaged checkpoint, a bad checksum."""


class UnsupportedError(DeepInferError, NotImplementedError):
    """Well formed, but not something this build can do."""


class ResourceExhaustedError(DeepInferError, MemoryError):
    """Does not fit the memory plan; the message carries both numbers."""


class IoError(DeepInferError, OSError):
    """The operating system refused; the message carries its reason."""


class CancelledError(DeepInferError):
    """Stopped by the caller, or the LLM was closed."""


class InternalError(DeepInferError, RuntimeError):
    """A bug of DeepInfer."""
