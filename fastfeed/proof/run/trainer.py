"""The proof inside an unchanged trainer, whose feed or loader asks here for batches.

FASTFEED_PROVE names the folder of the job.

The record is written after each round, so that a run that ends early leaves what is known. The run
ends with the proof: by SystemExit(0) in the thread that asked, or, where that is not the main
thread, by `os._exit`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from fastfeed.adapters.no_saving import refuse_loaded
from fastfeed.distributed.world import World
from fastfeed.errors import ProofError
from fastfeed.feed.session import JOB, PROVE, read_job
from fastfeed.proof.measure.block_sizes import BlockSizes
from fastfeed.proof.measure.loaders import Begin, Place, loader_session
from fastfeed.proof.measure.modes import LOADER_MODES, Mode
from fastfeed.proof.measure.record import ProofRecord
from fastfeed.proof.measure.session import ProofJob, Schedule, Session, feed_session
from fastfeed.proof.synchronize import synchronize
from fastfeed.runtime.atomic_write import atomic_write
from fastfeed.runtime.thread_pool import LockedIterator
from fastfeed.system.processes import process_exists

if TYPE_CHECKING:
    from fastfeed.feed.producer import PlaceFunction
    from fastfeed.feed.session import FeedSession

OTHERS = "others.json"  # in the folder
PROBLEM = "problem.txt"
_SCHEDULE = "schedule.json"
Unproven = Callable[[], Any]  # begins the iteration of a feed that is not measured
_AGREE_S = 300.0  # that ranks wait for the first one
_lock = threading.Lock()
_run: list[ProofRun] = []  # of this process, once it has begun


class ProofDone(SystemExit):
    """Ends the trainer, whose proof is complete; exit code 0."""

    def __init__(self) -> None:
        super().__init__(0)


def write_job(folder: str | Path, job: ProofJob) -> None:
    """Write what is measured here, for a trainer to read."""
    text = json.dumps({"measured_by": __name__, **asdict(job)})
    Path(folder, JOB).write_text(text, "utf-8")


def record_name(rank: int) -> str:
    """File of a rank's record."""
    return f"record-{rank}.json"


def complete_name(rank: int) -> str:
    """File that is there when the record is complete."""
    return f"complete-{rank}"


def iterate(
    feed: FeedSession, place: PlaceFunction | None, raw: bool, unproven: Unproven
) -> LockedIterator[Any]:
    """Iterate in place of the feed; `unproven` begins its own iteration."""
    return current().iterate(feed, place, raw, unproven)


def current() -> ProofRun:
    """The proof of this process."""
    with _lock:
        if not _run:
            _run.append(ProofRun(Path(os.environ[PROVE])))
    return _run[0]


