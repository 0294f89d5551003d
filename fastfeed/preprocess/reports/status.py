"""Whether a job goes on, how fast, and when it will be done: from its files, so that any machine can ask."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from fastfeed.preprocess.plan import PLAN
from fastfeed.preprocess.reports.progress import format_duration, format_reasons, format_size
from fastfeed.preprocess.reports.verify import temporary_names
from fastfeed.preprocess.state import Job
from fastfeed.preprocess.survey.survey import ROW, piece_name
from fastfeed.preprocess.targets.local import LocalTarget
from fastfeed.preprocess.targets.lock import has_ended
from fastfeed.preprocess.targets.target import Target

__all__ = ["JobStatus", "count_surveyed", "job_status", "shard_pace"]

SURVEY = piece_name(0).rpartition("/")[0]
_AROUND = 640  # bytes in a piece that are no rows, at most
_PAUSE = 8.0  # times as long as between others: one run ended there, and another began
_SHORTEST_S = 60.0  # that a pause lasts
_FRESH_S = 20.0  # since the last shard: a job that other machines do may be running
_RECENT = 200  # records that the speed is taken from


@dataclass(frozen=True, slots=True)
class JobStatus:
    """How far a job is."""

    source: str
    shards: int
    done: int
    planned: int  # images
    images: int  # in the shards that are done
    bytes: int  # of these
    bad: Counter[str]  # by reason
    left_out: dict[str, int]
    running: bool
    writers: int  # processes of this machine that are writing
    last_s: float | None  # seconds since the last shard was done; None: not known
    seconds_left: float | None  # at the speed of the last shards; None: not running, or not known

    @property
    def todo(self) -> int:
        """Shards that are not done."""
        return self.shards - self.done

    def document(self) -> dict[str, Any]:
        """For programs."""
        return {
            "source": self.source, "shards": self.shards, "shards_done": self.done, "planned": self.planned,
            "images": self.images, "bytes": self.bytes, "bad": dict(sorted(self.bad.items())),
            "left_out": self.left_out, "running": self.running, "writers": self.writers, "last_s": self.last_s,
            "seconds_left": self.seconds_left,
        }  # fmt: skip

    def rows(self) -> list[tuple[str, str]]:
        """For people."""
        share = self.done / self.shards if self.shards else 1.0
        found = [
            ("source", self.source),
            ("shards", f"{self.done:,} of {self.shards:,} done, {share:.1%}"),
            ("images", f"{self.images:,} in them, {format_size(self.bytes)}; {self.planned:,} planned"),
        ]
        if self.bad:
            found.append(("bad", f"{self.bad.total():,}: {format_reasons(self.bad, 8)}"))
        if self.left_out:
            found.append(("left out", ", ".join(f"{n:,} {why}" for why, n in sorted(self.left_out.items()))))
        last = "" if self.last_s is None else f", the last shard {format_duration(self.last_s)} ago"
        if not self.todo:
            found.append(("state", "complete"))
        elif self.writers:
            who = "1 process writes" if self.writers == 1 else f"{self.writers} processes write"
            found.append(("state", f"running, {who} on this machine{last}"))
        elif self.running:
            found.append(("state", f"running on another machine, or just stopped{last}"))
        else:
            found.append(("state", f"not running, as far as can be seen from here{last}"))
        if self.seconds_left is not None:
            found.append(("left", f"about {format_duration(self.seconds_left)}, at the speed of the last shards"))
        return found


def job_status(job: Job, now: float | None = None) -> JobStatus:
    """Of a job as it is now. Times are known of folders, not of buckets."""
    records, now = job.records.values(), time.time() if now is None else now
    writers = sum(not has_ended(name.rpartition("/")[2]) for name in temporary_names(job.target))
    times = _times(job)
    each, last = shard_pace(times)
    last_s = None if last is None else max(now - last, 0.0)
    fresh = last_s is not None and last_s < max(_FRESH_S, _PAUSE * (each or 0.0))
    todo = len(job.shards) - len(job.records)
    running = bool(todo) and (writers > 0 or fresh)
    return JobStatus(
        source=job.plan.source,
        shards=len(job.shards),
        done=len(job.records),
        planned=len(job.plan),
        images=sum(len(record.ids) for record in records),
        bytes=sum(record.bytes for record in records),
        bad=Counter(bad.reason for bad in job.bad),
        left_out=dict(job.plan.left_out),
        running=running,
        writers=writers,
        last_s=last_s,
        seconds_left=todo * each if running and each is not None else None,
    )


def count_surveyed(target: Target) -> int:
    """Photographs that were looked at for a plan that is not made yet, at least; 0: there is a plan, or nothing."""
    if target.read(PLAN) is not None:
        return 0
    begun = [bytes for name, bytes in target.files().items() if name.startswith(f"{SURVEY}/")]
    return sum(max(1, (bytes - _AROUND) // ROW.itemsize) for bytes in begun)


def shard_pace(times: list[float]) -> tuple[float | None, float | None]:
    """Seconds from one shard to the next since the last pause, and when the last one was done; `times` in any order."""
    ordered = sorted(times)[-_RECENT:]
    if len(ordered) < 2:
        return None, ordered[-1] if ordered else None
    gaps = [after - before for before, after in pairwise(ordered)]
    usual = sorted(gaps)[len(gaps) // 2]
    begin = max((k + 1 for k, gap in enumerate(gaps) if gap > max(_SHORTEST_S, _PAUSE * usual)), default=0)
    run = ordered[begin:]
    return (run[-1] - run[0]) / (len(run) - 1) if len(run) > 1 else None, ordered[-1]


def _times(job: Job) -> list[float]:
    """When the records were written, seconds since 1970."""
    if not isinstance(job.target, LocalTarget):
        return []
    found = []
    for record in job.records.values():
        try:
            found.append(os.stat(os.path.join(job.target.folder, record.name)).st_mtime)
        except OSError:  # `verify --fix` is at work
            continue
    return found
