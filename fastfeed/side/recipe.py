"""What a helper process makes batches from, and its way there: pickled when the feed is made, so that what cannot be
passed is said at once; large arrays lie beside the pickle and are mapped, not copied."""

from __future__ import annotations

import importlib
import io
import os
import pickle
import types
import weakref
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fastfeed.assemble import Assembler
from fastfeed.decode import engine_for
from fastfeed.errors import ConfigError
from fastfeed.faults import FaultPolicy
from fastfeed.ops.fuse import Program
from fastfeed.plan import Plan
from fastfeed.quarantine import Quarantine
from fastfeed.side.memory import anonymous, mapped
from fastfeed.sources.base import Source
from fastfeed.timeline import Timeline

__all__ = ["Packed", "Recipe"]

_ALIGN = 64  # bytes


@dataclass(frozen=True, slots=True)
class Recipe:
    """As the feed was made."""

    source: Source
    program: Program
    plan: Plan
    decode: str
    backend: str  # module
    policy: FaultPolicy
    quarantine: Path | None
    threads: int
    chunk: int  # samples per task
    slots: int  # batches whose memory is used again
    weigh: bool
    timeline: dict[str, Any]  # arguments of the helper's

    @classmethod
    def of(
        cls, assembler: Assembler, decode: str, backend: str, threads: int, chunk: int, slots: int, weigh: bool
    ) -> Recipe:
        """For a helper that makes what this one makes."""
        quarantine = assembler.quarantine
        return cls(
            assembler.source,
            assembler.program,
            assembler.plan,
            decode,
            backend,
            quarantine.policy,
            quarantine.path,
            threads,
            chunk,
            slots,
            weigh,
            assembler.timeline.shared,
        )

    def assemblers(self) -> tuple[Assembler, Assembler]:
        """In the helper: what makes batches, and raw ones, with a quarantine list and a timeline of their own."""
        plan, rank = self.plan, self.plan.world.rank
        timeline = Timeline(**self.timeline)
        quarantine = Quarantine(
            self.quarantine, policy=self.policy, length=len(self.source), rank=rank, uri=self.source.uri
        )
        engine = engine_for(self.program, self.decode)  # type: ignore[arg-type]
        compile = importlib.import_module(self.backend).compile
        backend = compile(self.program, engine, timeline, plan.batch, self.threads, plan.world.gpu)
        assembler = Assembler(
            self.source,
            self.program,
            plan,
            engine,
            backend,
            quarantine,
            timeline,
            self.chunk,
            self.slots,
            weigh=self.weigh,
        )
        raw = self.program.raw()
        return assembler, assembler.sibling(
            raw, compile(raw, engine, timeline, plan.batch, self.threads, plan.world.gpu)
        )


class Packed:
    """A recipe in shared memory. Raises ConfigError for what does not pickle."""

    def __init__(self, recipe: Recipe) -> None:
        parts = _pickled(recipe)
        self.sizes = [part.nbytes for part in parts]
        self.fd = anonymous(0)
        self._end = weakref.finalize(self, os.close, self.fd)
        with open(self.fd, "wb", closefd=False) as file:
            for part in parts:
                file.write(part)
                file.write(bytes(-part.nbytes % _ALIGN))

    @staticmethod
    def load(fd: int, sizes: list[int]) -> Recipe:
        """In the helper."""
        starts = [0]
        for size in sizes:
            starts.append(starts[-1] + size + -size % _ALIGN)
        memory = mapped(fd, starts[-1], private=True).data
        head, *buffers = (memory[start : start + size] for start, size in zip(starts, sizes, strict=False))
        try:
            return pickle.loads(head, buffers=buffers)
        except Exception as error:  # whatever importing a module raises, or an object's own unpickling
            raise ConfigError(
                f"side_process=True: a fresh interpreter cannot load what this feed is made of: "
                f"{type(error).__name__}: {error}; put classes and functions into modules that import by themselves, "
                "or leave side_process out"
            ) from error

    def close(self) -> None:
        self._end()


class _Pickler(pickle.Pickler):
    """Remembers what it was at when it failed, and refuses what another process will not find."""

    last: Any = None

    def reducer_override(self, obj: Any) -> Any:
        self.last = obj
        if isinstance(obj, (type, types.FunctionType)) and obj.__module__ == "__main__":
            name = obj.__qualname__
            if "<" not in name:  # a lambda, or what stands inside a function, would not pickle anywhere
                raise ConfigError(
                    f"side_process=True: {name} is defined in __main__, which the helper process does not run; "
                    f"move it into a module that can be imported (a .py file of its own, then "
                    f"`from that_file import {name}`), or leave side_process out"
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
            f"side_process=True hands {_culprit(value)} to another process, but {_named(pickler.last)} in it does not "
            f"pickle: {error}; use functions and classes from the top level of a module, or leave side_process out"
        ) from error
    return [file.getbuffer(), *(buffer.raw() for buffer in buffers)]


def _culprit(recipe: Any) -> str:
    """Which field it is that does not pickle."""
    for field in fields(recipe):
        value = getattr(recipe, field.name)
        try:
            pickle.dumps(value)
        except Exception:
            return f"the {field.name} {value!r}"
    return "the feed"


def _named(obj: Any) -> str:
    if isinstance(obj, (type, types.FunctionType)):
        return f"{obj.__module__}.{obj.__qualname__}"
    return f"a {type(obj).__module__}.{type(obj).__qualname__}"
