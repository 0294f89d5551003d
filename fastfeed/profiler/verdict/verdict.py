"""Is training starved of input? Says how sure it is, what speaks against it, and what to do; or why it cannot say."""

from __future__ import annotations

from collections.abc import Sequence

from fastfeed.profiler.model.causes import FAMILIES, Cause
from fastfeed.profiler.model.format import duration, percent, plural
from fastfeed.profiler.model.result import DeviceResult, FeedResult, Remedy, Share, Verdict
from fastfeed.profiler.model.thresholds import STARVED, word
from fastfeed.profiler.model.trace import Origin
from fastfeed.profiler.steps.input_share import STARVING
from fastfeed.profiler.verdict.advice import remedies
from fastfeed.profiler.verdict.input_advice import feed_change

__all__ = ["focus", "judge", "starved_word"]

_MOSTLY = 0.10  # of the window: where nothing costs more, the device itself is what limits
_BUSY = 0.80  # of the window in kernels: what is lost to many small causes is no limit
_FEW, _MANY = 5, 20  # steps: fewer are weak evidence, as many are good
_TELLING = 3  # waits for input, where there are no steps: one alone may be of something else
_RECORD = (
    "Record some 30 steps after the first 10, host side included: fastfeed profile -- python train.py; "
    "or PyTorch's profiler with CPU and CUDA activities."
)


def focus(devices: Sequence[DeviceResult]) -> DeviceResult:
    """The device that the verdict is about: the one that misses most input, of those that do part of the work."""
    most = max(device.ops for device in devices)
    return max((device for device in devices if device.ops * 20 >= most), key=lambda device: device.share.value)


def starved_word(share: Share) -> str:
    """The verdict for a share: a mark counts once the low end of the interval has passed it."""
    plain = word(share.value)
    low = share.value if share.low is None else share.low
    if plain == "not_starved":
        return plain
    return word(low) if low >= STARVED else "borderline"


def judge(
    devices: Sequence[DeviceResult],
    feeds: Sequence[FeedResult],
    origins: Sequence[Origin],
    again: str = "",
    waits: Sequence[str] = (),
) -> Verdict:
    """The verdict over all devices. `again` measures again; `waits` tell of the host where no device worked."""
    again = again or "fastfeed profile -- <the same command>"
    if not devices:
        return _no_device(feeds, again, waits)
    device = focus(devices)
    made = remedies(device, feeds)
    reasons = _abstains(device, origins)
    found = "abstained" if reasons else starved_word(device.share)
    busy = device.judged.budget.compute >= _BUSY * device.judged.budget.window
    bound = made[0].family if made and (made[0].share >= _MOSTLY or not busy) else "gpu"
    return Verdict(
        word=found,
        headline=_headline(found, device, made, bound, len(devices), reasons),
        bound="" if reasons else bound,
        share=device.share,
        confidence="" if reasons else _confidence(device),
        evidence=_evidence(device, made),
        against=_against(device, devices),
        falsify=_falsify(found, device),
        change=_change(found, made, bound),
        command=again,
        reasons=reasons,
        record=_RECORD if reasons else "",
        remedies=made,
    )


def _abstains(device: DeviceResult, origins: Sequence[Origin]) -> tuple[str, ...]:
    """Why the trace cannot carry a verdict; nothing where it can."""
    origin, judged = origins[device.trace], device.judged
    window, idle = max(judged.budget.window, 1), max(judged.budget.idle, 1)
    missing = judged.causes.get(Cause.NO_LAUNCH, 0)
    reasons = []
    if origin.sampled:
        reasons.append("The file is a sample: events were left out of it.")
    if origin.dropped:
        reasons.append(f"The profiler lost {plural(origin.dropped, 'record')}.")
    if not origin.host_calls:
        reasons.append("The host's API calls were not recorded, so that a late launch cannot be told from a held one.")
    elif idle >= STARVED * window and missing > 0.05 * idle:
        reasons.append(
            f"Only {device.launches:,} of {device.ops:,} device operations have a recorded launch; "
            f"{percent(missing / idle, 0)} of the idle time ends in others."
        )
    elif device.facts.get("held_share", 0.0) > 0.2 and judged.causes.get(Cause.DEPENDENCY, 0) > STARVED * window:
        reasons.append(
            f"For {percent(device.facts['held_share'], 0)} of the idle time work had been launched and nothing "
            "recorded held it back: device operations are missing from the file."
        )
    unknown = judged.causes.get(Cause.HOST_UNKNOWN, 0) + missing
    enough = device.facts.get("steps", 0) / 2 or _TELLING
    told = judged.input.waits >= enough  # then waits for input are in the trace, and what is unknown is something else
    flips = not told and word(device.share.value) != word(device.share.value + unknown / window)
    if origin.host_calls and unknown > 0.2 * idle and device.share.value < STARVED and flips:
        reasons.append(
            f"Of the idle time {percent(unknown / idle, 0)} is the host's and nothing recorded says what it did; "
            f"that is {percent(unknown / window)} of the window and could be input."
        )
    if judged.budget.overhead > 0.1 * window:
        reasons.append(f"The profiler itself took {percent(judged.budget.overhead / window, 0)} of the window.")
    longest = device.facts.get("longest_op_share", 0.0)
    if longest > 0.5:
        reasons.append(f"One device operation covers {percent(longest, 0)} of the window; is its record damaged?")
    return tuple(reasons)


