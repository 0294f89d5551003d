"""Statistics of a job: counts over its records, and times over its runs."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fastfeed.preprocess.model.record import Counts
from fastfeed.preprocess.model.report import format_counts, format_duration
from fastfeed.preprocess.planning.shares import split_rows
from fastfeed.preprocess.targets.job_state import BAD, TIMES, Job
from fastfeed.printable import format_size, plural

STAGES = {
    "read": "reading from disk or network",
    "decode": "decoding",
    "resize": "resizing",
    "encode": "encoding",
    "write": "writing shards",
    "commit": "waiting for the target",
}
_DOMINANT = 0.5  # share of the workers' time above which a stage is the bottleneck
_IDLE = 0.4
_SUMMED = ("seconds", "images", "bytes_in", "bytes_out")  # of each run


@dataclass(frozen=True, slots=True)
class RunStatistics:
    """Times and counts of one run, or of several together."""

    seconds: float = 0.0
    worker_seconds: float = 0.0  # seconds * workers
    stages: dict[str, float] = field(default_factory=dict)  # seconds of all workers together
    images: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    runs: int = 0


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of the completed shards."""

    target: str
    shards: int  # planned
    shards_done: int
    planned: int  # images
    source: str
    format: str
    tally: Counts
    bad: Counter[str]  # by reason
    dropped: int  # images that `Limits.where` or the user's function left out
    left_out: dict[str, int]  # by the plan, by reason
    bytes: int  # of all shard files
    took: RunStatistics  # all runs
    shares: dict[str, Any] = field(default_factory=dict)  # of the split: JobPlan.shares

    def document(self) -> dict[str, Any]:
        """The statistics as values for JSON."""
        document = asdict(self)
        tally = document["tally"]
        for name in ("megapixels", "aspects"):
            tally[name] = dict(sorted(tally[name].items(), key=lambda item: float(item[0])))
        for name in ("formats", "modes", "icc", "orientations", "sizes"):
            tally[name] = dict(ranked(tally[name]))
        return document | {"bad": dict(ranked(self.bad)), "limit": bottleneck(self.took)}


def statistics(job: Job) -> Statistics:
    """Sum up the records of a job."""
    records = job.records.values()
    plan = job.plan
    return Statistics(
        target=job.target.text,
        shards=len(job.shards),
        shards_done=len(job.records),
        planned=plan.planned,
        source=plan.source,
        format=plan.recipe.packing.format,
        tally=Counts.sum(record.tally for record in records),
        bad=Counter(bad.reason for bad in job.bad),
        dropped=len(job.dropped),
        left_out=dict(plan.left_out),
        bytes=sum(record.bytes for record in records),
        took=_load_runs(job.target.read(TIMES) or b""),
        shares=plan.shares,
    )


def bottleneck(took: RunStatistics) -> str:
    """The bottleneck of a job, in one sentence; empty if nothing was timed."""
    busy = sum(took.stages.values())
    if not busy:
        return ""
    total = max(busy, took.worker_seconds)  # the number of workers of earlier runs may be unknown
    share = defaultdict(float, {name: seconds / total for name, seconds in took.stages.items()})
    idle = 1 - busy / total
    cpu = share["decode"] + share["resize"] + share["encode"]
    read = share["read"]
    write = share["write"] + share["commit"]
    largest = max(cpu, read, write, idle)
    if idle == largest and idle >= _IDLE:
        why = "too few shards for this many workers"
        return f"workers were idle or starting {idle:.0%} of the time: {why}"
    if cpu == largest:
        claim = "the limit is the CPU" if cpu >= _DOMINANT else "the CPU costs most"
        parts = ", ".join(
            f"{STAGES[name]} {share[name]:.0%}" for name in ("decode", "resize", "encode")
        )
        advice = "more cores with as many --workers help"
        if share["encode"] > share["decode"]:
            advice = "JPEG is the fastest to encode, else more cores help"
        return f"{claim}: {parts} of the workers' time; {advice}"
    if read == largest:
        limit = "the limit is the disk or network that is read from"
        claim = limit if read >= _DOMINANT else "reading costs most"
        advice = "faster storage or more --workers help"
        return f"{claim}: {read:.0%} of the workers' time{_rate(took, took.bytes_in)}; {advice}"
    claim = "the limit is the writer" if write >= _DOMINANT else "writing costs most"
    rate = _rate(took, took.bytes_out)
    return f"{claim}: {write:.0%} of the workers' time{rate}; a faster target helps"


def _rate(took: RunStatistics, count: int) -> str:
    return f", {count / took.seconds / 1e6:,.0f} MB/s" if took.seconds and count else ""


