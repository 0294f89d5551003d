"""A bad sample is data, not an exception: what failed and why, what happens then, and how much of it is too much."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from fastfeed.draws import SLOT_SUBSTITUTE, uniform
from fastfeed.errors import ConfigError, SampleError, TooManyFailures

__all__ = ["REASONS", "Failure", "FaultPolicy", "Quarantine", "substitutes"]

REASONS = {
    "not_found": "no file there",
    "io_error": "the file could not be read",
    "empty": "zero bytes",
    "not_image": "the content is no image",
    "unsupported_format": "an image of a kind that is not decoded here",
    "truncated": "the file ends too early",
    "corrupt": "the decoder refused the content",
    "bomb": "more pixels or bytes than allowed",
    "timeout": "reading took too long",
}
_START = b'{"id": '  # of every line of the quarantine file
_TRANSIENT = frozenset({"io_error", "timeout"})  # worth another try in the next epoch


@dataclass(frozen=True, slots=True)
class Failure:
    """One bad sample."""

    id: int
    uri: str
    stage: str  # "read" or "decode"
    reason: str  # a key of REASONS
    detail: str = ""
    offset: int | None = None  # bytes into the shard, for sources that have shards

    def __post_init__(self) -> None:
        if self.reason not in REASONS:
            raise ConfigError(f"reason must be one of {', '.join(REASONS)}, got {self.reason!r}")

    def __str__(self) -> str:
        return f"{self.uri}: {self.reason} ({self.detail or REASONS[self.reason]})"


@dataclass(frozen=True, slots=True)
class FaultPolicy:
    """What happens to a bad sample, and when the run stops.

    "substitute" puts another sample in its place (chosen by (seed, epoch, id), so it does not depend on ranks, batches
    or threads); "mask" keeps a black image with weight 0; "raise" ends the run.
    """

    action: Literal["substitute", "mask", "raise"] = "substitute"
    max_share: float = 0.25  # of the samples handled so far, once 50 of them (or all there are) have been
    max_run: int = 1000  # bad samples in a row
    attempts: int = 16  # substitutes tried for one bad sample

    def __post_init__(self) -> None:
        if self.action not in ("substitute", "mask", "raise"):
            raise ConfigError(f'on_bad must be "substitute", "mask" or "raise", got {self.action!r}')
        if not 0 <= self.max_share <= 1:
            raise ConfigError(f"max_share must be in [0, 1], got {self.max_share!r}; 1 switches the limit off")
        if self.max_run < 1 or self.attempts < 1:
            raise ConfigError(f"max_run and attempts must be >= 1, got {self.max_run} and {self.attempts}")

    @classmethod
    def of(cls, on_bad: str | FaultPolicy) -> FaultPolicy:
        """A policy from its name, or as it is."""
        return on_bad if isinstance(on_bad, cls) else cls(on_bad)  # type: ignore[arg-type]


def substitutes(seed: int, epoch: int, id: int, attempts: int, length: int) -> np.ndarray:
    """The ids that may stand in for a bad sample, in the order they are tried: int64, shape (attempts,)."""
    u = uniform(seed, epoch, np.array([id]), SLOT_SUBSTITUTE, attempts)[0]
    return np.minimum((u * length).astype(np.int64), length - 1)


class Quarantine:
    """The list of bad samples, each once, in memory and (with a path) in a file of JSON lines.

    A file that exists already is read first: samples listed there under the same uri are known to be bad and not read
    again (delete the line, or the file, after repairing them). Ranks may share the file. Failures that may pass
    (`io_error`, `timeout`) are listed too but tried again.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        policy: FaultPolicy = FaultPolicy(),
        length: int,
        rank: int = 0,
        uri: Callable[[int], str] = str,
    ) -> None:
        self.path = Path(path) if path is not None else None
        self.policy, self._rank, self._length = policy, rank, length
        self._found: dict[int, Failure] = {}  # by this feed, in the order found
        self._known: set[int] = set()  # never read again
        self._listed: set[int] = set()  # in the file
        self._read_to = 0  # bytes of the file that have been read
        self._handled = self._bad = self._run = 0
        self._lock = threading.Lock()
        if self.path is not None:
            if self.path.is_dir():
                raise ConfigError(
                    f"quarantine: {path} is a folder; pass a file, such as {self.path / 'quarantine.jsonl'}"
                )
            if not self.path.parent.is_dir():
                raise ConfigError(f"quarantine: no folder {self.path.parent}; create it first")
            if self.path.exists():
                with self.path.open("rb") as file:
                    self._known = {i for i, reason, at in self._catch_up(file) if self._is_same(i, at, uri, reason)}

    def _is_same(self, id: int, at: str, uri: Callable[[int], str], reason: str) -> bool:
        return reason not in _TRANSIENT and 0 <= id < self._length and uri(id) == at

    def known(self, ids: np.ndarray) -> np.ndarray:
        """Which of these samples need not be read: bool, same shape. None where a bad sample has to be raised."""
        if not self._known or self.policy.action == "raise":
            return np.zeros(len(ids), bool)
        with self._lock:
            return np.fromiter((int(i) in self._known for i in ids), bool, len(ids))

    def good(self, count: int) -> None:
        """Note that samples went well."""
        if count:
            with self._lock:
                self._handled += count
                self._run = 0

    def bad(self, failures: list[Failure], epoch: int, step: int, repeated: int = 0) -> None:
        """List failures (and count `repeated` known ones); raises where the policy says the run ends."""
        with self._lock:
            fresh = list({f.id: f for f in failures if f.id not in self._found}.values())
            for failure in fresh:
                self._found[failure.id] = failure
                if failure.reason not in _TRANSIENT:
                    self._known.add(failure.id)
            count = len(failures) + repeated
            self._handled += count
            self._bad += count
            self._run += count
            if fresh and self.path is not None:
                self._append(fresh, epoch, step)
            self._limits(failures)

    def _limits(self, failures: list[Failure]) -> None:
        policy = self.policy
        if policy.action == "raise" and failures:
            first = failures[0]
            raise SampleError(f'sample {first.id} is bad in stage {first.stage}: {first}; on_bad="substitute" goes on')
        if self._handled >= min(50, self._length) and self._bad > policy.max_share * self._handled:
            self._stop(f"{self._bad} of {self._handled} samples are bad, the limit is {policy.max_share:.0%}")
        if self._run >= policy.max_run:
            self._stop(f"{self._run} bad samples in a row, the limit is {policy.max_run}")

    def exhausted(self, id: int) -> None:
        """Stop because every substitute tried for one sample was bad as well."""
        with self._lock:
            self._stop(f"sample {id} and the {self.policy.attempts} substitutes tried for it are all bad")

    def _stop(self, why: str) -> None:
        reasons = ", ".join(f"{n} {reason}" for reason, n in self.reasons().most_common())
        shown = "".join(f"\n  {failure}" for failure in list(self._found.values())[:5])
        more = f"\n  and {len(self._found) - 5} more" if len(self._found) > 5 else ""
        where = f"; all are in {self.path}" if self.path else ""
        raise TooManyFailures(
            f"too many bad samples: {why} ({reasons}){where}; check the data, or raise the limit with "
            f"on_bad=FaultPolicy(max_share=...){shown}{more}",
            list(self._found.values()),
        )

    @property
    def failures(self) -> list[Failure]:
        """Bad samples this feed has met, each once, in the order found."""
        with self._lock:
            return list(self._found.values())

    def reasons(self) -> Counter[str]:
        """How many bad samples of each reason."""
        return Counter(f.reason for f in list(self._found.values()))

    def _append(self, fresh: list[Failure], epoch: int, step: int) -> None:
        """Under a file lock: see what other ranks have listed since, then add what is new, in whole lines."""
        assert self.path is not None
        with self.path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file.fileno()).st_size < self._read_to:  # somebody has cleared it
                self._read_to = 0
                self._listed.clear()
            self._catch_up(file)
            file.truncate(self._read_to)  # a last line without its end was torn by a crash
            where = {"rank": self._rank, "epoch": epoch, "step": step}
            lines = [json.dumps(asdict(f) | where) for f in fresh if f.id not in self._listed]
            self._listed.update(f.id for f in fresh)
            if lines:
                file.seek(max(self._read_to - 1, 0))
                glue = b"" if file.read(1) in (b"", b"\n") else b"\n"  # an editor may have taken the last line's end
                file.write(glue + "".join(line + "\n" for line in lines).encode())
                file.flush()
                self._read_to = file.tell()

    def _catch_up(self, file) -> list[tuple[int, str, str]]:
        """Read the lines that came since the last look: (id, reason, uri) of each."""
        file.seek(self._read_to)
        entries = []
        for line in file.read().splitlines(keepends=True):
            if line.isspace():
                self._read_to += len(line)
                continue
            try:
                entry = json.loads(line)
                entries.append((int(entry["id"]), str(entry["reason"]), str(entry["uri"])))
            except (ValueError, KeyError, TypeError):
                if not line.endswith(b"\n") and (line.startswith(_START) or _START.startswith(line)):
                    break
                raise ConfigError(
                    f"{self.path} is not a quarantine file: cannot read line {line[:60]!r}; pass another path"
                ) from None
            self._read_to += len(line)
        self._listed.update(i for i, _, _ in entries)
        return entries
