"""Runs of a trainer, on one rank or several, with FASTFEED_PROVE set."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fastfeed.errors import ProofError
from fastfeed.feed.session import PROVE
from fastfeed.printable import plural
from fastfeed.profiler.runner.foreground import descendants
from fastfeed.profiler.runner.injection import after_import
from fastfeed.proof.measure.record import ProofRecord
from fastfeed.proof.measure.session import ProofJob
from fastfeed.proof.report.sentences import shown
from fastfeed.proof.result import Proof
from fastfeed.proof.run.data_loaders import AFTER_IMPORT
from fastfeed.proof.run.trainer import OTHERS, PROBLEM, complete_name, record_name, write_job
from fastfeed.system.processes import process_state
from fastfeed.system.signals import ENDING, describe_exit, is_kill

_POLL_S = 0.1
_AFTER_S = 60.0  # that a trainer may take to exit when its proof is complete
_INTERRUPTED_S = 5.0  # the same after Ctrl-C, which the terminal sends to the trainer as well
_KILL_S = 10.0  # after SIGTERM


@dataclass(frozen=True, slots=True)
class TrainerRun:
    """Files and exit code that a run of the trainer has left."""

    code: int  # the first exit code that is not 0; negative: the signal that killed it
    records: tuple[ProofRecord, ...]  # by rank; those that have begun
    others: tuple[str, ...]  # feeds that were not measured
    problem: str  # why the trainer could not be measured, in its own words


def run(command: Sequence[str], job: ProofJob, ranks: int | None = None) -> TrainerRun:
    """Run the trainer until its proof is complete, or it ends. Its output goes to standard error.

    Args:
        command: The trainer and its arguments.
        job: What to measure.
        ranks: Number of processes to start with the environment of torchrun; None: one, with the
            environment as it is.
    """
    with _orderly(), _folder(job) as folder:
        port = _free_port() if ranks else 0
        variables = {PROVE: str(folder)} | after_import(AFTER_IMPORT, os.environ)
        processes: list[subprocess.Popen[bytes]] = []
        interrupted = True
        try:
            for rank in range(ranks or 1):
                more = _torchrun(rank, ranks, port) if ranks else {}
                processes.append(_start(command, variables | more))
            hint = _Hint(folder)
            codes = _wait(processes, lambda: hint.show() or _is_complete(folder, ranks or 1))
            interrupted = False
        finally:
            _end(processes, interrupted)
        texts = {
            path.name: path.read_text("utf-8")
            for path in folder.iterdir()
            if path.suffix in (".json", ".txt")
        }
    names = sorted((n for n in texts if n.startswith("record-")), key=lambda n: int(n[7:-5]))
    records = tuple(ProofRecord.from_dict(json.loads(texts[n])) for n in names)
    others = tuple(
        shown(name) or f"{source} (without a name)"
        for name, source in json.loads(texts.get(OTHERS, "[]"))
    )
    return TrainerRun(
        next((code for code in codes if code), 0), records, others, texts.get(PROBLEM, "")
    )


def concluded(outcome: TrainerRun, job: ProofJob, ranks: int = 1) -> Proof:
    """The first rank's proof; ProofError with the reason if it could not be made."""
    if outcome.problem:
        raise ProofError(outcome.problem)
    if not outcome.records or (outcome.code and len(outcome.records) < ranks):
        raise ProofError(_no_feed(outcome, job))
    record = outcome.records[0]
    others = ", ".join(outcome.others)
    if not record.complete and outcome.code:
        after = f" after {plural(record.steps, 'step')}," if record.left else ""
        raise ProofError(
            f"the command {_ended(outcome.code)}{after} before its proof was"
            f" complete{_above(outcome)}"
        )
    try:
        return Proof.of(
            record, [f"other feeds were iterated and not measured: {others}"] if others else []
        )
    except ProofError as error:
        if not others:
            raise
        raise ProofError(
            f"{error}; other feeds were iterated as well, and --feed NAME chooses: {others}"
        ) from error


