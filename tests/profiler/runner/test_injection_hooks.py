"""Hooks of the injected recorder in this process: searches, threads and faults that must not reach
the program.
"""

from __future__ import annotations

import importlib
import importlib.util
import runpy
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fastfeed.profiler.runner.injection import FOLDER


@pytest.fixture(autouse=True)
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield
    sys.modules.pop("a_framework", None)


@pytest.fixture
def imports(tmp_path: Path) -> list[Any]:
    """Modules that were noticed."""
    from fastfeed_recorder import after_import  # type: ignore

    seen: list[Any] = []
    (tmp_path / "a_framework.py").write_text(
        "import os\nif os.environ.get('FAILS'): raise ImportError('no driver')\n"
    )
    after_import.install({"a_framework": seen.append}, lambda function, *args: function(*args))
    return seen


def test_a_library_may_look_for_a_framework_before_the_program_imports_it(imports: list[Any]):
    spec = importlib.util.find_spec("a_framework")
    assert spec is not None and not imports
    module = importlib.import_module("a_framework")
    assert imports == [module]
    importlib.reload(module)
    assert imports == [module]


def test_an_import_that_fails_may_succeed_later(
    imports: list[Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FAILS", "1")
    with pytest.raises(ImportError, match="no driver"):
        importlib.import_module("a_framework")
    monkeypatch.delenv("FAILS")
    assert imports == [] and importlib.import_module("a_framework") is imports[0]


def test_an_older_python_runs_the_program_without_a_recording(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(sys.modules, "sitecustomize", ModuleType("sitecustomize"))
    monkeypatch.setattr(sys, "version_info", (3, 8))
    runpy.run_path(str(FOLDER / "sitecustomize.py"))
    assert "nothing is recorded in process" in (error := capsys.readouterr().err)
    assert "Python 3.9 or later is needed, got 3." in error


@pytest.fixture
def window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A window that records from the first step on."""
    from fastfeed_recorder import plan, window  # type: ignore

    monkeypatch.setattr("os.register_at_fork", lambda **_: None)
    monkeypatch.setattr("atexit.register", lambda _: None)
    (tmp_path / "claims").mkdir()
    (tmp_path / "log").touch()
    fields = {
        "out": str(tmp_path),
        "log": str(tmp_path / "log"),
        "claims": str(tmp_path / "claims"),
        "name": "trace",
        "ranks": [],
    }
    fields |= {
        "recorder": "auto",
        "skip": 1,
        "steps": 3,
        "start_s": 0.0,
        "duration_s": 0.0,
        "stop_after": False,
    }
    return window.RecordingWindow(
        plan.RecordingPlan({**fields, "folder": str(FOLDER)}), plan.Log(str(tmp_path / "log"))
    )


class Optimizer:
    """A source of steps."""


class Profiler:
    """A framework's profiler, which calls back when it starts and when it ends."""

    suffix = ".trace"

    def __init__(self, start: Callable[[], Any] = int, stop: Callable[[], Any] = int) -> None:
        self.marks: list[int] = []
        self.start = lambda has_functions: start()
        self.mark = self.marks.append
        self.stop = lambda path: stop()


def choose(monkeypatch: pytest.MonkeyPatch, profiler: Profiler) -> None:
    from fastfeed_recorder import recorders  # type: ignore

    monkeypatch.setattr(recorders, "choose", lambda *_: (profiler, None))


def test_another_thread_that_trains_while_the_profiler_starts(
    window: Any, monkeypatch: pytest.MonkeyPatch
):
    optimizer = Optimizer()

    def train_elsewhere() -> None:
        thread = threading.Thread(target=window.step_ended, args=(optimizer, "torch"))
        thread.start()
        thread.join()

    profiler = Profiler(start=train_elsewhere)
    choose(monkeypatch, profiler)
    for _ in range(4):
        window.step_ended(optimizer, "torch")
    assert window.closed and profiler.marks == [1, 2, 3]


def test_a_recording_that_cannot_be_saved_leaves_the_programs_own_profiler_alone(
    window: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def fails() -> None:
        raise OSError("no space left on device")

    choose(monkeypatch, Profiler(stop=fails))
    window.step_ended(Optimizer(), "torch")
    window.step_back("the program profiles itself")
    assert window.closed and "no space left on device" in (tmp_path / "log").read_text()


def test_a_step_of_what_cannot_be_counted(window: Any):
    window.step_ended(1, "torch")  # numbers have no weak references
    assert window.closed


def test_a_version_of_jax_that_the_recorder_does_not_know(window: Any, tmp_path: Path):
    from fastfeed_recorder import jax_hooks  # type: ignore

    class Compiled:
        lower = None

        def __call__(self, x: int) -> int:
            return x + 1

    module = SimpleNamespace(jit=lambda function: Compiled(), pmap=None)
    module.pmap = module.jit
    jax_hooks.callbacks(window)["jax"](module)
    assert module.jit(abs)(2) == 3
    assert window.closed and "has no attribute 'tree_util'" in (tmp_path / "log").read_text()


def test_functions_of_tensorflow_that_other_threads_run(
    window: Any, monkeypatch: pytest.MonkeyPatch
):
    from fastfeed_recorder import tensorflow_hooks  # type: ignore

    class Function:
        def __init__(self, body: Callable[[], Any]) -> None:
            self.body = body

        def __call__(self) -> Any:
            return self.body()

    class Updates:
        def apply(self) -> None:
            pass

    steps: list[Any] = []
    monkeypatch.setattr(window, "step_ended", lambda source, framework: steps.append(source))
    callbacks = tensorflow_hooks.callbacks(window)
    callbacks["tensorflow.python.eager.polymorphic_function.polymorphic_function"](
        SimpleNamespace(Function=Function)
    )
    callbacks["keras.src.optimizers.base_optimizer"](SimpleNamespace(BaseOptimizer=Updates))
    train = Function(Updates().apply)

    def train_in_a_thread() -> None:
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()

    Function(train_in_a_thread)()
    assert steps == [train]
