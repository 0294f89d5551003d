"""The recorded steps: counts training steps, starts and stops a recorder between them."""

from __future__ import annotations

import _thread
import atexit
import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from fastfeed_recorder import recorders
from fastfeed_recorder.plan import Log, RecordingPlan

_SILENT = 50  # steps of others, after which the source that was counted has ended
_MIN_STEPS = 5  # recorded before one of the limits below ends the recording
_MAX_S = 30.0  # of recording

_CALLS = ("call", "c_call")
_MAX_CALLS = 600_000  # to record: torch.profiler took 1.5 kB for each when it ended


class CallCount:
    """Calls of this thread in one step; 0 if something else traces calls already."""

    def __init__(self) -> None:
        self._count = 0
        self._is_active = False

    def begin(self) -> None:
        """Begin to count calls, unless a profiler is active."""
        if sys.getprofile() is None:
            self._is_active = True
            sys.setprofile(self._see)

    def end(self) -> None:
        """Stop counting; another profiler stays active."""
        self._is_active = False
        if sys.getprofile() == self._see:
            sys.setprofile(None)

    def steps(self, wanted: int, least: int) -> tuple[int, bool]:
        """Steps to record, and whether with the functions that they call.

        Args:
            wanted: Steps that the user wants.
            least: Steps that are recorded even if they call more than fits; with twice as much
                without functions.
        """
        affordable = _MAX_CALLS // max(self._count, 1)
        if 2 * affordable < min(wanted, least):
            return wanted, False
        return min(wanted, max(affordable, least)), True

    def _see(self, frame: Any, event: str, argument: Any) -> None:
        if not self._is_active:  # ended by another thread
            sys.setprofile(None)
        elif event in _CALLS:
            self._count += 1


class RecordingWindow:
    """The recorded part of this process's training."""

    def __init__(self, plan: RecordingPlan, log: Log) -> None:
        self.plan = plan
        self._log = log
        self._source: Any = None  # a weak reference to what ends the counted steps
        self._priority = -1
        self._others = 0  # steps of other sources since the last of the counted
        self._count = 0  # steps that have ended
        self._first = 0  # the first recorded step
        self._recorder: Any = None
        self._thread = 0  # the one whose steps are recorded; 0 before recording begins
        self._pid = os.getpid()
        self._began_s = 0.0
        self._calls = CallCount()
        self._steps = plan.steps
        self._frameworks: list[str] = []
        self._unwanted: set[str] = set()
        self._closed = False
        os.register_at_fork(after_in_child=self._forked)
        atexit.register(self._exit)

    @property
    def closed(self) -> bool:
        """True when no more steps are counted."""
        return self._closed

    def imported(self, framework: str) -> None:
        """Note that the program uses a framework."""
        self._frameworks.append(framework)
        self._log.write("framework", name=framework)

    def step_ended(self, source: Any, framework: str, priority: int = 1) -> None:
        """Count the end of a training step.

        Args:
            source: What ended it: an optimizer, a compiled function. One of them is counted, the
                others are ignored.
            framework: "torch", "jax" or "tensorflow".
            priority: Sources of a higher one replace those of a lower one before recording has
                begun.
        """
        if (
            not self._closed
            and self.attempt(self._count_step, source, framework, priority)
            and self.plan.stop_after
        ):
            self._end_program()

    def step_back(self, reason: str) -> None:
        """Stop and keep the recording because the program is about to profile itself."""
        if self._recorder is not None and not self._closed:
            self._log.write("note", text=reason)
            self.attempt(self._stop)

    def attempt(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return `function(*args)`; None, and no further recording, if it raises."""
        try:
            return function(*args)
        except Exception as error:
            self._closed = True
            self._recorder = None
            self._log.write("failed", text=(str(error) or type(error).__name__).splitlines()[0])
            return None

    def _count_step(self, source: Any, framework: str, priority: int) -> bool:
        """Count one step, if it is of the counted source.

        True when the last step has been recorded.
        """
        if not self._is_wanted(framework) or not self._is_counted(source, priority):
            return False
        self._count += 1
        return self._advance(framework)

    def _is_wanted(self, framework: str) -> bool:
        if self.plan.recorder in ("auto", "nvtx", framework):
            return True
        if framework not in self._unwanted:
            self._unwanted.add(framework)
            self._log.write("unwanted", framework=framework)
        return False

    def _is_counted(self, source: Any, priority: int) -> bool:
        if self._thread and threading.get_ident() != self._thread:
            return False
        counted = self._source() if self._source is not None else None
        if counted is source:
            self._others = 0
            return True
        self._others += 1
        is_better = priority > self._priority and self._recorder is None
        if counted is not None and not is_better and self._others <= _SILENT:
            return False
        if is_better:
            self._count = 0
        self._source = weakref.ref(source)
        self._priority = max(priority, self._priority)
        self._others = 0
        return True

    def _advance(self, framework: str) -> bool:
        """Start, mark or stop. True when the last step has been recorded."""
        self._calls.end()
        if self._recorder is None:
            if self._count >= self.plan.skip and time.monotonic() >= self.plan.start_s:
                self._start(framework)
            elif self._count == self.plan.skip - 1:
                self._calls.begin()
            return False
        if self._is_full(self._count - self._first):
            self._stop()
            return True
        self._recorder.mark(self._count)
        return False

    def _is_full(self, recorded: int) -> bool:
        plan = self.plan
        if not plan.steps:
            return False
        seconds = time.monotonic() - self._began_s
        if recorded >= self._steps or (plan.duration_s and seconds > plan.duration_s):
            return True
        return recorded >= _MIN_STEPS and seconds > _MAX_S

    def _start(self, framework: str) -> None:
        self._thread = threading.get_ident()
        self.plan.restore_environment()
        recorder, rank = recorders.choose(self.plan.recorder, framework, self)
        name = self.plan.named(rank)
        try:
            os.mkdir(os.path.join(self.plan.claims, name))
        except OSError:  # another process of this rank records, or the run has ended
            self._closed = True
            return
        self._log.write("begin", framework=framework, name=name)
        self._name = name
        self._began_s = time.monotonic()
        self._first = self._count
        self._steps, has_functions = self._calls.steps(self.plan.steps, _MIN_STEPS)
        if not has_functions:
            self._log.write(
                "note", text="functions are not recorded, because a step calls too many of them"
            )
        recorder.start(has_functions)
        self._recorder = recorder
        # again: before the framework's own, which were registered meanwhile
        atexit.register(self._exit)
        recorder.mark(self._count)

    def _stop(self) -> None:
        recorder = self._recorder
        self._recorder = None
        self._closed = True
        path = os.path.join(self.plan.out, self._name + recorder.suffix)
        if recorder.stop(path):
            self._log.write("trace", path=path, name=self._name, steps=self._count - self._first)

    def _end_program(self) -> None:
        if threading.current_thread() is threading.main_thread():
            raise SystemExit(0)
        _thread.interrupt_main()

    def _exit(self) -> None:
        if os.getpid() != self._pid:
            return
        if self._recorder is not None and not self._closed:
            with contextlib.suppress(KeyboardInterrupt):
                self.attempt(self._stop)
        if self._frameworks:
            self._log.write("exit", steps=self._count)
        self._frameworks = []

    def _forked(self) -> None:
        """Leave workers of loaders alone; a child of a process that does not train may train."""
        self._calls.end()
        if self._recorder is not None:
            with contextlib.suppress(Exception):
                self._recorder.forked()
        if self._count:
            self._closed = True
            self._recorder = None
        self._pid = os.getpid()
        if self._closed:
            self._frameworks = []
