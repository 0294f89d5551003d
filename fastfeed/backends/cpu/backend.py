"""The CPU backend: on native threads where there are any, and otherwise in NumPy and OpenCV."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from fastfeed.backends.cpu.native_program import NativeProgram
from fastfeed.decode.base import Bad, DecodeEngine, Header, Stop
from fastfeed.decode.executor import Executor, Samples
from fastfeed.ops.mix_plan import MixPlan
from fastfeed.ops.program.program import Program, Work
from fastfeed.runtime.buffers import aligned
from fastfeed.runtime.kernel import is_built
from fastfeed.runtime.timeline import Timeline

__all__ = ["CpuBackend", "compile", "engine", "native_threads", "whole_batches"]

native_threads = True
whole_batches = False

_STAGES = ("decode", "augment", "convert")  # of native threads, in the order of their spans


class CpuBackend:
    """Samples become bytes, the chain changes them, and one pass converts them."""

    memory_name = "memory"
    xp: Any = np
    empty = staticmethod(aligned)
    device_context = staticmethod(nullcontext)

    def __init__(
        self,
        program: Program,
        engine: DecodeEngine,
        timeline: Timeline,
        executor: Executor | None = None,
    ) -> None:
        # samples are mixed as bytes: a quarter of the memory, and a lookup table converts the
        # result
        self.rendered = program if program.mix is None else program.raw()
        self._engine, self._timeline = engine, timeline
        self._native = self._reference = None
        if executor is not None:
            self._native = NativeProgram(self.rendered, program.convert, executor)
        else:  # which loads OpenCV
            reference = importlib.import_module("fastfeed.backends.cpu.reference").Reference
            self._reference = reference(self.rendered, program.convert, engine, timeline)

    def render(
        self,
        blobs: Sequence[Any],
        headers: Sequence[Header],
        work: Work,
        out: np.ndarray,
        stop: Stop,
        batch: int = 0,
    ) -> list[Bad | None]:
        assert self._reference is not None
        return self._reference.render(blobs, headers, work, out, stop, batch)

    def render_native(
        self,
        samples: Samples,
        skip: np.ndarray,
        work: Work,
        out: np.ndarray,
        stop: Stop,
        batch: int = 0,
    ) -> dict[int, Bad]:
        """`render` of samples that native threads hold, but for those to be skipped (bool (n,))."""
        assert self._native is not None
        record = partial(self._timeline.record_native, batch, _STAGES)
        return self._native.run(samples, skip, work, out, stop, record)

    def mix(
        self,
        samples: np.ndarray,
        members: np.ndarray,
        plan: MixPlan,
        out: np.ndarray,
        stop: Stop,
        batch: int = 0,
    ) -> None:
        if self._native is not None:
            record = partial(self._timeline.record_native, batch, ("mix",))
            self._native.mix(samples, members, plan, out, stop, record)
        else:
            assert self._reference is not None
            self._reference.mix(samples, members, plan, out, batch)

    def synchronize(self) -> None:
        pass

    def decode_path(self) -> str:
        name = self._engine.name
        if self._native is None:
            why = (
                ""
                if is_built()
                else ", because the kernel is not built (`fastfeed doctor` says how)"
            )
            return f"{name} -> in Python with OpenCV{why}"
        names = dict.fromkeys(map(repr, self._native.python_ops))
        return f"{name} -> native threads{'; in Python: ' if names else ''}{', '.join(names)}"


def compile(
    program: Program,
    engine: DecodeEngine,
    timeline: Timeline,
    batch: int,
    threads: int,
    gpu: int = 0,
    decode: Any = "auto",
    executor: Executor | None = None,
) -> CpuBackend:
    """The entry point of BACKENDS["cpu"]."""
    return CpuBackend(program, engine, timeline, executor)


def engine(decode: Any) -> Any:
    """The `decode` argument for `decode.engine_for`."""
    return decode
