"""`fastfeed watch --json` on ten seconds, the profiler on the same ones, and the clock of the
training loop itself.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.parts.setting import Wrong
from benchmarks.gpu_check.steps.feeds import endless, feed
from benchmarks.gpu_check.steps.nets import torch_net
from benchmarks.gpu_check.steps.profiled import CLI, add_device, analysis

# shares of the time that may lie between the three: they begin and end at other moments
SECONDS, APART = (
    10.0,
    0.05,
)
STAND_IN_APART = 0.25  # of two and a half seconds, on a processor that others may be using
_CONSUMER = "enumerate(DataLoader)#fastfeed.__next__"


def run(context: Any) -> None:
    os.environ["FASTFEED_LIVE"] = str(context.work / "live")  # before the feed makes its page
    trace, looks = context.work / "watched.json", context.work / "watch.jsonl"
    figures = _recorded(context, trace, looks)
    if context.stand_in:
        add_device(trace)
    said = analysis(trace)
    trace.unlink(missing_ok=True)
    lines = [json.loads(line) for line in looks.read_text().splitlines() if line.startswith("{")]
    found, wrong = compared(
        lines, said, **figures, apart=STAND_IN_APART if context.stand_in else APART
    )
    context.note("the same seconds", found)
    if wrong:
        raise Wrong(wrong, context.figures)


def _recorded(context: Any, trace: Path, looks: Path) -> dict[str, float]:
    """Train and record, while `fastfeed watch` looks on: when it began and ended, the share of it
    spent in next().
    """
    from torch.profiler import ProfilerActivity, profile, record_function

    stand_in = context.stand_in
    # small batches: a wait counts once it is over, so those at both ends of the time must be short
    device, batch, seconds = ("cpu", 4, 2.5) if stand_in else ("cuda", 16, SECONDS)
    sets, sync = context.setting().sets, context.setting().sync
    net = torch_net("resnet50", batch, stand_in)
    activities = [ProfilerActivity.CPU, *([] if stand_in else [ProfilerActivity.CUDA])]
    every = "0.2" if stand_in else "0.5"
    with (
        feed(sets.get("stock", next(iter(sets.values()))), batch, 1 if stand_in else 2) as made,
        looks.open("w") as file,
    ):
        command = [*CLI, "watch", os.environ["FASTFEED_LIVE"], "--json", "--every", every]
        watch = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        try:
            batches = endless(made.to_torch(device))
            began = time.monotonic()
            while (
                not looks.stat().st_size and time.monotonic() - began < 60
            ):  # it starts, meanwhile nets warm up
                net(next(batches))
            sync()
            waited, step = 0.0, 0
            with profile(activities=activities) as recording:
                first, start = time.time(), time.perf_counter()
                while time.perf_counter() - start < seconds:
                    with record_function(f"ProfilerStep#{step}"):
                        asked = time.perf_counter()
                        with record_function(_CONSUMER):
                            images = next(batches)
                        waited += time.perf_counter() - asked
                        with record_function("train_step"):
                            net(images)
                    step += 1
                sync()
                last, wall = time.time(), time.perf_counter() - start
            batches.close()
        finally:
            watch.terminate()
            watch.wait(30)
    recording.export_chrome_trace(str(trace))
    return {"first": first, "last": last, "loop": waited / wall}


def compared(
    lines: list[dict[str, Any]],
    said: dict[str, Any],
    first: float,
    last: float,
    loop: float,
    apart: float = APART,
) -> Any:
    """(shares of the time by source, what is wrong). lines: documents of watch; said: the report;
    first, last: Unix time of the recording; loop: share that the training loop itself spent in
    next().
    """
    here = [line for line in lines if first <= line["time"] <= last and line["feeds"]]
    found: dict[str, Any] = {"waiting, by the loop's own clock": round(loop, 4)}
    if len(here) < 2:
        return found, [f"`fastfeed watch` saw the feed {len(here)} times in {last - first:.0f} s"]
    waits = [line["feeds"][0]["exact"]["wait_seconds"] for line in here]
    watch = (waits[-1] - waits[0]) / (here[-1]["time"] - here[0]["time"])
    found["waiting, by watch"] = round(watch, 4)
    found["states, by watch"] = sorted({line["feeds"][0]["state"] for line in here})
    gpus = [line["feeds"][0]["estimate"]["gpu"] for line in here]
    busy = [gpu["sm"] for gpu in gpus if gpu and gpu["sm"] is not None]
    found["multiprocessors at work, by watch"] = round(statistics.mean(busy), 4) if busy else None
    wrong = (
        [f"watch says {watch:.1%} waiting, the loop measured {loop:.1%}"]
        if abs(watch - loop) > apart
        else []
    )
    if not said.get("devices"):
        return found, [*wrong, f"no report: {said.get('error', 'it saw no device')}"]
    whole = said["devices"][0]["whole"]
    profiler = whole["input"]["total_ns"] / whole["window_ns"]
    found["waiting, by the profiler"] = round(profiler, 4)
    found["GPU busy, by the profiler"] = round(1 - whole["budget"]["idle"] / whole["window_ns"], 4)
    found["verdict of the profiler"] = said["verdict"]["word"]
    if abs(watch - profiler) > apart:
        wrong.append(f"watch says {watch:.1%} waiting, the profiler {profiler:.1%}")
    return found, wrong