@contextmanager
def _folder(job: ProofJob) -> Iterator[Path]:
    """Temporary folder of a run, with its job in it."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="fastfeed-prove-", ignore_cleanup_errors=True)
        write_job(folder.name, job)
    except OSError as error:
        reason = error.strerror or error
        raise ProofError(
            f"cannot write temporary files: {reason}; set TMPDIR to a folder with room"
        ) from error
    with folder:
        yield Path(folder.name)


def _ended(code: int) -> str:
    if code > 0:
        return f"ended with exit code {code}"
    return f"was {describe_exit(code)}{', as the system does when memory runs out' * is_kill(code)}"


def _above(outcome: TrainerRun) -> str:
    return "; its own message is above" if outcome.code > 0 else ""


_SILENT_S = 120.0
_OTHER_LOOPS = (  # a `for` over a generator cannot be intercepted
    "other loops, such as JAX's over a generator, are measured by ff.prove(step, loader) in the"
    " trainer itself"
)


def _no_feed(outcome: TrainerRun, job: ProofJob) -> str:
    if outcome.code:
        return (
            f"the command {_ended(outcome.code)} before it took a batch from a feed or"
            f" loader{_above(outcome)}"
        )
    if job.feed is not None and outcome.others:
        return (
            f"no feed is named {job.feed!r}; the command iterated {', '.join(outcome.others)}:"
            ' --feed takes a name that the trainer gives, as in Feed(name="train")'
        )
    return (
        "the command ended without taking a batch from a fastfeed.Feed, training by Keras's fit, or"
        f" stepping an optimizer of PyTorch on a batch of a DataLoader: {_OTHER_LOOPS}"
    )


def _torchrun(rank: int, ranks: int, port: int) -> dict[str, str]:
    """Variables that torchrun sets on one machine (docs.pytorch.org/docs/stable/elastic/run.html)."""
    own = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": ranks,
        "LOCAL_WORLD_SIZE": ranks,
        "MASTER_PORT": port,
    }
    return {"MASTER_ADDR": "127.0.0.1"} | {name: str(value) for name, value in own.items()}


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class _Hint:
    """Advice for a trainer that has not begun its proof, in time to end it and change it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._at = time.monotonic() + _SILENT_S

    def show(self) -> None:
        if time.monotonic() < self._at:
            return
        self._at = math.inf
        if not (self._folder / record_name(0)).exists():
            print(
                f"fastfeed prove: nothing to measure after {_SILENT_S:g} s; {_OTHER_LOOPS}",
                file=sys.stderr,
                flush=True,
            )


def _is_complete(folder: Path, ranks: int) -> bool:
    return all((folder / complete_name(rank)).exists() for rank in range(ranks))


@contextmanager
def _orderly() -> Iterator[None]:
    """Turn SIGTERM and the like into SystemExit, so that started processes are ended too."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in ENDING:
            if signal.getsignal(number) is signal.SIG_DFL:  # not SIGINT, or what nohup ignores
                before[number] = signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _start(command: Sequence[str], more: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a command with more variables; its output goes to standard error."""
    try:
        return subprocess.Popen(list(command), env={**os.environ, **more}, stdout=_stderr())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ProofError(f"cannot run {command[0]}: {reason}; name a program after --") from error


def _wait(
    processes: Sequence[subprocess.Popen[bytes]], is_complete: Callable[[], bool]
) -> list[int]:
    """Exit codes, once all have ended, one has failed, or a complete proof has timed out."""
    complete_at: float | None = None
    while any(process.poll() is None for process in processes):
        if any(process.returncode for process in processes):
            break  # the others would wait for it
        if complete_at is None and is_complete():
            complete_at = time.monotonic()
        if complete_at is not None and time.monotonic() - complete_at > _AFTER_S:
            break
        time.sleep(_POLL_S)
    return [process.returncode or 0 for process in processes]


def _end(processes: Sequence[subprocess.Popen[bytes]], interrupted: bool) -> None:
    """End those that still run, and their descendants. A second Ctrl-C meanwhile kills them."""
    tree = _tree(processes)
    try:
        if interrupted:
            _await(processes, {}, _INTERRUPTED_S)
            tree |= _tree(processes)
        _send(processes, tree, signal.SIGTERM)
        _await(processes, tree, _KILL_S)
    finally:
        tree |= _tree(processes)
        _send(processes, tree, getattr(signal, "SIGKILL", signal.SIGTERM))
        for process in processes:
            process.wait()


def _stderr() -> int:
    with suppress(OSError, ValueError):  # closed, or no real file
        if sys.__stderr__ is not None:
            return sys.__stderr__.fileno()
    return subprocess.DEVNULL


def _tree(processes: Iterable[subprocess.Popen[bytes]]) -> dict[int, str]:
    """Running descendants by process number, with their start time: numbers are reused."""
    running = [process.pid for process in processes if process.poll() is None]
    return {pid: process_state(pid)[1] for parent in running for pid in descendants(parent)}


def _lives(pid: int, started: str) -> bool:
    state, found = process_state(pid)
    return bool(started) and found == started and state not in ("Z", "X")


def _send(
    processes: Iterable[subprocess.Popen[bytes]], tree: Mapping[int, str], number: int
) -> None:
    for process in processes:
        process.send_signal(number)  # nothing, where it has ended
    for pid, started in tree.items():
        if _lives(pid, started):
            with suppress(OSError):
                os.kill(pid, number)


def _await(
    processes: Sequence[subprocess.Popen[bytes]], tree: Mapping[int, str], seconds: float
) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if all(process.poll() is not None for process in processes) and not any(
            map(_lives, tree, tree.values())
        ):
            return
        time.sleep(_POLL_S)
