"""The frameworks' own profilers: started, marked at each step, and saved."""

from __future__ import annotations

import contextlib
import functools
import glob
import os
import shutil
import sys
import tempfile
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
    """Records with torch.profiler and Python frames."""

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


class _XplaneRecorder:
    """A profiler that writes a folder with an .xplane.pb."""

    suffix = ".xplane.pb"

    def __init__(
        self, window: Any, label: str, begin: Any, end: Any, annotate: Any, entrances: Any
    ) -> None:
        """Functions of the framework.

        Args:
            window: What is recorded.
            label: Name of the profiler.
            begin: Starts it; called with a folder, and 1 to record functions, else 0.
            end: Stops it.
            annotate: Makes a context manager that marks a step.
            entrances: Functions, by module, through which the program would start a profiler.
        """
        self._window = window
        self._label = label
        self._begin = begin
        self._end = end
        self._annotate = annotate
        self._entrances = entrances
        self._mark: Any = None

    def start(self, has_functions: bool) -> None:
        self._folder = tempfile.mkdtemp(prefix="fastfeed-")
        self._begin(self._folder, int(has_functions))
        reason = _OWN.format(self._label)
        self._guard = _Guard(self._entrances, lambda: self._window.step_back(reason))

    def mark(self, step: int) -> None:
        self._end_step()
        self._mark = self._annotate("ProfilerStep", step_num=step)
        self._mark.__enter__()

    def stop(self, path: str) -> bool:
        self._guard.remove()
        self._end_step()
        try:
            self._end()
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

    def _end_step(self) -> None:
        if self._mark is not None:
            self._mark.__exit__(None, None, None)


def _jax_recorder(window: Any) -> _XplaneRecorder:
    import jax
    import jax._src.profiler

    profiler = jax.profiler

    def begin(folder: str, python_level: int) -> None:
        if not hasattr(profiler, "ProfileOptions"):  # before 0.5 or so: with functions
            profiler.start_trace(folder)
            return
        options = profiler.ProfileOptions()
        options.python_tracer_level = python_level
        profiler.start_trace(folder, profiler_options=options)

    entrances = [(profiler, "start_trace"), (jax._src.profiler, "start_trace")]
    annotate = profiler.StepTraceAnnotation
    return _XplaneRecorder(window, "jax.profiler", begin, profiler.stop_trace, annotate, entrances)


def _tensorflow_recorder(window: Any) -> _XplaneRecorder:
    import tensorflow as tf

    profiler = tf.profiler.experimental

    def begin(folder: str, python_level: int) -> None:
        # 2.21 records none
        options = profiler.ProfilerOptions(python_tracer_level=python_level)
        profiler.start(folder, options=options)

    annotate = functools.partial(profiler.Trace, _r=1)
    entrances = [(profiler, "start")]
    return _XplaneRecorder(
        window, "TensorFlow's profiler", begin, profiler.stop, annotate, entrances
    )


_RECORDERS: dict[str, Any] = {
    "torch": _TorchRecorder,
    "jax": _jax_recorder,
    "tensorflow": _tensorflow_recorder,
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
