"""Experiment trackers: metrics and files of a feed in the run of one; imports none of them."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from fastfeed.arguments import checked
from fastfeed.errors import ConfigError

_Log = Callable[[Mapping[str, float], int], object]
_Attach = Callable[[Path], object]
_Opener = Callable[[Any], tuple[_Log, _Attach | None]]

_TEXTS = (".json", ".md", ".txt")  # that TensorBoard can show


@checked
class Tracker:
    """Metrics and files in the run of an experiment tracker, whichever it is.

    Args:
        run (Any): The writer, run or meter of a tracker, as its library returned it:

            - TensorBoard: a `SummaryWriter` of PyTorch or tensorboardX, a writer of `tf.summary`
            - Weights & Biases: what `wandb.init()` returned, or `wandb`
            - MLflow: what `mlflow.start_run()` returned, or `mlflow`
            - Aim: an `aim.Run`
            - ClearML: a `clearml.Task`
            - OpenTelemetry: a `Meter`, with a gauge for each metric
            - any other: a function that is called with (metrics, step)

    Raises:
        ConfigError: If `run` is none of these, or its library has no active run.

    Example:
        >>> tracker = ff.Tracker(lambda metrics, step: print(step, dict(metrics)))
        >>> tracker.log({"feed_wait": 0.02}, step=50)
        50 {'feed_wait': 0.02}
    """

    def __init__(self, run: Any) -> None:
        names = [run.__name__] if isinstance(run, ModuleType) else _modules(run)
        for library, opened in _LIBRARIES.items():
            if any(name == library or name.startswith(f"{library}.") for name in names):
                try:
                    self._log, self._attach = opened(run)
                except AttributeError as error:
                    raise ConfigError(
                        f"run: a {type(run).__name__} of {library} logs no metrics; pass one of"
                        " those that help(ff.Tracker) lists",
                        field="run",
                    ) from error
                return
        if not callable(run) or isinstance(run, type):
            raise ConfigError(
                f"run must be of {', '.join(_LIBRARIES)}, or a function of (metrics, step), got"
                f" {type(run).__name__}; pass lambda metrics, step: ...",
                field="run",
            )
        self._log: _Log = run
        self._attach: _Attach | None = None

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Log metrics.

        Args:
            metrics (Mapping[str, float]): Values by name.
            step (int): Training steps until now.
        """
        self._log(metrics, step)

    def artifact(self, path: str | os.PathLike[str]) -> None:
        """Attach a file to the run, such as a report of `fastfeed prove` or `fastfeed analyze`.

        TensorBoard shows texts alone: there, pass the JSON or Markdown.

        Args:
            path (str | os.PathLike[str]): The file.

        Raises:
            ConfigError: If the file does not exist, or the tracker does not take such files.

        Example:
            >>> tracker.artifact("proof.html")  # doctest: +SKIP
        """
        file = Path(path)
        if not file.is_file():
            raise ConfigError.of("path", "an existing file", str(file))
        if self._attach is None:
            raise ConfigError(
                f"path: this tracker takes no files, got {file.name}; attach it by other means",
                field="path",
            )
        self._attach(file)


def as_tracker(run: Any) -> Tracker | None:
    """The tracker of a run; a Tracker and None as they are."""
    return run if run is None or isinstance(run, Tracker) else Tracker(run)


def _modules(run: Any) -> list[str]:
    """Modules of the class of an object, and of the classes that it is derived from."""
    return [kind.__module__ for kind in type(run).__mro__]


def _each(log_one: Callable[[str, float, int], object]) -> _Log:
    """Logs metrics one by one."""

    def log(metrics: Mapping[str, float], step: int) -> None:
        for name, value in metrics.items():
            log_one(name, value, step)

    return log


def _summary_writer(writer: Any) -> tuple[_Log, _Attach]:
    return _each(writer.add_scalar), lambda path: writer.add_text(path.name, _as_code(path))


def _tf_summary(writer: Any) -> tuple[_Log, _Attach]:
    summary = importlib.import_module("tensorflow").summary
    as_default = writer.as_default

    def log(metrics: Mapping[str, float], step: int) -> None:
        with as_default():
            for name, value in metrics.items():
                summary.scalar(name, value, step=step)

    def attach(path: Path) -> None:
        with as_default():
            summary.text(path.name, _as_code(path), step=0)

    return log, attach


def _as_code(path: Path) -> str:
    """A text file as a code block in Markdown."""
    if path.suffix not in _TEXTS:
        raise ConfigError.of("path", f"a file {', '.join(_TEXTS)} for TensorBoard", path.name)
    return "".join(f"    {line}\n" for line in path.read_text("utf-8").splitlines())


def _wandb(run: Any) -> tuple[_Log, _Attach]:
    if isinstance(run, ModuleType):
        run = _active(run.run, "wandb", "wandb.init()")
    # a separate axis: a step of the run that is not the newest would be dropped
    run.define_metric("feed_*", step_metric="feed_step")

    def log(metrics: Mapping[str, float], step: int) -> None:
        run.log({**metrics, "feed_step": step})

    def attach(path: Path) -> None:
        name = re.sub(r"[^\w.-]", "_", path.name)
        run.log_artifact(str(path), name=name, type="report")

    return log, attach


def _mlflow(run: Any) -> tuple[_Log, _Attach]:
    mlflow = importlib.import_module("mlflow")
    if isinstance(run, ModuleType):
        run = _active(mlflow.active_run(), "mlflow", "mlflow.start_run()")
    run_id = run.info.run_id  # other threads have no active run

    def log(metrics: Mapping[str, float], step: int) -> None:
        mlflow.log_metrics(dict(metrics), step=step, run_id=run_id)

    return log, lambda path: mlflow.log_artifact(str(path), run_id=run_id)


def _active(run: Any, library: str, start: str) -> Any:
    if run is None:
        raise ConfigError(f"run: {library} has no active run; call {start} first", field="run")
    return run


def _aim(run: Any) -> tuple[_Log, _Attach]:
    track = run.track
    log = _each(lambda name, value, step: track(value, name=name, step=step))
    return log, lambda path: run.log_artifact(str(path), name=path.name)


def _clearml(task: Any) -> tuple[_Log, _Attach]:
    report = task.get_logger().report_scalar
    log = _each(lambda name, value, step: report(name, "fastfeed", value, step))
    return log, lambda path: task.upload_artifact(path.name, path)


def _meter(meter: Any) -> tuple[_Log, None]:
    gauge = cache(meter.create_gauge)
    return _each(lambda name, value, _: gauge(name).set(value)), None


# module of the class of a run, or the module that is passed itself -> what logs and attaches
_LIBRARIES: dict[str, _Opener] = {
    "torch.utils.tensorboard": _summary_writer,
    "tensorboardX": _summary_writer,
    "tensorflow": _tf_summary,
    "wandb": _wandb,
    "mlflow": _mlflow,
    "aim": _aim,
    "clearml": _clearml,
    "opentelemetry": _meter,
}
