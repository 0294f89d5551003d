"""What a job met and what it cost: sums over the records of its shards, and over what its runs took."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fastfeed.preprocess.finalize import TIMES
from fastfeed.preprocess.record import Counts
from fastfeed.preprocess.reports.progress import format_duration, format_size
from fastfeed.preprocess.state import Job

__all__ = ["STAGES", "Run", "Statistics", "bottleneck", "statistics"]

STAGES = {
    "read": "reading from disk or network",
    "decode": "decoding and resizing",
    "encode": "encoding",
    "write": "writing shards",
    "commit": "waiting for the target",
}
_LIMIT = 0.5  # of the time of all workers: more than this, and it is the limit
_IDLE = 0.4


@dataclass(frozen=True, slots=True)
class Run:
    """What one run took, or several together."""

    seconds: float = 0.0
    worker_seconds: float = 0.0  # seconds times workers
    stages: dict[str, float] = field(default_factory=dict)  # seconds of all workers together
    images: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    runs: int = 0


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of the shards that are done."""

    target: str
    shards: int  # planned
    shards_done: int
    planned: int  # images
    source: str
    format: str
    tally: Counts
    bad: Counter[str]  # by reason
    left_out: dict[str, int]  # by the plan
    bytes: int  # of all files of shards
    took: Run  # all runs

    def document(self) -> dict[str, Any]:
        """For programs."""
        found = asdict(self)
        tally = found["tally"]
        for name in ("megapixels", "aspects"):
            tally[name] = dict(sorted(tally[name].items(), key=lambda item: float(item[0])))
        for name in ("formats", "modes", "icc", "orientations", "sizes"):
            tally[name] = dict(ranked(tally[name]))
        return found | {"bad": dict(ranked(self.bad)), "limit": bottleneck(self.took)}


def statistics(job: Job) -> Statistics:
    """Add up what is recorded."""
    records, plan = job.records.values(), job.plan
    return Statistics(
        target=job.target.text,
        shards=len(job.shards),
        shards_done=len(job.records),
        planned=len(plan),
        source=plan.source,
        format=plan.recipe.packing.format,
        tally=Counts.sum(record.tally for record in records),
        bad=Counter(bad.reason for record in records for bad in record.bad),
        left_out=dict(plan.left_out),
        bytes=sum(record.bytes for record in records),
        took=_took(job.target.read(TIMES) or b""),
    )


def bottleneck(took: Run) -> str:
    """What would have to be faster for all of it to be faster: one sentence. Empty where nothing was timed."""
    busy = sum(took.stages.values())
    if not busy:
        return ""
    whole = max(busy, took.worker_seconds)  # of earlier runs it may not be known how many worked
    share = {name: seconds / whole for name, seconds in took.stages.items()}
    idle = 1 - busy / whole
    processor = share.get("decode", 0.0) + share.get("encode", 0.0)
    read, write = share.get("read", 0.0), share.get("write", 0.0) + share.get("commit", 0.0)
    most = max(processor, read, write, idle)
    if idle == most and idle >= _IDLE:
        return (
            f"workers were idle or starting {idle:.0%} of their time: "
            "the job is too short, or has too few shards, for so many"
        )
    if processor == most:
        parts = f"decoding {share.get('decode', 0.0):.0%}, encoding {share.get('encode', 0.0):.0%}"
        certain = "the limit is the processor" if processor >= _LIMIT else "the processor costs most"
        if share.get("encode", 0.0) > share.get("decode", 0.0):
            return f"{certain}: {parts} of the workers' time; JPEG is the fastest to encode, else more cores help"
        return f"{certain}: {parts} of the workers' time; more cores with as many --workers help"
    if read == most:
        certain = "the limit is the disk or network that is read from" if read >= _LIMIT else "reading costs most"
        rate = f", {took.bytes_in / took.seconds / 1e6:,.0f} MB/s" if took.seconds and took.bytes_in else ""
        return f"{certain}: {read:.0%} of the workers' time{rate}; faster storage or more --workers help"
    rate = f", {took.bytes_out / took.seconds / 1e6:,.0f} MB/s" if took.seconds and took.bytes_out else ""
    certain = "the limit is the writer" if write >= _LIMIT else "writing costs most"
    return f"{certain}: {write:.0%} of the workers' time{rate}; a faster target helps"


