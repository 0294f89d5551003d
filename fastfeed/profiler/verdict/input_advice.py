"""Advice on input: more workers, deeper prefetch, closer data, by what waits in which steps."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from fastfeed.html_page import asset
from fastfeed.printable import plural
from fastfeed.profiler.model.causes import INPUT_CAUSES, STARVING, Cause
from fastfeed.profiler.model.format import duration, one_line, percent
from fastfeed.profiler.model.result import DeviceResult, FeedResult, Phase

# steps: loaders rarely have more workers; a rarer wait comes once per epoch
_MAX_WORKER_PERIOD = 24
_NEARLY_ALL = 0.8  # of the waiting is at starts of epochs
_KEEP_WORKERS = "Keep the loader's workers from one epoch to the next"
_USUAL_CORES = 32  # per GPU, if the trace does not record the number of cores
# sentences of advice: changes by framework ("any" for any other), evidence by family, and changes
# for stages of tf.data, of which the first whose pattern matches counts
TEXTS = json.loads(asset(Path(__file__).with_name("advice.json")))
# titles in reports
PHASES = {
    "epoch_start": "start of an epoch",
    "validation": "validation",
    "checkpoint": "checkpoint",
    "warm_up": "warm-up",
}
_MUCH = 0.2  # of a phase: idle for input


def proxy_input(device: DeviceResult) -> int:
    """Nanoseconds inside collectives while another rank waited for its input."""
    return sum(charge.ns for charge in device.charges if charge.cause in STARVING)


def change_in(framework: str, what: str) -> str:
    """The change in a program of this framework; "" for any other program."""
    changes = TEXTS["changes"][what]
    return changes.get(framework) or changes["any"]


def input_advice(device: DeviceResult, spent: int, feeds: Sequence[FeedResult]) -> tuple[str, str]:
    """The change, and the evidence for it; `spent` is the judged cost of input in ns."""
    metrics = device.metrics
    waits = device.judged.input
    culprits = [charge for charge in device.charges if charge.cause in INPUT_CAUSES]
    if culprits and proxy_input(device) * 2 > spent:
        worst = max(culprits, key=lambda charge: charge.ns)
        return (
            f"Fix the input of {worst.late_rank}; the others wait for it inside collectives.",
            f"{duration(worst.ns)} inside collectives while {worst.late_rank} waited for its input.",
        )
    evidence = (
        f"{plural(waits.waits, 'wait')} for input, {duration(waits.exposed)} with the GPU idle, "
        f"{duration(waits.hidden)} hidden.{_pattern(metrics)}"
    )
    feed = max(feeds, key=lambda feed: feed.waited_ns, default=None)
    # otherwise the wait is for another loader
    if feed is not None and feed.busiest and feed.waited_ns * 2 >= spent:
        return feed_advice(feed), evidence
    in_thread = device.judged.ns(Cause.INPUT_IN_THREAD)
    if in_thread > device.judged.ns(Cause.INPUT):
        work = next(
            (f"{time}" for time in device.functions if time.cause is Cause.INPUT_IN_THREAD),
            "preparing batches",
        )
        change = (
            f"Move {work} out of the training thread: to the loader's workers, a prefetching"
            " thread, or a fastfeed feed, which works ahead on native threads."
        )
        evidence += f" The training thread prepares batches itself for {duration(in_thread)}."
    elif (stage := device.stage) is not None:
        name = one_line(stage.name, 60)
        change = f"The slowest stage of tf.data is {name}: {stage_advice(stage.name)}."
        evidence += f" {one_line(stage.path, 120)} is at work itself for"
        evidence += f" {percent(stage.share, 0)} of the waits."
    elif metrics.get("single_process"):
        change = f"{_workers(metrics)}currently batches are loaded in the training thread."
        evidence += " The loader has no workers (_SingleProcessDataLoaderIter)."
    else:
        change = _loader_change(device, spent)
    return change, evidence


def _loader_change(device: DeviceResult, spent: int) -> str:
    """The change of a loader with workers, by the steps that wait."""
    metrics = device.metrics
    faster = f"Make batches {_speedup_needed(device.judged.budget.window, spent)} as fast"
    pytorch = "single_process" in metrics  # its loader, whichever framework trains
    loader = "" if device.framework == "pytorch" else device.framework
    if metrics.get("epoch_waits", 0) >= _NEARLY_ALL:
        return _epoch_change(device)
    every = metrics.get("wait_every", 0)
    if every > _MAX_WORKER_PERIOD:
        keep = "persistent_workers=True" if pytorch else _KEEP_WORKERS
        return f"{keep}, or start the next epoch's batches before this one ends."
    if every and pytorch:
        return (
            f"Raise prefetch_factor, or num_workers above {every:.0f}; with in_order=False one slow"
            " batch does not hold up the others."
        )
    if every:
        return (
            f"Prefetch more than {every:.0f} batches, so that one slow batch does not hold up the"
            " others."
        )
    if metrics.get("wait_rare"):
        return (
            "Prefetch deeper, so that a slow read now and then stays hidden, or keep the data on a"
            " local disk."
        )
    if metrics.get("wait_grows", 1) > 1:
        return f"{faster}: look at storage first, e.g. larger sequential shards or a local cache."
    return f"{faster}: {change_in('pytorch' if pytorch else loader, 'more_loading')}"


def _pattern(metrics: Mapping[str, float]) -> str:
    """Describe which steps wait for input."""
    text = ""
    at_epochs = metrics.get("epoch_waits", 0)
    if at_epochs >= _NEARLY_ALL:
        text += f" {percent(at_epochs, 0)} of the waiting is at starts of epochs."
    elif metrics.get("wait_every"):
        text += f" A long one every {metrics['wait_every']:.0f} steps."
    elif metrics.get("wait_rare"):
        steps = percent(metrics["wait_steps"], 0)
        worst = duration(metrics["wait_ms_worst"] * 1e6)
        text += f" Nearly all of it in {steps} of the steps, the worst {worst}."
    grows = metrics.get("wait_grows", 1)
    if grows > 1:
        text += (
            f" Waits grow: {grows:.1f} times as long in the second half of the steps as in the"
            " first."
        )
    elif grows < 1:
        text += (
            " They shrink over the steps, as when data that is read again comes from the page"
            " cache."
        )
    return text


def feed_advice(feed: FeedResult) -> str:
    """Advice from the feed's own timeline: the slowest stage, and the rate it needs."""
    count, spent = feed.stages[feed.busiest]
    work = sum(ns for stage, (_, ns) in feed.stages.items() if stage not in ("wait", "place"))
    share = spent / max(work, 1)
    threads = max(feed.threads, 1)
    used = work / max(feed.span_ns * threads, 1)
    lead = (
        f"{feed.busiest} takes {percent(share, 0)} of the feed's work,"
        f" {duration(spent / max(count, 1))} each time"
    )
    if feed.busiest == "read":
        return (
            f"{lead}: store larger shards, or keep them local (cache=); reading must become "
            f"{_speedup_needed(feed.span_ns, feed.waited_ns)} as fast."
        )
    if used < 0.8:
        busy = f"{plural(threads, 'thread')} {'is' if threads == 1 else 'are'} busy"
        return f"{lead}, and its {busy} {percent(used, 0)} of the time: raise prefetch=, then threads=."
    if 10 * feed.waited_ns > 9 * feed.span_ns:  # the trainer does almost nothing else
        return f"{lead}: set threads= to the number of cores, then decode='gpu'."
    needed = math.ceil(threads * feed.span_ns / (feed.span_ns - feed.waited_ns))
    return f"{lead}: threads={needed} instead of {threads} while cores are free, else decode='gpu'."


