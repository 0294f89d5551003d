"""The frameworks' own profilers: started, marked at each step, and saved."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

_OWN = (
    "the program profiles itself with {}, which ended the recording; fastfeed analyze reads its"
    " trace"
)


def choose(wanted: str, framework: str, window: Any) -> tuple[Any, int | None]:
    """The recorder of a framework, and this process's rank, None if unknown."""
    from fastfeed_recorder.nvtx import NvtxRecorder

    rank = _RANKS[framework]()
    if wanted == "nvtx":
        return NvtxRecorder(), rank
    return _RECORDERS[framework](window), rank


class _TorchRecorder:
    """torch.profiler with Python frames."""

    suffix = ".torch.json.gz"

    def __init__(self, window: Any) -> None:
        self._window = window
        self._mark: Any = None

    def start(self, has_functions: bool) -> None:
        import torch
        import torch.autograd.profiler as autograd_profiler
        from torch.profiler import ProfilerActivity, profile

        if torch.autograd._profiler_enabled():
            raise RuntimeError(
                "the program profiles itself with torch.profiler; fastfeed analyze reads its trace"
            )
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_initialized():
            activities.append(ProfilerActivity.CUDA)
        elif hasattr(torch, "xpu") and torch.xpu.is_initialized():
            activities.append(ProfilerActivity.XPU)
        self._profile = profile(
            activities=activities, with_stack=has_functions and sys.getprofile() is None
        )
        with _silent_kineto():
            self._profile.start()
        self._guard = _Guard(
            [(autograd_profiler, "_prepare_profiler"), (autograd_profiler, "_enable_profiler")],
            lambda: self._window.step_back(_OWN.format("torch.profiler")),
        )

    def mark(self, step: int) -> None:
        import torch

        self._end_step()
        self._mark = torch.autograd.profiler.record_function(f"ProfilerStep#{step}")
        self._mark.__enter__()

    def stop(self, path: str) -> bool:
        self._guard.remove()
        self._end_step()
        self._profile.stop()
        partial = os.path.join(os.path.dirname(path), "." + os.path.basename(path))
        try:
            self._profile.export_chrome_trace(partial)
            os.replace(partial, path)
        finally:
            with contextlib.suppress(OSError):  # renamed, or never made
                os.remove(partial)
        return True

    def forked(self) -> None:
        """Do not trace in a child process, such as a loader's worker."""
        import torch

        sys.setprofile(None)
        torch.autograd._enable_record_function(False)

    def _end_step(self) -> None:
        if self._mark is not None:
            self._mark.__exit__(None, None, None)


@contextlib.contextmanager
def _silent_kineto() -> Iterator[None]:
    """Keep Kineto from logging its start: it reads its level from the environment once."""
    before = os.environ.get("KINETO_LOG_LEVEL")
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    try:
        yield
    finally:
        if before is None:
            del os.environ["KINETO_LOG_LEVEL"]


class _XplaneRecorder(ABC):
    """A profiler that writes a folder with an .xplane.pb."""

    suffix = ".xplane.pb"
    label = ""

    def __init__(self, window: Any) -> None:
        self._window = window
        self._mark: Any = None

    def start(self, has_functions: bool) -> None:
        self._folder = tempfile.mkdtemp(prefix="fastfeed-")
        self.begin(self._folder, int(has_functions))
        self._guard = _Guard(
            self.entrances(), lambda: self._window.step_back(_OWN.format(self.label))
        )

    def mark(self, step: int) -> None:
        self._end_step()
        self._mark = self.annotation(step)
        self._mark.__enter__()

    def stop(self, path: str) -> bool:
        self._guard.remove()
        self._end_step()
        try:
            self.end()
            traces = glob.glob(
                os.path.join(glob.escape(self._folder), "**", "*.xplane.pb"), recursive=True
            )
            if traces:
                shutil.move(traces[0], path)
            return bool(traces)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def forked(self) -> None:
        """Drop the mark of the parent's step in a forked child, whose threads do not record."""
        self._mark = None

    @abstractmethod
    def begin(self, folder: str, python_level: int) -> None:
        """Start the framework's profiler; its files go into the folder."""

    @abstractmethod
    def end(self) -> None:
        """Stop the framework's profiler."""

    @abstractmethod
    def annotation(self, step: int) -> Any:
        """Context manager that marks one step."""

    @abstractmethod
    def entrances(self) -> Sequence[tuple[Any, str]]:
        """Functions through which the program would start a profiler."""

    def _end_step(self) -> None:
        if self._mark is not None:
            self._mark.__exit__(None, None, None)


class _JaxRecorder(_XplaneRecorder):
    label = "jax.profiler"

    def begin(self, folder: str, python_level: int) -> None:
        import jax

        if not hasattr(jax.profiler, "ProfileOptions"):  # before 0.5 or so: with functions
            jax.profiler.start_trace(folder)
            return
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = python_level
        jax.profiler.start_trace(folder, profiler_options=options)

    def end(self) -> None:
        import jax

        jax.profiler.stop_trace()

    def annotation(self, step: int) -> Any:
        import jax

        return jax.profiler.StepTraceAnnotation("ProfilerStep", step_num=step)

    def entrances(self) -> Sequence[tuple[Any, str]]:
        import jax
        import jax._src.profiler

        return [(jax.profiler, "start_trace"), (jax._src.profiler, "start_trace")]


class _TensorFlowRecorder(_XplaneRecorder):
    label = "TensorFlow's profiler"

    def begin(self, folder: str, python_level: int) -> None:
        import tensorflow as tf

        # 2.21 records none
        options = tf.profiler.experimental.ProfilerOptions(python_tracer_level=python_level)
        tf.profiler.experimental.start(folder, options=options)

    def end(self) -> None:
        import tensorflow as tf

        tf.profiler.experimental.stop()

    def annotation(self, step: int) -> Any:
        import tensorflow as tf

        return tf.profiler.experimental.Trace("ProfilerStep", step_num=step, _r=1)

    def entrances(self) -> Sequence[tuple[Any, str]]:
        import tensorflow as tf

        return [(tf.profiler.experimental, "start")]


_RECORDERS: dict[str, Any] = {
    "torch": _TorchRecorder,
    "jax": _JaxRecorder,
    "tensorflow": _TensorFlowRecorder,
}


class _Guard:
    """Functions that call another one before they run."""

    def __init__(self, functions: Sequence[tuple[Any, str]], before: Any) -> None:
        self._originals = [(module, name, getattr(module, name)) for module, name in functions]
        for module, name, original in self._originals:
            setattr(module, name, _preceded(original, before))

    def remove(self) -> None:
        for module, name, original in self._originals:
            setattr(module, name, original)


def _preceded(function: Any, before: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        before()
        return function(*args, **kwargs)

    return call


def _torch_rank() -> int | None:
    distributed = sys.modules.get("torch.distributed")
    with contextlib.suppress(Exception):  # not initialized, or built without
        if (
            distributed is not None
            and distributed.is_initialized()
            and distributed.get_world_size() > 1
        ):
            return distributed.get_rank()
    return None


def _jax_rank() -> int | None:
    jax = sys.modules["jax"]
    return jax.process_index() if jax.process_count() > 1 else None


_RANKS = {"torch": _torch_rank, "jax": _jax_rank, "tensorflow": lambda: None}
