"""The verdict: starved of input or not, how certain, and what to do; or why it is unknown."""

from __future__ import annotations

from collections.abc import Sequence

from fastfeed.printable import plural
from fastfeed.profiler.model.causes import FAMILIES, INPUT_CAUSES, STARVED, STARVING, Cause, word
from fastfeed.profiler.model.format import duration, interval, percent
from fastfeed.profiler.model.result import (
    ColdStart,
    DeviceResult,
    FeedResult,
    Remedy,
    Share,
    Verdict,
)
from fastfeed.profiler.model.trace import Origin
from fastfeed.profiler.verdict.abstention import (
    CONFIRMED_STEPS,
    LIKELY_STEPS,
    abstention_reasons,
    confidence,
    doubts,
    has_all_recorded,
)
from fastfeed.profiler.verdict.advice import (
    describe_cost,
    family_costs,
    interpreter_cause,
    late_rank_name,
    main_function,
    remedies,
)
from fastfeed.profiler.verdict.input_advice import TEXTS, feed_advice

_MIN_BOUND_SHARE = 0.10  # of the window: if nothing costs more, the device itself is the bottleneck
# of the window in kernels and copies that are not batches: many small losses are not a bottleneck
_BUSY = 0.80
_STARVED = ("starved", "severe")
_NO_CHANGE = ("unknown", "profiler")  # families of time that no change to the program wins
_MOSTLY = 0.2  # of the idle time is not explained by what was recorded of the host


def focus(devices: Sequence[DeviceResult]) -> DeviceResult:
    """The device the verdict is about: the most starved of those that do a real part of the work.

    If none is starved of input, the one that loses most to copies, of those that are starved of
    them.
    """
    max_ops = max(device.ops for device in devices)
    at_work = [device for device in devices if device.ops * 20 >= max_ops]
    by_input = max(at_work, key=lambda device: device.share.value)
    if starved_word(by_input.share) in _STARVED:
        return by_input
    return max(
        filter(_lacks_copies, at_work), key=lambda device: device.copies.value, default=by_input
    )


def starved_word(share: Share) -> str:
    """Verdict for a share: a threshold counts once the interval's lower bound exceeds it."""
    plain = word(share.value)
    low = share.value if share.low is None else share.low
    if plain == "not_starved":
        return plain
    return word(low) if low >= STARVED else "borderline"


def _word(device: DeviceResult) -> str:
    """Starved of input, else of exposed copies to the GPU, else neither."""
    by_input = starved_word(device.share)
    return "starved_of_copies" if by_input not in _STARVED and _lacks_copies(device) else by_input


def _lacks_copies(device: DeviceResult) -> bool:
    """True if exposed copies starve the device, and cost more than anything else."""
    if starved_word(device.copies) not in _STARVED:
        return False
    costs = family_costs(device)
    return costs["h2d"] == max(costs.values())


def judge(
    devices: Sequence[DeviceResult],
    feeds: Sequence[FeedResult],
    origins: Sequence[Origin],
    rerun: str = "",
    waits: Sequence[str] = (),
    launches: int = 0,
) -> Verdict:
    """The verdict over all devices.

    `rerun` is the command to measure again; `waits` are sentences about the host if no device was
    active, and `launches` how often it launched work for one.
    """
    rerun = rerun or "fastfeed profile -- <the same command>"
    if not devices:
        return _no_device(feeds, origins, rerun, waits, launches)
    device = focus(devices)
    origin = origins[device.trace]
    advice = remedies(device, feeds)
    reasons = abstention_reasons(device, origin)
    verdict_word = "abstained" if reasons else _word(device)
    budget = device.judged.budget
    busy = budget.compute + budget.other >= _BUSY * budget.window
    bound = (
        advice[0].family if advice and (advice[0].share >= _MIN_BOUND_SHARE or not busy) else "gpu"
    )
    record = (
        TEXTS["record"]["recorded"]
        if has_all_recorded(device, reasons)
        else _how_to_record(device, origin)
    )
    return Verdict(
        word=verdict_word,
        headline=_headline(verdict_word, device, advice, bound, len(devices), reasons),
        bound="" if reasons else bound,
        share=device.share,
        confidence="" if reasons else confidence(device, origin),
        evidence=_evidence(device, advice),
        counter_evidence=(
            *_counter_evidence(device, devices),
            *(() if reasons else doubts(device, origin)),
        ),
        refutation=_refutation(verdict_word, device),
        change=_change(verdict_word, advice, bound),
        command=rerun,
        reasons=reasons,
        record=record if reasons else "",
        remedies=advice,
    )


