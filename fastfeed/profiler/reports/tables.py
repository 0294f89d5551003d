"""The page's tables: devices, ranks, feeds, phases, cold start, recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastfeed.html_page import Markup, bullets, escape, section, table
from fastfeed.printable import plural
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.format import duration, interval, multiple, one_line, percent
from fastfeed.profiler.model.result import DeviceResult, FeedResult, RankResult, Result
from fastfeed.profiler.reports import figures
from fastfeed.profiler.reports.charts import stacked_bar, swatch

MAX_ROWS = 128  # rows
_MIN_STEP_SHARE = 0.001  # of a step: smaller causes share a row
_CLASSES = {
    "step": "length",
    "compute": "computing",
    "comm": "exposed communication",
    "h2d": "exposed copies to the GPU",
    "other": "exposed other copies",
    "overhead": "profiler",
    "idle": "idle",
}


def colored(cause: Cause) -> Markup:
    """The title of a cause after a sample of its color."""
    return Markup(f"{swatch(cause.color)}{escape(cause.title)}")


def per_step(device: DeviceResult) -> Markup:
    """The parts of a steady step, and how much steps vary; "" with too few steps.

    The means of the classes add up to the step, and those of the causes to its idle part.
    """
    titles = {about.key: about.title for about in Cause} | _CLASSES
    rows, rest = [], []
    for key, spread in device.per_step.items():
        step = device.per_step["step"].mean
        if key not in _CLASSES and spread.mean < _MIN_STEP_SHARE * step:
            rest.append(spread.mean)
            continue
        share = interval(spread.low, spread.high) or percent(spread.mean / max(step, 1))
        times = map(duration, (spread.mean, spread.median, spread.p95))
        rows.append([titles.get(key, key), *times, "" if key == "step" else share])
    if rest:
        rows.append([plural(len(rest), "smaller cause"), duration(sum(rest)), "", "", ""])
    head = ("Per step", "#mean", "#median", "#95th percentile", "#share, 95 % interval")
    return table(head, rows)


def functions(device: DeviceResult) -> Markup:
    """The functions that the host was in while the device was idle for long; "" without any."""
    steps = figures.steps_judged(device)
    rows = [
        [
            Markup(f"<b>{escape(one_line(str(time), 120))}</b>"),
            one_line(time.inside, 120),
            colored(time.cause),
            percent(device.judged.share(time.ns)),
            duration(time.ns / (steps or 1)),
            f"{time.gaps:,}",
        ]
        for time in device.functions
    ]
    head = ("~Function", "~mostly in", "~kind", "#of the time")
    lines = table([*head, "#per step" if steps else "#in all", "#gaps"], rows, stacked=True)
    about = "What the late thread was in, for gaps of a millisecond or more."
    start = f'<h3>In which functions</h3><p class="soft">{about}</p>'
    return Markup(start + lines if lines else "")


def devices(all_devices: list[DeviceResult]) -> Markup:
    """One row per device, in the order given."""
    rows = []
    for device in all_devices[:MAX_ROWS]:
        budget, steps = device.judged.budget, figures.steps_judged(device)
        rows.append(
            [
                one_line(device.label, 120),
                percent(device.share.value),
                percent(budget.idle / budget.window if budget.window else 0.0),
                stacked_bar(budget, small=True),
                figures.computing(device),
                figures.top_cause(device),
                duration(device.comm_wait),
                _blame(device),
                duration(budget.window / steps) if steps else "–",
                percent(device.launches / device.ops) if device.ops else "–",
            ]
        )
    head = ("~Device", "#input", "#idle", "time", "#computing", "mostly idle for")
    head += ("#waits for peers", "for", "#step", "#launches found")
    more = len(all_devices) - MAX_ROWS
    note = f"<p>{more} more devices are in the JSON report.</p>" if more > 0 else ""
    return section("Devices", table(head, rows), note)


def _blame(device: DeviceResult) -> str:
    """The rank it waited for longest inside collectives, and why that rank was late."""
    charge = max(device.charges, key=lambda charge: charge.ns, default=None)
    if charge is None:
        return ""
    why = f": {charge.cause.title}" if charge.cause is not None else ""
    return one_line(charge.late_rank, 40) + why


def ranks(all_ranks: Sequence[RankResult]) -> Markup:
    """Table of the time that each rank waited, and that others waited for it."""
    rows = [
        [
            one_line(rank.label, 120),
            duration(rank.waited_ns),
            duration(rank.blamed_ns),
            multiple(rank.kernels) if rank.kernels is not None else "–",
            f"{rank.collectives:,}",
            duration(rank.offset_ns),
        ]
        for rank in sorted(all_ranks, key=lambda rank: -rank.blamed_ns)[:MAX_ROWS]
    ]
    head = ("~Rank", "#waited for others", "#others waited for it", "#kernels take")
    return section(
        "Ranks, inside collectives", table([*head, "#collectives", "#clock offset"], rows)
    )


def feeds(all_feeds: Sequence[FeedResult]) -> Markup:
    """One row per timeline of a feed."""
    rows = []
    for feed in all_feeds[:MAX_ROWS]:
        stages = sorted(feed.stages.items(), key=lambda item: -item[1][1])[:8]
        work = (f"{one_line(name, 24)} {duration(ns)} in {n:,}" for name, (n, ns) in stages)
        rows.append(
            [
                one_line(feed.name or feed.feed, 80),
                str(feed.rank),
                f"{feed.batches:,}",
                duration(feed.span_ns),
                percent(feed.wait_share) if feed.span_ns > 0 else "–",
                str(feed.threads),
                ", ".join(work),
            ]
        )
    head = ("~Feed", "#rank", "#batches", "#time", "#trainer waited", "#threads")
    lines = table([*head, "~stages, all threads together"], rows, stacked=True)
    return section("Feeds", lines)


def phases(device: DeviceResult) -> Markup:
    """Parts of the run other than steady training, with what to change about each."""
    rows = [
        [
            row.title,
            percent(row.share),
            duration(row.ns),
            percent(row.idle),
            Markup(
                f'{escape(row.change)}<br><span class="soft">'
                f"{escape(_largest_causes(row.causes))}</span>"
            ),
        ]
        for row in figures.phase_rows(device)
    ]
    head = ("Part", "#of the recording", "#time", "#idle of that", "~Change")
    return section("The run", table(head, rows, stacked=True))


def _largest_causes(causes: Mapping[Cause, int]) -> str:
    largest = sorted(causes.items(), key=lambda item: -item[1])[:3]
    return ", ".join(f"{cause.title} {duration(ns)}" for cause, ns in largest if ns > 0)


def cold(device: DeviceResult) -> Markup:
    """Causes of idle time before the first steady step."""
    if device.cold is None or not device.cold.idle:
        return Markup("")
    causes = [
        Markup(f"{colored(cause)} <b>{escape(duration(ns))}</b>")
        for cause, ns in sorted(device.cold.causes.items(), key=lambda item: -item[1])
        if ns > 0
    ]
    return section(
        "Warm-up (excluded)",
        f"<p>{plural(device.cold.steps, 'step')} before the first steady step, idle for"
        f" {escape(duration(device.cold.idle))}.</p>",
        bullets(causes, "legend"),
    )


def recording(result: Result) -> Markup:
    """The files, and the parts that are missing from their recording."""
    rows = []
    for origin in result.origins[:MAX_ROWS]:
        lacks = [] if origin.host_calls else ["host calls"]
        lacks += [f"{plural(origin.dropped, 'dropped record')}"] if origin.dropped else []
        lacks += ["events dropped by sampling"] if origin.sampled else []
        version = f"{one_line(origin.dialect, 20)} {one_line(origin.version, 40)}"
        rows.append([one_line(str(origin.path), 300), version, ", ".join(lacks) or "nothing"])
    origins = result.origins[:MAX_ROWS]
    notes = [*result.notes, *(note for origin in origins for note in origin.notes)]
    unique = list(dict.fromkeys(one_line(note, 600) for note in notes))[:40]
    heading = "<h3>Notes</h3>" if unique else ""
    files = table(("~File", "format", "lacks"), rows, stacked=True)
    return section("How it was recorded", files, heading, bullets(unique))
