"""Every error that fastfeed raises on purpose, drawn as a tree.

    FastfeedError
    ├── ConfigError       (ValueError)     an argument is wrong; raised at construction, before a byte is read
    │   ├── SpecError                      an op cannot follow what comes before it
    │   └── StateError                     a saved position does not fit this feed
    ├── MissingExtra      (ImportError)    an optional package is needed; the text holds the pip command
    ├── SourceError       (OSError)        a data source cannot be opened or listed
    ├── TargetError       (OSError)        the output cannot be written; keeps the errno
    ├── SampleError       (RuntimeError)   one sample is bad and the policy is "raise"
    ├── TooManyFailures   (RuntimeError)   the fault limits are exceeded; carries the failures
    ├── FeedClosed        (RuntimeError)   iterating a feed, or an iterator of it, that has been closed
    ├── TraceError        (ValueError)     a trace cannot be read, or holds nothing to analyze
    └── DeviceMemory      (MemoryError)    a device has no room for a batch; says what to lower

Texts say what, got, allowed, next: "rank must be in [0, 4), got 4; pass the global rank, not the local one".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "ConfigError",
    "DeviceMemory",
    "FastfeedError",
    "FeedClosed",
    "MissingExtra",
    "SampleError",
    "SourceError",
    "SpecError",
    "StateError",
    "TargetError",
    "TooManyFailures",
    "TraceError",
]


class FastfeedError(Exception):
    """Catch this to catch all of them."""


class ConfigError(FastfeedError, ValueError):
    """An argument is wrong."""


class SpecError(ConfigError):
    """An op cannot follow what comes before it."""


class StateError(ConfigError):
    """A saved position does not fit this feed."""


class MissingExtra(FastfeedError, ImportError):
    """An optional package is needed."""

    @classmethod
    def of(cls, caller: str, package: str, extra: str) -> MissingExtra:
        """`MissingExtra.of("to_jax", "JAX", "jax")` names the pip command."""
        return cls(f"{caller} needs {package}: pip install 'fastfeed[{extra}]'")


class SourceError(FastfeedError, OSError):
    """A data source cannot be opened or listed."""


class TargetError(FastfeedError, OSError):
    """The output cannot be written."""

    def __init__(self, text: str, errno: int | None = None) -> None:
        super().__init__(text)
        self.errno = errno

    def __reduce__(self) -> tuple[type[TargetError], tuple[str, int | None]]:
        return type(self), (str(self), self.errno)


class SampleError(FastfeedError, RuntimeError):
    """One sample is bad and the policy is "raise"."""


class TooManyFailures(FastfeedError, RuntimeError):
    """The fault limits are exceeded."""

    def __init__(self, text: str, failures: Sequence[object] = ()) -> None:
        super().__init__(text)
        self.failures = tuple(failures)


class FeedClosed(FastfeedError, RuntimeError):
    """Iterating a feed that has been closed."""


class TraceError(FastfeedError, ValueError):
    """A trace cannot be read, or holds nothing to analyze."""


class DeviceMemory(FastfeedError, MemoryError):
    """A device has no room for a batch."""