def _no_device(
    feeds: Sequence[FeedResult],
    origins: Sequence[Origin],
    rerun: str,
    waits: Sequence[str],
    launches: int,
) -> Verdict:
    # the one of training has the most batches, even where validation waits longer
    feeds = sorted(feeds, key=lambda feed: (-feed.batches, -feed.waited_ns))
    headline = "The recording has no device activity."
    reason = "No kernel, copy or memset was recorded."
    change = "Record on a machine with a GPU, with the CUDA activity of the process that trains."
    if launches:
        reason = (
            f"Only the host's side was recorded: {plural(launches, 'launch')} of kernels and"
            " copies, and none of them."
        )
        change = (
            "Record the GPU as well: ProfilerActivity.CUDA, no second profiler at the same time"
            " (nsys, DCGM), and permission to trace the GPU; let it finish"
            " (torch.cuda.synchronize()) before the profiler stops."
        )
    if damaged := next((origin.incomplete for origin in origins if origin.incomplete), ""):
        reason = (
            f"No kernel, copy or memset is in the part of the file that could be read ({damaged})."
        )
        change = "Copy the file again, or record again and let the profiler finish writing."
    if feeds:
        whose = f"feed {feeds[0].name or feeds[0].feed}" if len(feeds) > 1 else "the feed"
        share = percent(feeds[0].wait_share)
        headline += (
            f" According to {whose}'s timeline, the trainer waited for batches {share} of the time."
        )
    return Verdict(
        word="abstained",
        headline=headline,
        bound="",
        share=Share(feeds[0].wait_share if feeds else 0.0),
        confidence="",
        evidence=tuple(
            f"Feed {feed.name or feed.feed}, rank {feed.rank}: {plural(feed.batches, 'batch')}, "
            f"{duration(feed.waited_ns)} waited. {feed_advice(feed) if feed.busiest else ''}".strip()
            for feed in feeds[:3]
        )
        + tuple(waits[:3]),
        counter_evidence=(),
        refutation="",
        change=change,
        command=rerun,
        reasons=(reason,),
        record=_how_to_record() if launches else "",  # without a GPU at work the change says all
    )


def _headline(
    verdict_word: str,
    device: DeviceResult,
    advice: Sequence[Remedy],
    bound: str,
    count: int,
    reasons: Sequence[str],
) -> str:
    share = device.share
    judged = device.judged
    idle = judged.share(judged.budget.idle)
    where = device.label if count > 1 else "The GPU"
    limit = (
        "the GPU itself is the bottleneck"
        if bound == "gpu"
        else f"the largest loss: {_loss(bound, device)}"
    )
    largest = next((remedy for remedy in advice if remedy.family == bound), None)
    # the sentence is about input: what costs more is named, too
    more = (
        f"; {limit} ({percent(largest.share)})"
        if largest and largest.family not in ("input", "h2d")
        else ""
    )
    named = main_function(device, bound)
    subject = f", mostly in {describe_cost(device, named)}" if named is not None else ""
    if named is not None and bound != "input":
        limit = f"{limit} ({percent(largest.share)}){subject}" if largest else limit
        more = f"{more}{subject}" if more else ""
    if verdict_word == "abstained":
        return f"No verdict. {reasons[0]}"
    if verdict_word == "borderline":
        ends = interval(share.low, share.high)
        low = f" (95 % interval {ends})" if ends else ""
        return f"{where} may be starved: input costs {percent(share.value)} of the time{low}{more}."
    if verdict_word == "not_starved":
        return (
            f"{where} is not starved: input costs {percent(share.value)} of the time. Idle"
            f" {percent(idle)}; {limit}."
        )
    if verdict_word == "starved_of_copies":
        return (
            f"{where} is starved of copies: it waits for batches to be copied to it"
            f" {percent(device.copies.value)} of the time, with nothing to compute meanwhile{more}."
        )
    much = "severely starved" if verdict_word == "severe" else "starved"
    staged = judged.ns(Cause.H2D_STAGING) > judged.ns(*INPUT_CAUSES)
    mostly = ", mostly for copies from pageable memory" if staged else ""
    mostly = mostly or (subject if bound == "input" else "")
    waits = f"it waits for input {percent(share.value)} of the time{mostly}"
    return f"{where} is {much}: {waits} (idle {percent(idle)}){more}."


def _loss(bound: str, device: DeviceResult) -> str:
    """The costliest family in words; for communication, the rank that is waited for."""
    waited = sum(charge.ns for charge in device.charges)
    if bound == "comm" and device.late_rank is not None and waited * 2 > device.judged.budget.comm:
        return f"waiting for {late_rank_name(device.late_rank)} in collectives"
    cause = interpreter_cause(device, bound)
    return FAMILIES[bound] if cause is None else cause.title


