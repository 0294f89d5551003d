"""Bad samples, each once, in memory and in a file that ranks share and later runs read."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fastfeed.errors import ConfigError, SampleError, TooManyFailures
from fastfeed.faults import TRANSIENT, Failure, FaultPolicy, format_reasons, too_many
from fastfeed.printable import log, printable, warn
from fastfeed.system.descriptors import open_regular
from fastfeed.system.locks import lock

_START = b'{"id": '  # of every line of the file
_DEFAULT = FaultPolicy()
# samples to be handled, or all there are, before their share is judged: bad files come in clusters
_ENOUGH = 50


class Quarantine:
    """Bad samples so far, and the limits on their number.

    A file that exists already is read first: samples listed there under the same uri are known to
    be bad and not read again (delete the line, or the file, after repairing them). Transient
    failures (`faults.TRANSIENT`) are listed too but read again. If the file becomes unwritable, the
    run continues with a warning.

    The first bad sample, and their count at the end of each epoch that has brought more, go to the
    log ("fastfeed", level WARNING), which Python prints unless logging is set up otherwise.
    `tells`: False in a helper process.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        policy: FaultPolicy = _DEFAULT,
        length: int,
        rank: int = 0,
        uri: Callable[[int], str] = str,
        tells: bool = True,
    ) -> None:
        self.path = Path(path) if path is not None else None
        self.policy = policy
        self._failures: dict[int, Failure] = {}  # of this feed, in the order they occurred
        self._known: dict[int, Failure] = {}  # never read again
        self._handled = self._bad = self._run = 0
        self._enough = min(_ENOUGH, length)
        self._length = length
        self._reported = 0
        self._reports = tells
        self._lock = threading.Lock()
        self._file = _QuarantineFile(self.path, rank) if self.path is not None else None
        if self._file is not None:
            for failure in self._file.read():
                if (
                    failure.reason not in TRANSIENT
                    and 0 <= failure.id < length
                    and uri(failure.id) == failure.uri
                ):
                    self._known[failure.id] = failure

    def known_bad(self, ids: np.ndarray) -> np.ndarray:
        """Mask of samples that need not be read: bool, same shape.

        All False if a bad sample must be raised.
        """
        if not self._known or self.policy.action == "raise":
            return np.zeros(len(ids), bool)
        with self._lock:
            return np.array([id in self._known for id in ids.tolist()], bool)

    def record_good(self, count: int, scheduled: bool = True) -> None:
        """Count samples that were read without failure.

        `scheduled` is False for substitutes: their number says nothing about the data.
        """
        if count:
            with self._lock:
                self._handled += count * scheduled
                self._run = 0

    def count_late(self, bad: int) -> None:
        """Count samples as bad that were counted as good, before `record_bad` lists them."""
        with self._lock:
            self._bad += bad

    def record_bad(
        self,
        failures: list[Failure],
        epoch: int,
        step: int,
        *,
        known: list[int] | None = None,
        scheduled: bool = True,
    ) -> None:
        """List failures and samples `known` to be bad; raises at the limits of the policy."""
        with self._lock:
            occurred = failures + [self._known[i] for i in known or ()]
            fresh = list({f.id: f for f in failures if f.id not in self._failures}.values())
            first = self._add(occurred)
            for failure in occurred:
                if failure.reason not in TRANSIENT:
                    self._known[failure.id] = failure
            self._handled += len(occurred) * scheduled
            self._bad += len(occurred) * scheduled
            self._run += len(occurred)
            if fresh and self._file is not None:
                self._file.append(fresh, epoch, step)
        self._tell_first(first)
        with self._lock:
            self._check_limits(failures)

    def merge(self, failures: list[Failure]) -> None:
        """Add bad samples that a helper process has counted and listed."""
        with self._lock:
            first = self._add(failures)
        self._tell_first(first)

    def _add(self, failures: list[Failure]) -> Failure | None:
        """Returns the first failure of this feed, to be logged."""
        first = failures[0] if failures and not self._failures else None
        for failure in failures:
            self._failures.setdefault(failure.id, failure)
        return first

    def _tell_first(self, failure: Failure | None) -> None:
        """Log the first bad sample at once: training on less data must not go unnoticed.

        Without the lock: what handles the log may ask for `failures`.
        """
        if failure is not None and self._reports and self.policy.action != "raise":
            self._reported = max(self._reported, 1)
            how = "masked" if self.policy.action == "mask" else "replaced"
            log.warning(
                "sample %d is bad and was %s: %s; others are counted at the end of each epoch and"
                " listed in %s",
                failure.id,
                how,
                failure,
                self._file_text(),
            )

    def tell(self) -> None:
        """Log the number of bad samples so far, if it has grown."""
        with self._lock:
            count = len(self._failures)
            grown = count > max(self._reported, 1) and self._reports
            self._reported = count if grown else self._reported
        if grown:
            log.warning(
                "%s of %s samples have been bad so far (%s); all are in %s",
                f"{count:,}",
                f"{self._length:,}",
                format_reasons(self.reasons()),
                self._file_text(),
            )

    def _file_text(self) -> str:
        return str(self.path) if self.path else "feed.stats().bad"

    def _check_limits(self, failures: list[Failure]) -> None:
        policy = self.policy
        if policy.action == "raise" and failures:
            first = failures[0]
            raise SampleError(
                f'sample {first.id} is bad in stage {first.stage}: {first}; on_bad="substitute"'
                " continues"
            )
        if self._handled >= self._enough and too_many(self._bad, self._handled, policy.max_share):
            self._stop(
                f"{self._bad} of {self._handled} samples are bad, the limit is"
                f" {policy.max_share:.0%}",
                "max_share",
            )
        if self._run >= policy.max_run:
            self._stop(
                f"{self._run} bad samples in a row, the limit is {policy.max_run}", "max_run"
            )

    def raise_exhausted(self, id: int, tried: int) -> None:
        """Stop because every substitute tried for one sample was bad as well."""
        with self._lock:
            if tried:
                self._stop(
                    f"sample {id} and the {tried} substitutes tried for it are all bad", "attempts"
                )
            self._stop(f"sample {id} is bad, and the order has no other of its class or bucket")

    def _stop(self, why: str, limit: str | None = None) -> None:
        counts = self.reasons()
        examples = "".join(f"\n  {failure}" for failure in list(self._failures.values())[:5])
        more = f"\n  and {len(self._failures) - 5} more" if len(self._failures) > 5 else ""
        where = f"; all are in {self.path}" if self.path else ""
        code = {"op_failed": "your function", "internal": "the code that raised it"}
        check = next(
            (code[name] for name in code if 2 * counts[name] > sum(counts.values())), "the data"
        )
        instead = (
            'pass on_bad="mask"'
            if limit is None
            else f"raise the limit with on_bad=FaultPolicy({limit}=...)"
        )
        raise TooManyFailures(
            f"too many bad samples: {why} ({format_reasons(self.reasons())}){where}; check {check},"
            f" or {instead}{examples}{more}",
            list(self._failures.values()),
        )

    @property
    def failures(self) -> list[Failure]:
        """Bad samples of this feed, each once, in the order they occurred."""
        with self._lock:
            return list(self._failures.values())

    def reasons(self) -> Counter[str]:
        """Number of bad samples by reason."""
        return Counter(f.reason for f in list(self._failures.values()))