def ranked(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """The most frequent first, equals by name."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def top_rows(counts: Mapping[str, int], most: int) -> list[tuple[str, int]]:
    """`ranked`, with all behind the first `most` in one row."""
    found = ranked(counts)
    if len(found) <= most + 1:
        return found
    return [*found[:most], (f"{len(found) - most:,} others", sum(n for _, n in found[most:]))]


def bins(counts: Mapping[str, int], name: Callable[[float], str], most: int = 12) -> list[tuple[str, int]]:
    """By their lower edges, ascending, named by them; of too many, the rare ones at the ends are put together."""
    found = sorted((float(edge), n) for edge, n in counts.items())
    low = high = 0
    while len(found) > most:
        if found[0][1] + low <= found[-1][1] + high:
            low += found.pop(0)[1]
        else:
            high += found.pop()[1]
    lines = [(name(edge), n) for edge, n in found]
    return [*([("less", low)] if low else []), *lines, *([("more", high)] if high else [])]


def aspect(ratio: float) -> str:
    """A bin of aspect ratios as photographers say it: 1.41 is `1.41:1`, 0.71 is `1:1.41`."""
    return f"{ratio:.2f}:1" if ratio >= 1 else f"1:{1 / ratio:.2f}"


def megapixel(low: float) -> str:
    """A bin of sizes: 4 is `4 to 8 MP`."""
    return f"{low:.2g} to {2 * low:.2g} MP"


def _took(content: bytes) -> Run:
    """All runs together; a line that is cut off counts for nothing."""
    runs: list[dict[str, Any]] = []
    for text in content.decode(errors="replace").splitlines():
        try:
            found = json.loads(text)
        except ValueError:
            continue
        if isinstance(found, dict) and isinstance(found.get("stages"), dict):
            runs.append(found)
    stages = Counter[str]()
    for found in runs:
        stages.update({name: float(seconds) for name, seconds in found["stages"].items()})  # type: ignore[arg-type]
    return Run(
        seconds=_sum(runs, "seconds"),
        worker_seconds=sum(float(found.get("seconds", 0)) * int(found.get("workers") or 0) for found in runs),
        stages={name: stages[name] for name in sorted(stages, key=_order)},
        images=int(_sum(runs, "images")),
        bytes_in=int(_sum(runs, "bytes_in")),
        bytes_out=int(_sum(runs, "bytes_out")),
        runs=len(runs),
    )


def _order(stage: str) -> tuple[int, str]:
    known = list(STAGES)
    return (known.index(stage) if stage in known else len(known), stage)


def _sum(runs: Sequence[Mapping[str, Any]], name: str) -> float:
    return sum(float(found.get(name, 0)) for found in runs)


def summary(found: Statistics) -> list[tuple[str, str]]:
    """The sums, in words."""
    tally, took = found.tally, found.took
    good, bad = tally.samples, found.bad.total()
    lines = [
        ("shards", f"{found.shards_done:,} of {found.shards:,}, {found.format}"),
        ("images", f"{good:,} of {found.planned:,}" + (f", {bad:,} are bad ({bad / (good + bad):.2%})" if bad else "")),
    ]
    if found.left_out:
        lines.append(("left out", ", ".join(f"{n:,} {why}" for why, n in sorted(found.left_out.items()))))
    if good:
        for name, count, pixels in (
            ("read", tally.bytes_in, tally.pixels_in),
            ("written", found.bytes, tally.pixels_out),
        ):
            lines.append(
                (name, f"{format_size(count)}, {format_size(count / good)} and {_mega(pixels / good)} an image")
            )
        if tally.bytes_in:
            lines.append(("share", f"{found.bytes / tally.bytes_in:.1%} of what was read"))
    if tally.kept:
        lines.append(("as they were", f"{tally.kept:,} files passed on"))
    if tally.enlarged:
        lines.append(("enlarged", f"{tally.enlarged:,}"))
    if took.seconds:
        rate = f", {took.images / took.seconds:,.1f} images/s" if took.images else ""
        long = format_duration(took.seconds) if took.seconds >= 10 else f"{took.seconds:.1f} s"
        lines.append(("took", f"{long} in {took.runs} run{'s' if took.runs != 1 else ''}{rate}"))
    busy = sum(took.stages.values())
    for name, seconds in took.stages.items():
        if busy:
            lines.append((f"  {name}", f"{seconds / busy:.0%}, {STAGES.get(name, name)}"))
    return lines


def _mega(pixels: float) -> str:
    return f"{pixels / 1e6:.2g} MP" if pixels < 1e7 else f"{pixels / 1e6:.0f} MP"
