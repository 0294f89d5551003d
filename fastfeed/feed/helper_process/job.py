"""The pickled job of a helper process.

It is pickled when the feed is made, so that errors come early. Large arrays are kept out of the
pickle and are mapped, not copied.
"""

from __future__ import annotations

import io
import os
import pickle
import types
import weakref
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.feed.batch.builder import BatchBuilder
from fastfeed.feed.config import FeedConfig
from fastfeed.feed.producer import open_builders
from fastfeed.runtime.timeline import Timeline
from fastfeed.system.shared_memory import anonymous, mapped

_ALIGN = 64  # bytes


@dataclass(frozen=True, slots=True)
class HelperJob:
    """Values from which a helper makes the batches of this feed."""

    config: FeedConfig
    timeline: dict[str, Any]  # arguments for the helper's own

    @classmethod
    def of(cls, config: FeedConfig, builder: BatchBuilder) -> HelperJob:
        """The job of a helper that makes the same batches as this builder."""
        if builder.backend.xp is not np:
            raise ConfigError(
                "side_process=True hands batches over in the host's memory, got a backend that"
                ' makes them on a GPU; leave side_process out, or use decode="cpu" with the cpu'
                " backend",
                field="side_process",
            )
        return cls(config, builder.timeline.helper_arguments)

    def builders(self) -> tuple[BatchBuilder, BatchBuilder]:
        """Open the builders in the helper, with their own quarantine and timeline."""
        quarantine = self.config.open_quarantine(tells=False)
        return open_builders(self.config, quarantine, Timeline(**self.timeline))


class PickledJob:
    """A job in shared memory. Raises ConfigError for what does not pickle."""

    def __init__(self, job: HelperJob) -> None:
        parts = _pickled(job)
        self.sizes = [part.nbytes for part in parts]
        self.fd = anonymous(0)
        self._end = weakref.finalize(self, os.close, self.fd)
        with open(self.fd, "wb", closefd=False) as file:
            for part in parts:
                file.write(part)
                file.write(bytes(-part.nbytes % _ALIGN))

    @staticmethod
    def load(fd: int, sizes: list[int]) -> HelperJob:
        """Load the job from shared memory, in the helper."""
        starts = [0]
        for size in sizes:
            starts.append(starts[-1] + size + -size % _ALIGN)
        memory = mapped(fd, starts[-1], private=True).data
        head, *buffers = (
            memory[start : start + size] for start, size in zip(starts, sizes, strict=False)
        )
        try:
            return pickle.loads(head, buffers=buffers)
        except Exception as error:
            # whatever importing a module raises, or an object's own unpickling
            raise ConfigError(
                "side_process=True: the helper process cannot unpickle this feed:"
                f" {type(error).__name__}: {error}; put classes and functions into modules that"
                " import by themselves, or leave side_process out",
                field="side_process",
            ) from error

    def close(self) -> None:
        self._end()


class _Pickler(pickle.Pickler):
    """Remembers the object it failed at, and refuses objects that another process cannot import."""

    last: Any = None

    def reducer_override(self, obj: Any) -> Any:
        self.last = obj
        if isinstance(obj, (type, types.FunctionType)) and obj.__module__ == "__main__":
            name = obj.__qualname__
            if "<" not in name:  # lambdas and local functions do not pickle at all
                raise ConfigError(
                    f"side_process=True: {name} is defined in __main__, which the helper process"
                    " does not run; move it into a module that can be imported (a .py file of its"
                    f" own, then `from that_file import {name}`), or leave side_process out",
                    field="side_process",
                )
        return NotImplemented


def _pickled(value: Any) -> list[memoryview]:
    """The pickle, then the buffers of its arrays."""
    buffers: list[pickle.PickleBuffer] = []
    file = io.BytesIO()
    pickler = _Pickler(file, protocol=5, buffer_callback=buffers.append)
    try:
        pickler.dump(value)
    except ConfigError:
        raise
    except Exception as error:  # whatever an object's own pickling raises
        raise ConfigError(
            f"side_process=True hands {_culprit(value)} to another process, but"
            f" {_named(pickler.last)} in it does not pickle: {error}; use functions and classes"
            " from the top level of a module, or leave side_process out",
            field="side_process",
        ) from error
    return [file.getbuffer(), *(buffer.raw() for buffer in buffers)]


def _culprit(job: Any) -> str:
    """The field that does not pickle, or the op."""
    named = {f.name: getattr(owner, f.name) for owner in (job.config, job) for f in fields(owner)}
    name = next((name for name in named if not _pickles(named[name])), "")
    if name != "program":
        return f"the {name} {named[name]!r}" if name else "the feed"
    ops = (step.op for step in named[name].steps)
    return next((f"the op {op!r}" for op in ops if not _pickles(op)), "the list of ops")


def _pickles(value: Any) -> bool:
    try:
        pickle.dumps(value)
    except Exception:  # pickling runs the object's own code, which may raise anything
        return False
    return True


def _named(obj: Any) -> str:
    if isinstance(obj, (type, types.FunctionType)):
        return f"{obj.__module__}.{obj.__qualname__}"
    return f"a {type(obj).__module__}.{type(obj).__qualname__}"
