"""Is training starved of input? How certain that is, what contradicts it, and what to do; or why it is unknown."""

from __future__ import annotations

from collections.abc import Sequence

from fastfeed.profiler.model.causes import FAMILIES, Cause
from fastfeed.profiler.model.format import duration, percent, plural
from fastfeed.profiler.model.result import DeviceResult, FeedResult, Remedy, Share, Verdict
from fastfeed.profiler.model.thresholds import STARVED, word
from fastfeed.profiler.model.trace import Origin
from fastfeed.profiler.steps.input_share import STARVING
from fastfeed.profiler.verdict.advice import remedies
from fastfeed.profiler.verdict.input_advice import feed_advice

__all__ = ["focus", "judge", "starved_word"]

_MIN_BOUND_SHARE = 0.10  # of the window: if nothing costs more, the device itself is the bottleneck
_BUSY = 0.80  # of the window in kernels: many small losses are not a bottleneck
_LIKELY_STEPS, _CONFIRMED_STEPS = 5, 20  # steps for a likely and for a confirmed verdict
_MIN_WAITS = 3  # waits for input, if there are no steps: a single one may be something else
_HOW_TO_RECORD = (
    "Record some 30 steps after the first 10, host side included: fastfeed profile -- python train.py; "
    "or PyTorch's profiler with CPU and CUDA activities."
)


def focus(devices: Sequence[DeviceResult]) -> DeviceResult:
    """The device the verdict is about: the most starved of those that do a real part of the work."""
    max_ops = max(device.ops for device in devices)
    return max((device for device in devices if device.ops * 20 >= max_ops), key=lambda device: device.share.value)


def starved_word(share: Share) -> str:
    """The verdict for a share: a threshold counts once the low end of the interval exceeds it."""
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
    """The verdict over all devices.

    `again` is the command to measure again; `waits` are sentences about the host if no device was active.
    """
    again = again or "fastfeed profile -- <the same command>"
    if not devices:
        return _no_device(feeds, again, waits)
    device = focus(devices)
    advice = remedies(device, feeds)
    reasons = _abstention_reasons(device, origins)
    verdict_word = "abstained" if reasons else starved_word(device.share)
    busy = device.judged.budget.compute >= _BUSY * device.judged.budget.window
    bound = advice[0].family if advice and (advice[0].share >= _MIN_BOUND_SHARE or not busy) else "gpu"
    return Verdict(
        word=verdict_word,
        headline=_headline(verdict_word, device, advice, bound, len(devices), reasons),
        bound="" if reasons else bound,
        share=device.share,
        confidence="" if reasons else _confidence(device),
        evidence=_evidence(device, advice),
        against=_against(device, devices),
        falsify=_falsify(verdict_word, device),
        change=_change(verdict_word, advice, bound),
        command=again,
        reasons=reasons,
        record=_HOW_TO_RECORD if reasons else "",
        remedies=advice,
    )


def _abstention_reasons(device: DeviceResult, origins: Sequence[Origin]) -> tuple[str, ...]:
    """Why the trace does not support a verdict; empty if it does."""
    origin, judged = origins[device.trace], device.judged
    window, idle = max(judged.budget.window, 1), max(judged.budget.idle, 1)
    missing = judged.causes.get(Cause.NO_LAUNCH, 0)
    reasons = []
    if origin.sampled:
        reasons.append("The trace is sampled: events were left out.")
    if origin.dropped:
        reasons.append(f"The profiler lost {plural(origin.dropped, 'record')}.")
    if not origin.host_calls:
        reasons.append(
            "The host's API calls were not recorded, so a late launch cannot be distinguished from a delayed kernel."
        )
    elif idle >= STARVED * window and missing > 0.05 * idle:
        reasons.append(
            f"Only {device.launches:,} of {device.ops:,} device operations have a recorded launch; "
            f"{percent(missing / idle, 0)} of the idle time ends in the others."
        )
    elif device.metrics.get("held_share", 0.0) > 0.2 and judged.causes.get(Cause.DEPENDENCY, 0) > STARVED * window:
        reasons.append(
            f"For {percent(device.metrics['held_share'], 0)} of the idle time work was already launched, and "
            "nothing recorded explains why it had not started: device operations are missing from the trace."
        )
    unknown = judged.causes.get(Cause.HOST_UNKNOWN, 0) + missing
    min_waits = device.metrics.get("steps", 0) / 2 or _MIN_WAITS
    # with recorded input waits, the unknown time is something else
    waits_recorded = judged.input.waits >= min_waits
    flips = not waits_recorded and word(device.share.value) != word(device.share.value + unknown / window)
    if origin.host_calls and unknown > 0.2 * idle and device.share.value < STARVED and flips:
        reasons.append(
            f"For {percent(unknown / idle, 0)} of the idle time it was not recorded what the host did; "
            f"that is {percent(unknown / window)} of the window and could be input."
        )
    if judged.budget.overhead > 0.1 * window:
        reasons.append(f"The profiler itself took {percent(judged.budget.overhead / window, 0)} of the window.")
    longest = device.metrics.get("longest_op_share", 0.0)
    if longest > 0.5:
        reasons.append(f"One device operation covers {percent(longest, 0)} of the window; is its record damaged?")
    return tuple(reasons)


