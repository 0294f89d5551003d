"""The proof inside an unchanged trainer: FASTFEED_PROVE names the folder of the job; the feed asks here for batches.

The record is written after each round, so that a run that ends early leaves what is known. The run ends with the proof:
by SystemExit(0) in the thread that asked, or, where that is not the main thread, without more ado.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import weakref
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastfeed.adapters.synchronize import synchronize
from fastfeed.distributed.cores import cores_for
from fastfeed.errors import ProofError
from fastfeed.feed.for_adapters import PROVE
from fastfeed.proof.design import Design
from fastfeed.proof.modes import Mode
from fastfeed.proof.record import Record
from fastfeed.proof.session import Session, Settings
from fastfeed.runtime.atomic_write import atomic_write
from fastfeed.runtime.thread_pool import LockedIterator

if TYPE_CHECKING:
    from fastfeed.feed.feed import Feed
    from fastfeed.feed.producer import PlaceFunction

__all__ = ["JOB", "OTHERS", "PROBLEM", "ProofDone", "iterate", "record_name"]

JOB, OTHERS, PROBLEM = "job.json", "others.json", "problem.txt"  # in the folder
_DESIGN = "design.json"
_AGREE_S = 300.0  # that ranks wait for the first one
_lock = threading.Lock()
_run: list[_Run] = []  # of this process, once it has begun


class ProofDone(SystemExit):
    """Ends the trainer, whose proof is complete; exit code 0."""

    def __init__(self) -> None:
        super().__init__(0)


def record_name(rank: int) -> str:
    """File of a rank's record."""
    return f"record-{rank}.json"


def iterate(feed: Feed, place: PlaceFunction | None, raw: bool) -> LockedIterator[Any]:
    """Instead of the feed's own iteration."""
    folder = os.environ.get(PROVE)
    if folder is None:  # ff.prove()
        session: Session = feed.proof
        return LockedIterator(session.iterate(place, raw), session.close)
    with _lock:
        if not _run:
            _run.append(_Run(Path(folder)))
    return _run[0].iterate(feed, place, raw)


class _Run:
    """The proof of this process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            job = json.loads((folder / JOB).read_text("utf-8"))
            modes = tuple(Mode(mode) for mode in job["modes"])
            self._settings = Settings(float(job["seconds"]), bool(job["cold"]), modes)
            self._name: str | None = job["feed"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ProofError(
                f"{PROVE}={folder} is not the job of a running `fastfeed prove`; unset {PROVE}: {error}"
            ) from error
        self._feed: Any = None  # a weak reference to the feed that is measured
        self._session: Session | None = None
        self._others: set[str] = set()

    def iterate(self, feed: Feed, place: PlaceFunction | None, raw: bool) -> LockedIterator[Any]:
        with _lock:
            session = self._session_of(feed)
        if session is None:
            return LockedIterator(self._other(feed, feed.iterate_unproven(place, raw)), _nothing)
        return LockedIterator(self._measured(session, place, raw), session.close)

    def _session_of(self, feed: Feed) -> Session | None:
        name = feed.timeline.helper_arguments["name"]
        if self._feed is None and self._name in (None, name):
            self._feed = weakref.ref(feed)
            self._rank = feed.plan.world.rank
            feed.proof = self._session = Session(feed, self._settings, synchronize, self._write, self._agree)
            self._session.record.cores = cores_for(feed.plan.world)
        if self._feed is not None and self._feed() is feed:
            return self._session
        self._others.add(name or type(feed.source).__name__)
        _write_json(self._folder / OTHERS, sorted(self._others))
        return None

    def _measured(self, session: Session, place: PlaceFunction | None, raw: bool) -> Generator[Any, None, None]:
        try:
            yield from session.iterate(place, raw)
        except ProofError as error:
            (self._folder / PROBLEM).write_text(str(error), "utf-8")
            raise
        finally:
            if not session.done:
                self._write(session.record)
        self._end(session.record)

    def _other(self, feed: Feed, batches: Iterator[Any]) -> Generator[Any, None, None]:
        """A feed that is not measured. Where none was chosen by name, it must not be asked within a block."""
        for batch in batches:
            if self._name is None and self._session is not None:
                self._session.disturb()
            yield batch

    def _write(self, record: Record) -> None:
        _write_json(self._folder / record_name(self._rank), record.as_dict())

    def _agree(self, design: Design) -> Design:
        """All ranks take the first one's design: they step together, and must change modes at the same step."""
        feed: Feed = self._feed()
        path = self._folder / _DESIGN
        if feed.plan.world.size == 1:
            return design
        if feed.plan.world.rank == 0:
            _write_json(path, {"rounds": design.rounds, "warmup": design.warmup, "steps": design.steps})
            return design
        end = time.monotonic() + _AGREE_S
        while not path.exists():
            if time.monotonic() > end:
                raise ProofError(
                    f"rank 0 has not begun its proof within {_AGREE_S:.0f} s; all ranks must iterate the same feed, "
                    "and share the folder for temporary files"
                )
            time.sleep(0.05)
        return Design(**json.loads(path.read_text("utf-8")))

    def _end(self, record: Record) -> None:
        if not record.feed["rank"]:
            print(
                f"\nfastfeed prove: done after {record.steps} steps; this run ends here, its weights are worthless",
                file=sys.stderr,
                flush=True,
            )
        if threading.current_thread() is threading.main_thread():
            raise ProofDone
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _write_json(path: Path, values: Any) -> None:
    with atomic_write(path) as file:
        file.write(json.dumps(values).encode())


def _nothing() -> None:
    pass
