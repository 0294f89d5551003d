"""The contracts between the feed and the code that runs a program, one per caller in the feed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fastfeed.decode.base import DecodeFailure, Stop
from fastfeed.decode.executor import Executor, Samples
from fastfeed.ops.mix import MixPlan
from fastfeed.ops.program.program import Program, Work
from fastfeed.runtime.timeline import Timeline


class Backend(Protocol):
    """A program compiled for a device."""

    # the program of rendered samples: where they are mixed, conversion comes afterwards
    rendered: Program
    xp: Any  # NumPy, or the module with its functions for arrays in the memory of batches
    memory_name: str  # "memory", "the memory of GPU 0"

    def render_native(
        self,
        samples: Samples,
        skip: np.ndarray,  # bool (n,)
        work: Work,
        out: Any,
        stop: Stop,
        batch: int = 0,  # its number, for the timeline
        /,
    ) -> dict[int, DecodeFailure]:
        """Decode and augment samples held by native threads into `out` (n, *rendered.shape).

        Not those in `skip`. Returns the failures by row; rows of bad samples are undefined.
        """
        ...

    def mix(
        self,
        samples: Any,
        members: np.ndarray,
        plan: MixPlan,
        out: Any,
        stop: Stop,
        batch: int = 0,
        /,
    ) -> None:
        """Mix rendered samples into finished ones in `out`.

        `members` (int64 (n, group)) are rows of `samples`.
        """
        ...

    def empty(self, shape: tuple[int, ...], dtype: str, /) -> Any:
        """An array for batches, with undefined content."""
        ...

    def device_context(self) -> AbstractContextManager[None]:
        """Every thread enters this before it writes to a batch."""
        ...

    def synchronize(self) -> None:
        """Wait until all writes to batches are visible to every thread and stream."""
        ...

    def decode_path(self) -> str:
        """The path from bytes to pixels, in words."""
        ...


class BackendModule(Protocol):
    """A module that compiles programs, named in the table `BACKENDS`."""

    native_threads: bool  # tasks wait for native threads most of the time
    whole_batches: (
        bool  # they take whole batches at once; otherwise any rows of one, from many threads
    )

    def compile(
        self,
        program: Program,
        executor: Executor,
        timeline: Timeline,
        batch: int,  # samples that `render_native` is given at most
        gpu: int = 0,
        decode: Any = "auto",  # as `Feed` takes it
    ) -> Backend: ...

    def engine(self, decode: Any, /) -> Any:
        """The `decode` argument of `open_executor`, for decoding on the CPU."""
        ...


if TYPE_CHECKING:  # the type checker tests every backend against these contracts here
    from fastfeed.backends.cpu import backend as cpu
    from fastfeed.backends.dali import backend as dali
    from fastfeed.backends.nvjpeg import backend as nvjpeg

    _MODULES: tuple[BackendModule, ...] = (cpu, dali, nvjpeg)