def _no_device(feeds: Sequence[FeedResult], again: str, waits: Sequence[str]) -> Verdict:
    waited = max((feed.waited_ns / max(feed.span_ns, 1) for feed in feeds), default=0.0)
    headline = "The recording has no device activity."
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
            f"{duration(feed.waited_ns)} waited. {feed_advice(feed) if feed.busiest else ''}".strip()
            for feed in feeds[:3]
        )
        + tuple(waits[:3]),
        against=(),
        falsify="",
        change="Record on a machine with a GPU, with the CUDA activity of the process that trains.",
        command=again,
        reasons=("No kernel, copy or memset was recorded.",),
        record=_HOW_TO_RECORD,
    )


def _headline(
    verdict_word: str, device: DeviceResult, advice: Sequence[Remedy], bound: str, count: int, reasons: Sequence[str]
) -> str:
    share, judged = device.share, device.judged
    idle = judged.budget.idle / max(judged.budget.window, 1)
    where = device.label if count > 1 else "The GPU"
    limit = "the GPU itself is the bottleneck" if bound == "gpu" else f"the largest loss: {FAMILIES[bound]}"
    if verdict_word == "abstained":
        return f"No verdict. {reasons[0]}"
    if verdict_word == "borderline":
        low = (
            f" (95 % interval {percent(share.low)} to {percent(share.high)})"
            if share.low is not None and share.high
            else ""
        )
        return f"{where} may be starved: input costs {percent(share.value)} of the time{low}."
    if verdict_word == "not_starved":
        return f"{where} is not starved: input costs {percent(share.value)} of the time. Idle {percent(idle)}; {limit}."
    much = "severely starved" if verdict_word == "severe" else "starved"
    staged = judged.causes.get(Cause.H2D_STAGING, 0) > judged.causes.get(Cause.INPUT, 0)
    what = "input, most of it for copies from pageable memory" if staged else "input"
    return f"{where} is {much}: {percent(share.value)} of the time it waits for {what} (idle {percent(idle)})."


def _confidence(device: DeviceResult) -> str:
    steps = int(device.steps.steady.sum())
    return "confirmed" if steps >= _CONFIRMED_STEPS else "likely" if steps >= _LIKELY_STEPS else "weak"


def _evidence(device: DeviceResult, advice: Sequence[Remedy]) -> tuple[str, ...]:
    sentences = [remedy.evidence for remedy in advice[:2]]
    for gap in device.worst[:1]:
        inside = f" in {gap.inside}" if gap.inside else ""
        sentences.append(f"The worst gap: {duration(gap.end - gap.start)}, {gap.thread or 'the host'}{inside}.")
    if device.share.steps_over:
        sentences.append(f"{percent(device.share.steps_over, 0)} of the steps lose more than 5 % to input.")
    if device.steady is not None:
        whole = sum(device.whole.causes.get(cause, 0) for cause in STARVING) / max(device.whole.budget.window, 1)
        if abs(whole - device.share.value) > 0.01:
            sentences.append(f"Over the whole recording, including its start, input costs {percent(whole)}.")
    return tuple(sentences)


def _against(device: DeviceResult, devices: Sequence[DeviceResult]) -> tuple[str, ...]:
    """What contradicts or limits the verdict."""
    sentences = []
    waits, steady = device.judged.input, int(device.steps.steady.sum())
    if waits.hidden > max(waits.exposed, device.judged.budget.window // 100):
        sentences.append(f"{duration(waits.hidden)} of waiting for input were hidden behind GPU work and cost nothing.")
    if not len(device.steps.labels):
        sentences.append("No steps were found: the figures cover the whole recording, including its start.")
    elif steady < _LIKELY_STEPS:
        whole = f"Only {plural(steady, 'complete step')}" if steady else "No complete step"
        sentences.append(
            f"{whole} {'were' if steady > 1 else 'was'} recorded; a likely verdict takes {_LIKELY_STEPS}, "
            f"a confirmed one {_CONFIRMED_STEPS}."
        )
    if device.cold is not None and device.cold.steps:
        first = "The first step is" if device.cold.steps == 1 else f"The first {device.cold.steps:,} steps are"
        sentences.append(f"{first} left out as cold start.")
    low, high = (pick(other.share.value for other in devices) for pick in (min, max))
    if high - low > STARVED:
        sentences.append(f"Devices differ: input costs {percent(low)} to {percent(high)}.")
    return tuple(sentences)


def _falsify(verdict_word: str, device: DeviceResult) -> str:
    if verdict_word == "abstained":
        return ""
    if verdict_word == "not_starved":
        return "If the same run on batches kept in memory is more than 5 % faster, this verdict is wrong."
    gain = 1 / max(1 - device.share.value, 0.01)
    return (
        f"The same run on batches kept in memory should be up to {gain:.2f} times as fast; if it is not, this verdict "
        "is wrong."
    )


def _change(verdict_word: str, advice: Sequence[Remedy], bound: str) -> str:
    if verdict_word == "abstained":
        return "Nothing yet: record again, as described under Record."
    families = ("input", "h2d") if verdict_word in ("starved", "severe", "borderline") else (bound,)
    largest = next((remedy for remedy in advice if remedy.family in families), None)
    if largest is not None:
        return largest.change
    return "Nothing about the input: the GPU is busy. Faster kernels, lower precision or a faster GPU would help."
