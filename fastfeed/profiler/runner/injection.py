"""The recorder that the command's own Python loads from PYTHONPATH, and its messages."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastfeed.profiler.runner import environment
from fastfeed.profiler.runner.settings import RANKS, RecordingSettings

FOLDER = Path(__file__).with_name("injected")
FRAMEWORKS = ("torch", "jax", "tensorflow")
_VARIABLE = "FASTFEED_RECORD"
_AFTER_IMPORT = "FASTFEED_AFTER_IMPORT"
_NAMES = {"torch": "PyTorch", "jax": "JAX", "tensorflow": "TensorFlow", "keras": "Keras"}


class Injection:
    """The environment of a command that records itself, and its messages."""

    def __init__(
        self, settings: RecordingSettings, recorder: str, name: str, scratch: Path
    ) -> None:
        self._settings = settings
        self._recorder = recorder  # auto, torch, jax, tensorflow; nvtx: ranges for nsys
        self._name = name
        self._log = scratch / "log"
        self._claims = scratch / "claims"
        self._log.touch()
        self._claims.mkdir()

    def plan(self) -> str:
        """The JSON object that the injected code reads from FASTFEED_RECORD."""
        settings = self._settings
        limits = {
            "skip": settings.skip_steps,
            "steps": settings.record_steps,
            "start_s": time.monotonic() + settings.delay,
            "duration_s": settings.duration,
        }
        if self._recorder == "nvtx":  # nsys records, with separate limits
            limits = dict.fromkeys(limits, 0)
        fields = {
            "folder": str(FOLDER),
            "out": str(settings.out),
            "log": str(self._log),
            "claims": str(self._claims),
            "name": self._name,
            "ranks": RANKS,
            "recorder": self._recorder,
            **limits,
            "stop_after": settings.stop_after,
        }
        return json.dumps(fields)

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment of the command."""
        return {**environ, _VARIABLE: self.plan(), "PYTHONPATH": _python_path(environ)}

    def variables(self) -> dict[str, str]:
        """Variables for a command under nsys, whose own folders on PYTHONPATH come after ours."""
        return {_VARIABLE: self.plan(), "FASTFEED_PYTHON": str(FOLDER)}

    def notes(self, code: int) -> tuple[str, ...]:
        """Sentences for the user: why there is no recording, or why it is shorter than wanted."""
        messages = self._messages()
        texts = [str(message["text"]) for message in messages if message["event"] == "note"]
        failure = "the recording failed"
        if self._recorder == "nvtx":
            failure = "steps and loaders are not marked"
        failed = [message["text"] for message in messages if message["event"] == "failed"]
        texts += [f"{failure}: {text}" for text in failed]
        is_recorded = any(message["event"] == "trace" for message in messages)
        if not texts and not is_recorded and self._recorder != "nvtx":
            texts.append(f"no training step was recorded: {self._explain_no_trace(messages, code)}")
        return tuple(dict.fromkeys(texts))

    def _messages(self) -> list[dict[str, Any]]:
        messages = []
        for line in self._log.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):  # torn by the end of its process
                messages.append(json.loads(line))
        return messages

    def _explain_no_trace(self, messages: Sequence[Mapping[str, Any]], code: int) -> str:
        by_event: dict[str, list[Mapping[str, Any]]] = {}
        for message in messages:
            by_event.setdefault(message["event"], []).append(message)
        if "python" not in by_event:
            return (
                "the command runs no Python 3.9 or later that reads PYTHONPATH; to record programs"
                f" of other languages, {environment.system()}"
            )
        frameworks = list(
            dict.fromkeys(_NAMES[message["name"]] for message in by_event.get("framework", ()))
        )
        if not frameworks:
            return "the command imports neither PyTorch, JAX, TensorFlow nor Keras"
        if "unwanted" in by_event and "begin" not in by_event:
            framework = by_event["unwanted"][0]["framework"]
            return (
                f"the command trains with {_NAMES[framework]}, got --with {self._recorder};"
                f" use --with {framework} or --with auto"
            )
        if "begin" in by_event:
            return f"{_how_ended(code)} while its steps were recorded"
        if "exit" not in by_event:
            return f"{_how_ended(code)} before its training steps were recorded"
        steps = max(message["steps"] for message in by_event["exit"])
        if steps >= self._settings.skip_steps:
            return f"the command ended within --delay {self._settings.delay}; lower it"
        if steps:
            return (
                f"the command took {steps} training steps, and the first"
                f" {self._settings.skip_steps} are skipped; lower --skip-steps"
            )
        return f"the command imports {' and '.join(frameworks)} and takes no training step"


def after_import(functions: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Variables with which a command calls functions when it has imported modules.

    Args:
        functions: "package.module:function" by the name of the module after whose import it is
            called with that module.
        environ: The environment so far.
    """
    return {_AFTER_IMPORT: json.dumps(dict(functions)), "PYTHONPATH": _python_path(environ)}


@contextlib.contextmanager
def injected(settings: RecordingSettings, recorder: str, name: str) -> Iterator[Injection]:
    """The recorder of one rank.

    Args:
        settings: What to record.
        recorder: "torch", "jax", "tensorflow"; "auto", the one that trains; "nvtx", ranges for
            nsys.
        name: Of the trace.
    """
    with tempfile.TemporaryDirectory(prefix="fastfeed-", ignore_cleanup_errors=True) as scratch:
        yield Injection(settings, recorder, name, Path(scratch))


def _python_path(environ: Mapping[str, str]) -> str:
    path = environ.get("PYTHONPATH")
    return f"{FOLDER}{os.pathsep}{path}" if path else str(FOLDER)


def _how_ended(code: int) -> str:
    if code <= 128:
        return "the command ended without its exit handlers"
    try:
        return f"the command was ended by {signal.Signals(code - 128).name}"
    except ValueError:
        return f"the command ended with code {code}"
