"""Starts the trainer, or several ranks of it, with FASTFEED_PROVE set, and reads what it has measured."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fastfeed.errors import ProofError
from fastfeed.feed.for_adapters import PROVE
from fastfeed.proof.modes import Mode
from fastfeed.proof.record import Record
from fastfeed.proof.result import Proof
from fastfeed.proof.trainer import JOB, OTHERS, PROBLEM, record_name

__all__ = ["Job", "Outcome", "concluded", "run"]

_POLL_S = 0.1
_AFTER_S = 60.0  # that a trainer may take to exit when its proof is complete
_KILL_S = 10.0  # after SIGTERM


@dataclass(frozen=True, slots=True)
class Job:
    """What is asked of a trainer."""

    seconds: float = 60.0
    cold: bool = True
    feed: str | None = None  # name of the feed; None: the first that is iterated
    modes: tuple[Mode, ...] = tuple(Mode)

    def as_dict(self) -> dict[str, object]:
        """For the trainer's process."""
        modes = [mode.value for mode in self.modes]
        return {"seconds": self.seconds, "cold": self.cold, "feed": self.feed, "modes": modes}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run of the trainer has left."""

    code: int  # the first exit code that is not 0
    records: tuple[Record, ...]  # by rank; those that have begun
    others: tuple[str, ...]  # names of feeds that were not measured
    problem: str  # why the trainer could not be measured, in its own words


def run(command: Sequence[str], job: Job, ranks: int | None = None) -> Outcome:
    """Run the trainer until its proof is complete, or it ends. Its output goes to standard error.

    Args:
        command: The trainer and its arguments.
        job: What to measure.
        ranks: Start so many processes with the environment of torchrun; None: one, with the environment as it is.
    """
    with tempfile.TemporaryDirectory(prefix="fastfeed-prove-") as name:
        folder = Path(name)
        (folder / JOB).write_text(json.dumps(job.as_dict()), "utf-8")
        port = _free_port() if ranks else 0
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(ranks or 1):
                more = {PROVE: name} | (_torchrun(rank, ranks, port) if ranks else {})
                processes.append(_start(command, more))
            codes = _wait(processes, lambda: _is_complete(folder, ranks or 1))
        finally:
            _end(processes)
        texts = {path.name: path.read_text("utf-8") for path in folder.iterdir() if path.suffix in (".json", ".txt")}
    names = sorted((n for n in texts if n.startswith("record-")), key=lambda n: int(n[7:-5]))
    records = tuple(Record.from_dict(json.loads(texts[n])) for n in names)
    others = tuple(json.loads(texts.get(OTHERS, "[]")))
    return Outcome(next((code for code in codes if code), 0), records, others, texts.get(PROBLEM, ""))


def concluded(outcome: Outcome, job: Job) -> Proof:
    """The first rank's proof. ProofError where there is none, with what happened instead."""
    if outcome.problem:
        raise ProofError(outcome.problem)
    if not outcome.records:
        raise ProofError(_no_feed(outcome, job))
    record, notes = outcome.records[0], []
    if outcome.others:
        names = ", ".join(outcome.others)
        notes.append(f"other feeds were iterated and not measured: {names}")
    if not record.complete and outcome.code:
        raise ProofError(
            f"the command ended with exit code {outcome.code} after {record.steps} steps, before its proof was "
            "complete; its own message is above"
        )
    return Proof.of(record, notes)


def _no_feed(outcome: Outcome, job: Job) -> str:
    if outcome.code:
        return (
            f"the command ended with exit code {outcome.code} before it took a batch from a feed; its own message is "
            "above"
        )
    if job.feed is not None and outcome.others:
        names = ", ".join(outcome.others)
        return f"no feed is named {job.feed!r}; the command iterated {names}: --feed takes one of these"
    return (
        "the command ended without taking a batch from a fastfeed.Feed: there is nothing to measure; train with one, "
        "or try `fastfeed profile` for other loaders"
    )


def _torchrun(rank: int, ranks: int, port: int) -> dict[str, str]:
    """What torchrun sets for one machine (pytorch.org/docs/stable/elastic/run.html)."""
    own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_PORT": port}
    return {"MASTER_ADDR": "127.0.0.1"} | {name: str(value) for name, value in own.items()}


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _start(command: Sequence[str], more: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        stdout = sys.__stderr__.fileno() if sys.__stderr__ is not None else subprocess.DEVNULL
        return subprocess.Popen(list(command), env={**os.environ, **more}, stdout=stdout)
    except OSError as error:
        raise ProofError(f"cannot run {command[0]}: {error.strerror}; name a program after --") from error


def _is_complete(folder: Path, ranks: int) -> bool:
    found = [folder / record_name(rank) for rank in range(ranks)]
    with suppress(OSError, ValueError):
        return all(json.loads(path.read_text("utf-8"))["complete"] for path in found)
    return False


def _wait(processes: Sequence[subprocess.Popen[bytes]], is_complete: Callable[[], bool]) -> list[int]:
    """Until all have ended, one has failed, or a complete proof's processes have had their time to exit."""
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


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            process.wait(_KILL_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
