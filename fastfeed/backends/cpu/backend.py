"""The CPU backend: a program on native threads."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np

from fastfeed.backends.cpu.native_program import NativeProgram
from fastfeed.backends.cpu.without_kernel import WithoutKernel
from fastfeed.decode.executor import Executor
from fastfeed.ops.program.program import Program
from fastfeed.runtime.buffers import aligned
from fastfeed.runtime.timeline import Timeline

native_threads = True
whole_batches = False


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
        finish = (
            None if program.pixels.has_kernel else WithoutKernel(self.rendered, executor, timeline)
        )
        native = NativeProgram(self.rendered, executor, timeline, program.convert, finish)
        self._python_ops = native.python_ops
        self.render_native = native.run
        self.mix = native.mix

    def synchronize(self) -> None:
        pass

    def decode_path(self) -> str:
        names = dict.fromkeys(map(repr, self._python_ops))
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