class ProofRun:
    """The proof of this process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        job = read_job(folder)
        modes = tuple(map(Mode, job["modes"]))
        self._job = ProofJob(float(job["seconds"]), bool(job["cold"]), job["feed"], modes)
        self._name = self._job.feed
        self._feed: Any = None  # a weak reference to the feed that is measured
        self._session: Session | None = None
        self._world = World()
        self._has_loader = False  # a loader that is no Feed is measured
        self._others: set[tuple[str, str]] = set()  # name and source

    def iterate(
        self, feed: FeedSession, place: PlaceFunction | None, raw: bool, unproven: Unproven
    ) -> LockedIterator[Any]:
        with _lock:
            session = self._session_for(feed)
        if session is None:
            batches = unproven()
            return LockedIterator(self._unmeasured(batches), batches.close)
        return LockedIterator(self.measured(session, place, raw), session.close)

    @property
    def takes_loaders(self) -> bool:
        """True if a loader that is no Feed can be measured: no Feed is, and none is asked for."""
        return self._feed is None and self._name is None

    def measure(
        self, loader: Any, begin: Begin, under_way: Iterator[Any], place: Place | None
    ) -> Session | None:
        """Measure a loader that is no Feed, from its next batch on; None if a feed is measured.

        Args:
            loader: The trainer's loader.
            begin: Starts an epoch of it.
            under_way: The epoch that the trainer has begun.
            place: As `loader_session` takes it.
        """
        if not self.takes_loaders:
            return None
        self._begin(World.detect())
        self._has_loader = True
        modes = LOADER_MODES if Mode.CACHED in self._job.modes else (Mode.RESIDENT, Mode.REAL)
        session = loader_session(
            loader,
            begin,
            self._job.seconds,
            under_way=under_way,
            modes=modes,
            place=place,
            on_change=self._write,
            agree=self._agree,
        )
        session.record.feed |= {"rank": self._world.rank, "world": self._world.size}
        self._write(session.record)
        return session

    def _begin(self, world: World) -> None:
        self._world = world
        self._claim()
        refuse_loaded()

    def _session_for(self, feed: FeedSession) -> Session | None:
        name = feed.timeline.helper_arguments["name"]
        if self._feed is None and not self._has_loader and self._name in (None, name):
            self._begin(feed.plan.world)
            self._feed = weakref.ref(feed)
            feed.proof = self._session = feed_session(
                feed, self._job, synchronize, self._write, self._agree
            )
            self._write(self._session.record)  # a run that is killed leaves at least this
        if self._feed is not None and self._feed() is feed:
            return self._session
        self._others.add((name, type(feed.source).__name__))
        _write_json(self._folder / OTHERS, sorted(self._others))
        return None

    def _claim(self) -> None:
        """Claim the rank for this process; later processes end if the proof is complete."""
        if (self._folder / complete_name(self._world.rank)).exists():
            self._end(f"fastfeed prove: process {os.getpid()} ends here, as the proof is complete")
        claim = self._folder / f"process-{self._world.rank}"
        own = self._folder / f"{claim.name}.{os.getpid()}"
        own.write_text(str(os.getpid()), "ascii")
        try:
            os.link(own, claim)  # of two processes that begin at once, one alone succeeds
        except FileExistsError:
            self._check_claim(claim)
            own.replace(claim)  # of a process that has ended
        finally:
            own.unlink(missing_ok=True)

    def _check_claim(self, claim: Path) -> None:
        """Raise ProofError if another process that claims this rank is alive."""
        with suppress(OSError, ValueError):
            other = int(claim.read_text("ascii"))
            if other != os.getpid() and process_exists(other):
                raise self._report(
                    ProofError(
                        f"processes {other} and {os.getpid()} both train as rank"
                        f" {self._world.rank}; start them with torchrun or another launcher that"
                        " fastfeed.World.detect() knows, or name the feed to measure with --feed"
                        " NAME"
                    )
                )

    def measured(
        self, session: Session, place: PlaceFunction | None = None, raw: bool = False
    ) -> Generator[Any, None, None]:
        """Batches of a proof, which ends the trainer when it is complete."""
        session.record.left = False
        try:
            yield from session.iterate(place, raw)
        except ProofError as error:
            raise self._report(error) from None
        finally:
            if not session.done:
                session.record.left = True
                self._write(session.record)
        steps = session.record.steps
        self._end(
            f"fastfeed prove: done after {steps} steps; this run ends here, its weights are"
            " meaningless"
        )

    def _unmeasured(self, batches: Iterator[Any]) -> Generator[Any, None, None]:
        """A feed that is not measured.

        Where none was chosen by name, it must not be asked within a block.
        """
        for batch in batches:
            if self._name is None and self._session is not None:
                try:
                    self._session.disturb()
                except ProofError as error:
                    raise self._report(error) from None
            yield batch

    def _report(self, error: ProofError) -> ProofError:
        """Record the error for `fastfeed prove` and return it."""
        with suppress(OSError):
            (self._folder / PROBLEM).write_text(str(error), "utf-8", "backslashreplace")
        return error

    def _write(self, record: ProofRecord) -> None:
        _write_json(self._folder / record_name(self._world.rank), record.as_dict())
        if record.complete:
            (self._folder / complete_name(self._world.rank)).touch()

    def _agree(self, schedule: Schedule) -> Schedule:
        """Follow rank 0's schedule: all ranks must change modes at the same step."""
        path = self._folder / _SCHEDULE
        if self._world.size == 1:
            return schedule
        if self._world.rank == 0:
            _write_json(path, asdict(schedule))
            return schedule
        end = time.monotonic() + _AGREE_S
        while not path.exists():
            if time.monotonic() > end:
                raise ProofError(
                    f"rank 0 has not begun its proof within {_AGREE_S:.0f} s; all ranks must"
                    " iterate the same feed or loader, and share the folder for temporary files"
                )
            time.sleep(0.05)
        first = json.loads(path.read_text("utf-8"))
        return Schedule(
            BlockSizes(**first["sizes"]),
            tuple(map(Mode, first["modes"])),
            first["no_cold"],
            first["seed"],
        )

    def _end(self, sentence: str) -> NoReturn:
        """End the trainer; one rank says why."""
        if not self._world.rank:
            print(f"\n{sentence}", file=sys.stderr, flush=True)
        if threading.current_thread() is threading.main_thread():
            raise ProofDone
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _write_json(path: Path, values: Any) -> None:
    with atomic_write(path) as file:
        file.write(json.dumps(values).encode())
