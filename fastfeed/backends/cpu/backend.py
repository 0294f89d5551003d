"""The CPU backend: a program on native threads."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from fastfeed.backends.cpu.native_program import NativeProgram
from fastfeed.backends.cpu.without_kernel import WithoutKernel
from fastfeed.decode.base import DecodeFailure, Stop
from fastfeed.decode.executor import Executor, Samples
from fastfeed.ops.mix import MixPlan
from fastfeed.ops.program.program import Program, Work
from fastfeed.runtime.buffers import aligned
from fastfeed.runtime.timeline import Timeline

native_threads = True
whole_batches = False

_STAGES = ("decode", "augment", "convert")  # of native threads, in the order of their spans


class CpuBackend:
    """One rank's program on its native threads; functions of users run in Python."""

    memory_name = "memory"
    xp: Any = np
    empty = staticmethod(aligned)
    device_context = staticmethod(nullcontext)

    def __init__(self, program: Program, executor: Executor, timeline: Timeline) -> None:
        # samples are mixed as bytes: a quarter of the memory, and a lookup table converts the
        # result
        self.rendered = program if program.mix is None else program.raw()
        self._executor = executor
        self._timeline = timeline
        finish = None
        if not program.pixels.has_kernel:
            finish = WithoutKernel(self.rendered, executor)
        self._native = NativeProgram(self.rendered, program.convert, executor, finish)

    def render_native(
        self,
        samples: Samples,
        skip: np.ndarray,
        work: Work,
        out: np.ndarray,
        stop: Stop,
        batch: int = 0,
    ) -> dict[int, DecodeFailure]:
        """Fill rows of `out`, except those in `skip` (bool (n,)); returns row -> failure."""
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
        record = partial(self._timeline.record_native, batch, ("mix",))
        self._native.mix(samples, members, plan, out, stop, record)

    def synchronize(self) -> None:
        pass

    def decode_path(self) -> str:
        names = dict.fromkeys(map(repr, self._native.python_ops))
        in_python = f"; in Python: {', '.join(names)}" if names else ""
        if not self.rendered.pixels.has_kernel:
            return f"{self._executor.name} and NumPy, all channels and bits"
        return f"{self._executor.name} -> native threads{in_python}"


def compile(
    program: Program,
    executor: Executor,
    timeline: Timeline,
    batch: int,
    gpu: int = 0,
    decode: Any = "auto",
) -> CpuBackend:
    """The entry point of BACKENDS["cpu"]."""
    return CpuBackend(program, executor, timeline)


def engine(decode: Any) -> Any:
    """The `decode` argument of `open_executor`."""
    return decode