def _evidence(device: DeviceResult, advice: Sequence[Remedy]) -> tuple[str, ...]:
    sentences = [remedy.evidence for remedy in advice[:2]]
    if device.copies.value >= STARVED and all(remedy.family != "h2d" for remedy in advice[:2]):
        sentences.append(
            f"Exposed copies to the GPU cost {percent(device.copies.value)} of the time."
        )
    for gap in device.worst[:1]:
        inside = f" in {gap.inside}" if gap.inside else ""
        sentences.append(
            f"The worst gap: {duration(gap.end - gap.start)}, {gap.thread or 'the host'}{inside}."
        )
    if device.share.steps_over:
        sentences.append(
            f"{percent(device.share.steps_over, 0)} of the steps lose more than 5 % to input."
        )
    if device.steady is not None:
        whole = device.whole.share(device.whole.ns(*STARVING))
        if abs(whole - device.share.value) > 0.01:
            more = (
                "its start and validation"
                if any(one.kind == "validation" for one in device.phases)
                else "its start"
            )
            sentences.append(
                f"Over the whole recording, including {more}, input costs {percent(whole)}."
            )
    return tuple(sentences)


def _counter_evidence(device: DeviceResult, devices: Sequence[DeviceResult]) -> tuple[str, ...]:
    """Sentences that contradict or limit the verdict."""
    sentences = []
    waits = device.judged.input
    steady = int(device.steps.steady.sum())
    if waits.hidden > max(waits.exposed, device.judged.budget.window // 100):
        sentences.append(
            f"{duration(waits.hidden)} of waiting for input were hidden behind GPU work and cost"
            " nothing."
        )
    if not len(device.steps.labels):
        sentences.append(
            "No steps were found: the figures cover the whole recording, including its start."
        )
    elif steady < LIKELY_STEPS:
        whole = f"Only {plural(steady, 'complete step')}" if steady else "No complete step"
        sentences.append(
            f"{whole} {'were' if steady > 1 else 'was'} recorded; a likely verdict takes"
            f" {LIKELY_STEPS}, a confirmed one {CONFIRMED_STEPS}."
        )
    if device.steps.guessed and steady:
        sentences.append(f"Nothing marks the steps: they are guessed from {device.steps.found_by}.")
    if device.cold is not None and device.cold.steps:
        sentences.append(_cold_start_reason(device.cold))
    low, high = (pick(other.share.value for other in devices) for pick in (min, max))
    if high - low > STARVED:
        sentences.append(f"Devices differ: input costs {percent(low)} to {percent(high)}.")
    return tuple(sentences)


def _cold_start_reason(cold: ColdStart) -> str:
    """The reason why the steady steps do not begin with the first."""
    if cold.steps == cold.cut:
        return "The recording begins inside the first step, which is left out."
    first = "The first step is" if cold.steps == 1 else f"The first {cold.steps:,} steps are"
    return (
        f"{first} left out as cold"
        f" start{', and the recording begins inside the first' if cold.cut else ''}."
    )


def _refutation(verdict_word: str, device: DeviceResult) -> str:
    if verdict_word == "abstained":
        return ""
    if verdict_word == "not_starved":
        return (
            "If the same run on batches kept in memory is more than 5 % faster, this verdict is"
            " wrong."
        )
    if verdict_word == "starved_of_copies":
        gain = 1 / max(1 - device.copies.value, 0.01)
        return (
            f"The same run on one batch that stays on the GPU should be up to {gain:.2f} times as"
            " fast; if it is not, this verdict is wrong."
        )
    gain = 1 / max(1 - device.share.value, 0.01)
    return (
        f"The same run on batches kept in memory should be up to {gain:.2f} times as fast; if it is"
        " not, this verdict is wrong."
    )


def _change(verdict_word: str, advice: Sequence[Remedy], bound: str) -> str:
    """The change for what costs most, whatever the verdict is about."""
    if verdict_word == "abstained":
        return "Nothing yet: first a verdict, as described under Record."
    if verdict_word == "not_starved" and bound == "gpu":
        return (
            "Nothing about the input: the GPU is busy. Faster kernels, lower precision or a faster"
            " GPU would help."
        )
    if verdict_word == "not_starved":
        return advice[0].change
    # of a starved device something known is lost, which is better than a recording of the rest
    return next(remedy for remedy in advice if remedy.family not in _NO_CHANGE).change


def _how_to_record(device: DeviceResult | None = None, origin: Origin | None = None) -> str:
    """The command or options for a better recording, with frames if those are missing."""
    by_dialect = TEXTS["record"]  # recordings that lack what Python did
    if device is None or origin is None or not origin.host_calls:
        return by_dialect["any"]
    judged = device.judged
    if judged.ns(Cause.HOST_UNKNOWN) <= _MOSTLY * judged.budget.idle:
        return by_dialect["any"]
    return by_dialect.get(origin.dialect, by_dialect["any"])