def _failure(entry: dict[str, Any]) -> Failure:
    """A line of the file.

    ValueError, KeyError, TypeError, AttributeError for what was not written by a feed.
    """
    id = entry["id"]
    offset = entry.get("offset")
    uri = entry["uri"]
    stage = entry["stage"]
    reason = entry["reason"]
    detail = entry.get("detail", "")
    if type(id) is not int or type(offset) not in (int, type(None)):
        raise ValueError("ids and offsets are integers")
    if not all(type(text) is str for text in (uri, stage, reason, detail)):
        raise ValueError("the rest are texts")
    return Failure(id, uri, stage, reason, detail, offset)


class _QuarantineFile:
    """JSON lines, each (id, uri) once, also when several ranks write."""

    def __init__(self, path: Path, rank: int) -> None:
        self._path = path
        self._rank = rank
        self._listed: set[tuple[int, str]] = set()
        self._read_to = 0  # bytes that have been read
        self._warned = False
        if path.is_dir():
            raise ConfigError(
                f"quarantine: {path} is a folder; pass a file, such as {path / 'quarantine.jsonl'}",
                field="quarantine",
            )
        if not path.parent.is_dir():
            raise ConfigError(
                f"quarantine: no folder {path.parent}; create it first", field="quarantine"
            )
        if not os.access(path if path.exists() else path.parent, os.R_OK | os.W_OK):
            raise ConfigError(
                f"quarantine: {path} cannot be read and written; change its permissions",
                field="quarantine",
            )

    def read(self) -> list[Failure]:
        """Failures listed in the file."""
        if not self._path.exists():
            return []
        try:
            with open(open_regular(self._path), "rb") as file:
                return self._catch_up(file)
        except OSError as error:
            raise ConfigError(
                f"quarantine: cannot read {self._path}: {error.strerror}; pass another path",
                field="quarantine",
            ) from error

    def append(self, fresh: list[Failure], epoch: int, step: int) -> None:
        """Add failures that no rank has listed yet.

        A list that cannot be written is a warning, it never ends a run.
        """
        try:
            with self._path.open("a+b") as file:
                with suppress(
                    OSError
                ):  # a file system without locks: at worst a line is written twice
                    lock(file.fileno())
                self._append(file, fresh, {"rank": self._rank, "epoch": epoch, "step": step})
        except (OSError, ConfigError) as error:
            if not self._warned:
                self._warned = True
                warn(
                    f"cannot write the quarantine list: {error}; bad samples are kept in memory"
                    " (feed.stats().bad)",
                    stacklevel=2,
                )

    def _append(self, file: BinaryIO, fresh: list[Failure], where: dict[str, Any]) -> None:
        """Read other ranks' new entries, then append whole lines. With the lock held."""
        if os.fstat(file.fileno()).st_size < self._read_to:  # it has been cleared
            self._read_to = 0
            self._listed.clear()
        self._catch_up(file)
        file.truncate(self._read_to)  # a last line without its end was torn by a crash
        lines = [json.dumps(asdict(f) | where) for f in fresh if (f.id, f.uri) not in self._listed]
        self._listed.update((f.id, f.uri) for f in fresh)
        if lines:
            file.seek(max(self._read_to - 1, 0))
            # an editor may have removed the last newline
            glue = b"" if file.read(1) in (b"", b"\n") else b"\n"
            file.write(glue + "".join(line + "\n" for line in lines).encode())
            file.flush()
            self._read_to = file.tell()

    def _catch_up(self, file: BinaryIO) -> list[Failure]:
        """Read the lines that were added since the last call."""
        file.seek(self._read_to)
        entries = []
        for line in file.read().splitlines(keepends=True):
            if not line.isspace():
                try:
                    entry = json.loads(line)
                    entries.append(_failure(entry))
                    self._listed.add((entries[-1].id, entries[-1].uri))
                except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                    if not line.endswith(b"\n") and (
                        line.startswith(_START) or _START.startswith(line)
                    ):
                        break
                    raise ConfigError(
                        f"{self._path} is not a quarantine file: cannot read line"
                        f" {printable(repr(line), 80)}; pass another path",
                        field="quarantine",
                    ) from None
            self._read_to += len(line)
        return entries