def _no_device(feeds: Sequence[FeedResult], again: str, waits: Sequence[str]) -> Verdict:
    waited = max((feed.waited_ns / max(feed.span_ns, 1) for feed in feeds), default=0.0)
    headline = "There is no device activity in what was recorded."
    if feeds:
        headline += f" By the feed's own timeline the trainer waited for batches {percent(waited)} of the time."
    return Verdict(
        word="abstained",
        headline=headline,
        bound="",
        share=Share(waited if feeds else 0.0),
        confidence="",
        evidence=tuple(
            f"Feed {feed.name or feed.feed}, rank {feed.rank}: {feed.batches:,} batches, "
            f"{duration(feed.waited_ns)} waited. {feed_change(feed) if feed.busiest else ''}".strip()
            for feed in feeds[:3]
        )
        + tuple(waits[:3]),
        against=(),
        falsify="",
        change="Record on a machine with a GPU, with the CUDA activity of the process that trains.",
        command=again,
        reasons=("No kernel, copy or memset was recorded.",),
        record=_RECORD,
    )


def _headline(
    found: str, device: DeviceResult, made: Sequence[Remedy], bound: str, count: int, reasons: Sequence[str]
) -> str:
    share, judged = device.share, device.judged
    idle = judged.budget.idle / max(judged.budget.window, 1)
    where = device.label if count > 1 else "The GPU"
    limit = "the GPU itself is what limits" if bound == "gpu" else f"most is lost to: {FAMILIES[bound]}"
    if found == "abstained":
        return f"No verdict. {reasons[0]}"
    if found == "borderline":
        low = (
            f" (95 % interval {percent(share.low)} to {percent(share.high)})"
            if share.low is not None and share.high
            else ""
        )
        return f"{where} may be starved: input costs {percent(share.value)} of the time{low}."
    if found == "not_starved":
        return f"{where} is not starved: input costs {percent(share.value)} of the time. Idle {percent(idle)}; {limit}."
    much = "severely starved" if found == "severe" else "starved"
    staged = judged.causes.get(Cause.H2D_STAGING, 0) > judged.causes.get(Cause.INPUT, 0)
    what = "input, most of it for copies from pageable memory" if staged else "input"
    return f"{where} is {much}: {percent(share.value)} of the time it waits for {what} (idle {percent(idle)})."


def _confidence(device: DeviceResult) -> str:
    steps = int(device.steps.steady.sum())
    return "confirmed" if steps >= _MANY else "likely" if steps >= _FEW else "weak"


def _evidence(device: DeviceResult, made: Sequence[Remedy]) -> tuple[str, ...]:
    said = [remedy.evidence for remedy in made[:2]]
    for gap in device.worst[:1]:
        inside = f" in {gap.inside}" if gap.inside else ""
        said.append(f"The worst gap: {duration(gap.end - gap.start)}, {gap.thread or 'the host'}{inside}.")
    if device.share.steps_over:
        said.append(f"{percent(device.share.steps_over, 0)} of the steps lose more than 5 % to input.")
    if device.steady is not None:
        whole = sum(device.whole.causes.get(cause, 0) for cause in STARVING) / max(device.whole.budget.window, 1)
        if abs(whole - device.share.value) > 0.01:
            said.append(f"Over the whole recording, its beginning included, input costs {percent(whole)}.")
    return tuple(said)


def _against(device: DeviceResult, devices: Sequence[DeviceResult]) -> tuple[str, ...]:
    """What speaks against the verdict, or limits it."""
    said = []
    waits, steady = device.judged.input, int(device.steps.steady.sum())
    if waits.hidden > max(waits.exposed, device.judged.budget.window // 100):
        said.append(f"{duration(waits.hidden)} of waiting for input were hidden behind GPU work, and harmless.")
    if not len(device.steps.labels):
        said.append("No steps could be told apart: the figures are of the whole recording, its beginning included.")
    elif steady < _FEW:
        whole = f"Only {plural(steady, 'whole step')}" if steady else "No whole step"
        said.append(f"{whole} {'were' if steady > 1 else 'was'} recorded; {_FEW} make a verdict, {_MANY} a firm one.")
    if device.cold is not None and device.cold.steps:
        first = "The first step is" if device.cold.steps == 1 else f"The first {device.cold.steps:,} steps are"
        said.append(f"{first} left out, as a cold start.")
    low, high = (pick(one.share.value for one in devices) for pick in (min, max))
    if high - low > STARVED:
        said.append(f"Devices differ: input costs {percent(low)} to {percent(high)}.")
    return tuple(said)


def _falsify(found: str, device: DeviceResult) -> str:
    if found == "abstained":
        return ""
    if found == "not_starved":
        return "The same run on batches kept in memory being more than 5 % faster would show this to be wrong."
    gain = 1 / max(1 - device.share.value, 0.01)
    return (
        f"The same run on batches kept in memory should be up to {gain:.2f} times as fast; if it is not, this is wrong."
    )


def _change(found: str, made: Sequence[Remedy], bound: str) -> str:
    if found == "abstained":
        return "Nothing yet: record again, as said under Record."
    wanted = ("input", "h2d") if found in ("starved", "severe", "borderline") else (bound,)
    chosen = next((remedy for remedy in made if remedy.family in wanted), None)  # the costlier
    if chosen is not None:
        return chosen.change
    return "Nothing about the input: the GPU is busy. Faster kernels, lower precision or a larger GPU would help."
