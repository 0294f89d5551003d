"""The status of a job from its files alone: whether it runs, how fast, and when it will be done."""

from __future__ import annotations

import os
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from fastfeed.faults import format_reasons
from fastfeed.preprocess.model.plan import PLAN
from fastfeed.preprocess.model.report import dropped_text, format_counts, format_duration
from fastfeed.preprocess.planning.shares import split_rows
from fastfeed.preprocess.planning.survey import ROW, piece_name
from fastfeed.preprocess.reports.verify import temporary_names
from fastfeed.preprocess.targets.job_state import Job
from fastfeed.preprocess.targets.local import LocalTarget
from fastfeed.preprocess.targets.lock import has_ended
from fastfeed.preprocess.targets.target import Target
from fastfeed.printable import format_size

SURVEY = piece_name(0).rpartition("/")[0]
_HEADER_BYTES = 640  # bytes in a piece besides its rows, at most
_PAUSE_FACTOR = 8.0  # a gap this many times the median separates two runs
_MIN_PAUSE_S = 60.0  # shortest gap that separates two runs
_RECENT_S = 20.0  # after the last shard, a job of other machines may still be running
_MAX_RECORDS = 200  # records to compute the speed from


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The status of a job."""

    source: str
    shards: int
    done: int
    planned: int  # images
    images: int  # in the shards that are done
    bytes: int  # of these
    bad: Counter[str]  # by reason
    dropped: Counter[str]  # by reason
    left_out: dict[str, int]
    running: bool
    writers: int  # processes of this machine that write to the target
    last_s: float | None  # seconds since the last shard was completed; None: unknown
    seconds_left: float | None  # at the speed of the last shards; None: not running, or unknown
    shares: dict[str, Any]  # of the split and each class: JobPlan.shares

    @property
    def todo(self) -> int:
        """Shards that are not done."""
        return self.shards - self.done

    def document(self) -> dict[str, Any]:
        """The status as values for JSON."""
        document = asdict(self) | {"bad": dict(sorted(self.bad.items())), "shards_done": self.done}
        del document["done"]
        return document

    def rows(self) -> list[tuple[str, str]]:
        """The status as rows of text."""
        fraction = self.done / self.shards if self.shards else 1.0
        images = f"{self.images:,} in shards, {format_size(self.bytes)}; {self.planned:,} planned"
        rows = [
            ("source", self.source),
            ("shards", f"{self.done:,} of {self.shards:,} done, {fraction:.1%}"),
            ("images", images),
        ]
        rows += split_rows(self.shares)
        if self.bad:
            rows.append(("bad", f"{self.bad.total():,}: {format_reasons(self.bad, 8)}"))
        if self.dropped:
            rows.append(("dropped", dropped_text(self.dropped)))
        if self.left_out:
            rows.append(("left out", format_counts(self.left_out)))
        last = "" if self.last_s is None else f", the last shard {format_duration(self.last_s)} ago"
        if not self.todo:
            state = "complete"
        elif self.writers:
            writing = "1 process writes" if self.writers == 1 else f"{self.writers} processes write"
            state = f"running, {writing} on this machine{last}"
        elif self.running:
            state = f"running on another machine, or just stopped{last}"
        else:
            state = f"not running, as far as this machine can tell{last}"
        rows.append(("state", state))
        if self.seconds_left is not None:
            left = format_duration(self.seconds_left)
            rows.append(("left", f"about {left}, at the speed of the last shards"))
        return rows


def job_status(job: Job, now: float | None = None) -> JobStatus:
    """The current status of a job. Times are known for folders only, not for buckets."""
    records = job.records.values()
    now = time.time() if now is None else now
    writers = sum(not has_ended(name.rpartition("/")[2]) for name in temporary_names(job.target))
    times = _times(job)
    interval, last = shard_pace(times)
    last_s = None if last is None else max(now - last, 0.0)
    is_recent = last_s is not None and last_s < max(_RECENT_S, _PAUSE_FACTOR * (interval or 0.0))
    todo = len(job.shards) - len(job.records)
    running = bool(todo) and (writers > 0 or is_recent)
    return JobStatus(
        source=job.plan.source,
        shards=len(job.shards),
        done=len(job.records),
        planned=job.plan.planned,
        images=sum(len(record.ids) for record in records),
        bytes=sum(record.bytes for record in records),
        bad=Counter(bad.reason for bad in job.bad),
        dropped=Counter(sample.detail for sample in job.dropped),
        left_out=dict(job.plan.left_out),
        running=running,
        writers=writers,
        last_s=last_s,
        seconds_left=todo * interval if running and interval is not None else None,
        shares=job.plan.shares,
    )


def count_surveyed(target: Target) -> int:
    """Lower bound of the images surveyed for a plan that is not made yet."""
    if target.read(PLAN) is not None:
        return 0
    pieces: dict[str, int] = {}  # a piece may have a file of its progress, too
    for name, bytes in target.files().items():
        if name.startswith(f"{SURVEY}/"):
            piece = name.rpartition(".")[0]
            pieces[piece] = max(pieces.get(piece, 0), bytes)
    return sum(max(1, (bytes - _HEADER_BYTES) // ROW.itemsize) for bytes in pieces.values())


def shard_pace(times: list[float]) -> tuple[float | None, float | None]:
    """Mean seconds per shard since the last pause, and the time of the last shard."""
    ordered = sorted(times)[-_MAX_RECORDS:]
    if len(ordered) < 2:
        return None, ordered[-1] if ordered else None
    gaps = [after - before for before, after in pairwise(ordered)]
    pause = max(_MIN_PAUSE_S, _PAUSE_FACTOR * sorted(gaps)[len(gaps) // 2])
    start = max((k + 1 for k, gap in enumerate(gaps) if gap > pause), default=0)
    count = len(ordered) - 1 - start
    return (ordered[-1] - ordered[start]) / count if count else None, ordered[-1]


def _times(job: Job) -> list[float]:
    """Modification times of the records, seconds since 1970."""
    if not isinstance(job.target, LocalTarget):
        return []
    times: list[float] = []
    for record in job.records.values():
        with suppress(OSError):  # removed by `verify --fix`
            times.append(os.stat(job.target.path(record.name)).st_mtime)
    return times