def charts(stats: Statistics) -> list[tuple[str, list[tuple[str, int]]]]:
    """Titles and bars of the histograms of inputs and outputs."""
    counts = stats.tally
    return [
        ("formats", top_rows(counts.formats, 8)),
        ("megapixels", bins(counts.megapixels, megapixel)),
        ("width : height", bins(counts.aspects, aspect)),
        ("color modes", top_rows(counts.modes, 8)),
        ("color profiles", top_rows(counts.icc, 8)),
        ("EXIF orientations", top_rows(counts.orientations, 8)),
        ("sizes written, height x width", top_rows(counts.sizes, 8)),
    ]


def ranked(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Sorted by count, descending, then by name."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def top_rows(counts: Mapping[str, int], limit: int) -> list[tuple[str, int]]:
    """`ranked`, with all after the first `limit` in one row."""
    rows = ranked(counts)
    if len(rows) <= limit + 1:
        return rows
    others = rows[limit:]
    return [*rows[:limit], (f"{len(others):,} others", sum(n for _, n in others))]


def bins(
    counts: Mapping[str, int], name: Callable[[float], str], limit: int = 12
) -> list[tuple[str, int]]:
    """Bins by lower edge, ascending; of more than `limit`, rare ones at both ends are merged."""
    sorted_bins = sorted((float(edge), n) for edge, n in counts.items())
    low = high = 0
    while len(sorted_bins) > limit:
        if sorted_bins[0][1] + low <= sorted_bins[-1][1] + high:
            low += sorted_bins.pop(0)[1]
        else:
            high += sorted_bins.pop()[1]
    lines = [(name(edge), n) for edge, n in sorted_bins]
    return [*([("less", low)] if low else []), *lines, *([("more", high)] if high else [])]


def aspect(ratio: float) -> str:
    """Name of a bin of aspect ratios: 1.41 is `1.41:1`, 0.71 is `1:1.41`."""
    return f"{ratio:.2f}:1" if ratio >= 1 else f"1:{1 / ratio:.2f}"


def megapixel(low: float) -> str:
    """Name of a bin of image sizes: 4 is `4 to 8 MP`."""
    return f"{low:.2g} to {2 * low:.2g} MP"


def _load_runs(content: bytes) -> RunStatistics:
    """Sum of all runs; truncated lines are skipped."""
    total = Counter[str]()
    stages = Counter[str]()
    runs = 0
    for text in content.decode(errors="replace").splitlines():
        try:
            run = json.loads(text)
        except ValueError:
            continue
        if isinstance(run, dict) and isinstance(run.get("stages"), dict):
            runs += 1
            stages.update(run["stages"])
            total.update({name: run.get(name, 0) for name in _SUMMED})
            total["worker_seconds"] += run.get("seconds", 0) * int(run.get("workers") or 0)
    order = [*(name for name in STAGES if name in stages), *sorted(stages.keys() - STAGES.keys())]
    return RunStatistics(**total, stages={name: stages[name] for name in order}, runs=runs)


def summary(stats: Statistics) -> list[tuple[str, str]]:
    """The statistics as rows of text."""
    counts = stats.tally
    took = stats.took
    good = counts.samples
    bad = stats.bad.total()
    share = f", {bad:,} are bad ({bad / (good + bad):.2%})" if bad else ""
    lines = [
        ("shards", f"{stats.shards_done:,} of {stats.shards:,}, {stats.format}"),
        ("images", f"{good:,} of {stats.planned:,}{share}"),
    ]
    lines += split_rows(stats.shares)
    if stats.dropped:
        lines.append(("dropped", f"{stats.dropped:,}, listed in {BAD}"))
    if stats.left_out:
        lines.append(("left out", format_counts(stats.left_out)))
    if good:
        sizes = [
            ("read", counts.bytes_in, counts.pixels_in),
            ("written", stats.bytes, counts.pixels_out),
        ]
        for name, count, pixels in sizes:
            mega = pixels / good / 1e6
            shape = f"{mega:.2g} MP" if mega < 10 else f"{mega:.0f} MP"
            each = f"{format_size(count / good)} and {shape} per image"
            lines.append((name, f"{format_size(count)}, {each}"))
        if counts.bytes_in:
            lines.append(("output size", f"{stats.bytes / counts.bytes_in:.1%} of input"))
    if counts.kept:
        lines.append(("unchanged", f"{counts.kept:,} files passed through"))
    if counts.enlarged:
        lines.append(("enlarged", f"{counts.enlarged:,}"))
    if took.seconds:
        rate = f", {took.images / took.seconds:,.1f} images/s" if took.images else ""
        long = format_duration(took.seconds) if took.seconds >= 10 else f"{took.seconds:.1f} s"
        lines.append(("took", f"{long} in {plural(took.runs, 'run')}{rate}"))
    busy = sum(took.stages.values())
    for name, seconds in took.stages.items() if busy else ():
        lines.append((f"  {name}", f"{seconds / busy:.0%}, {STAGES.get(name, name)}"))
    return lines