def _speedup_needed(window: int, spent: int) -> str:
    """Speedup of batches, T / (T - exposed), with which the trainer never waits."""
    times = window / max(window - spent, 1)
    return f"{times:.1f} times" if times < 20 else "more than 20 times"


def _workers(metrics: Mapping[str, float]) -> str:
    """The number of workers, ceil(wait / rest): loading overlaps the rest of the step."""
    wait = metrics.get("wait_ms_per_step")
    step = metrics.get("step_ms")
    if not wait or not step or step <= wait:
        return "Give the DataLoader workers: "
    needed = max(2, math.ceil(wait / (step - wait)) + 1)
    cores = int(metrics.get("cores", 0))
    limit = cores or _USUAL_CORES
    count = needed if needed <= limit else str(cores) if cores else "os.cpu_count()"
    change = f"DataLoader(num_workers={count}, persistent_workers=True, pin_memory=True): "
    if needed > limit:
        change += f"{needed} workers would keep up, so make batches cheaper to decode as well; "
    return change


def stage_advice(stage: str) -> str:
    """The change for a stage, by a name with version and index, ParallelMapV2[0]."""
    return next(
        (advice for pattern, advice in TEXTS["stages"].items() if re.search(pattern, stage)),
        "make it cheaper, or cache() behind it",
    )


def _epoch_change(device: DeviceResult) -> str:
    """The change for waits at the starts of epochs."""
    single = device.metrics.get("single_process")
    if single:
        return (
            "Load batches in workers that stay: DataLoader(num_workers=4, persistent_workers=True)."
        )
    names = [name for name in device.names if "dataloader.py(" in name]
    stays = any(name.endswith("_reset") for name in names) and not any(
        "_get_iterator" in name for name in names
    )
    if single is not None and not stays:  # PyTorch's loader, whose workers are not known to stay
        return (
            "persistent_workers=True: the workers stay, and load the next epoch's batches as soon"
            " as one is asked for."
        )
    return f"{_KEEP_WORKERS}, or start the next epoch's batches before this one ends."


def phase_change(device: DeviceResult, phase: Phase) -> str:
    """Advice on one phase, as a sentence."""
    if phase.kind == "epoch_start":
        return _epoch_change(device)
    waited = phase.period.share(phase.period.ns(*INPUT_CAUSES))
    if phase.kind == "validation":
        if waited >= _MUCH:
            return (
                f"Idle for input {percent(waited, 0)} of this time: give the loader of validation"
                " more workers, and keep them (persistent_workers=True)."
            )
        return "Validate less often, on larger batches, or on a part of the data."
    if phase.kind == "checkpoint":
        return "Save asynchronously, or less often."
    return "Paid once per run, and no part of the verdict."
