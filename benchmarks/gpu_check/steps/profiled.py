"""The verdict on a fed run that starves and on one that does not, by PyTorch's profiler and by
`fastfeed profile`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.parts.setting import Wrong
from benchmarks.gpu_check.steps.feeds import OPS, TINY_OPS, endless, feed, threads_here
from benchmarks.gpu_check.steps.nets import torch_net

RUNS = ("starved", "healthy")
STEPS, WARM = {"starved": 12, "healthy": 40}, 6  # a starved step takes a second
_LATE, _SLOW = 0.03, 0.3  # seconds that a stand-in's batch, or step, takes more
PROGRAM = """
import json, sys
from pathlib import Path
import torch
from benchmarks.gpu_check.steps import profiled
name, sets = sys.argv[1], {key: Path(folder) for key, folder in json.loads(sys.argv[2]).items()}
made, batches, step = profiled._run(name, sets, False)
with made:
    for _ in range(profiled.WARM + profiled.STEPS[name]):
        step(next(batches))
    torch.cuda.synchronize()
    batches.close()
"""
_STARVED = ("starved", "severe")
CLI = [sys.executable, "-c", "from fastfeed.cli import main; main()"]


def run(context: Any) -> None:
    wrong = []
    for name in RUNS:
        trace = context.work / f"{name}.json"
        figures = _recorded(context, name, trace)
        if context.stand_in:
            add_device(trace)
        _judge(context, name, name, figures | _analyzed(trace), wrong)
        trace.unlink(missing_ok=True)
    recorders = [] if context.stand_in else ["torch", *(["nsys"] if shutil.which("nsys") else [])]
    for recorder in recorders:
        for name in RUNS:
            if not context.skips(f"fastfeed profile --with {recorder}, {name}", 30):
                title = f"{name}, fastfeed profile --with {recorder}"
                _judge(context, title, name, _under(context, name, recorder), wrong)
    if wrong:
        raise Wrong(wrong, context.figures)


def _judge(context: Any, title: str, name: str, found: dict[str, Any], wrong: list[str]) -> None:
    """Whether the verdict is that of such a run."""
    right = "verdict" in found and (found["verdict"] in _STARVED) == (name == "starved")
    context.note(title, found | {"right": right})
    if not right:
        wrong.append(f"{title}: the verdict was {found.get('verdict')}: {found.get('headline')}")


def _run(
    name: str, sets: dict[str, Path], stand_in: bool
) -> tuple[Any, Iterator[Any], Callable[[Any], None]]:
    """(a feed, its batches, a training step).

    Starved: one thread decodes large photographs for a net that is quick. Healthy: all threads
    decode small ones for a net that is slow.
    """
    starved = name == "starved"
    batch, device = (4, "cpu") if stand_in else (32 if starved else 64, "cuda")
    folder = sets.get("stock" if starved else "imagenet", next(iter(sets.values())))
    threads = 1 if starved else threads_here(stand_in)[-1]
    made = feed(folder, batch, threads, ops=TINY_OPS if stand_in else OPS)
    net = torch_net("resnet18" if starved else "resnet50", batch, stand_in)

    # on a processor the net competes with the decoder, and either may be slower
    def late() -> Iterator[Any]:
        for images in endless(made.to_torch(device)):
            time.sleep(_LATE if stand_in and starved else 0)
            yield images

    def step(images: Any) -> None:
        net(images)
        time.sleep(_SLOW if stand_in and not starved else 0)

    return made, late(), step


def _recorded(context: Any, name: str, trace: Path) -> dict[str, Any]:
    """Steps under PyTorch's profiler."""
    from torch.profiler import ProfilerActivity, profile, record_function

    sync = context.setting().sync
    made, batches, step = _run(name, context.setting().sets, context.stand_in)
    activities = [ProfilerActivity.CPU, *([] if context.stand_in else [ProfilerActivity.CUDA])]
    warm, steps = (2, 24 if name == "starved" else 12) if context.stand_in else (WARM, STEPS[name])
    with made:
        for _ in range(warm):
            step(next(batches))
        sync()
        with profile(activities=activities) as recording:
            start = time.perf_counter()
            for k in range(steps):
                with record_function(f"ProfilerStep#{k}"):
                    with record_function("enumerate(DataLoader)#fastfeed.__next__"):
                        images = next(batches)
                    with record_function("train_step"):
                        step(images)
            sync()
            seconds = time.perf_counter() - start
        batches.close()
    recording.export_chrome_trace(str(trace))
    return {
        "recorder": "torch.profiler",
        "steps": steps,
        "ms per step": round(1e3 * seconds / steps, 2),
    }


def analysis(trace: Path) -> dict[str, Any]:
    """The report as JSON; where there is none, `error` alone."""
    command = [*CLI, "analyze", str(trace), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"error": (done.stderr.strip().splitlines() or ["no reason given"])[-1][:300]}


def _analyzed(trace: Path) -> dict[str, Any]:
    said = analysis(trace)
    if "error" in said:
        return {"headline": said["error"]}
    verdict = said["verdict"]
    return {
        "verdict": verdict["word"],
        "confidence": verdict.get("confidence"),
        "headline": verdict["headline"],
    }


def _under(context: Any, name: str, recorder: str) -> dict[str, Any]:
    """The command itself around a run of the same kind: what it cost, and its verdict."""
    sets = {name: str(folder) for name, folder in context.setting().sets.items()}
    out = context.work / "profiled"
    shutil.rmtree(out, ignore_errors=True)
    window = ["--skip-steps", str(WARM), "--record-steps", str(STEPS[name] - 1)]
    command = [*CLI, "profile", "--with", recorder, *window, "--out", str(out), "--no-html"]
    command += ["--", sys.executable, "-c", PROGRAM]
    start = time.perf_counter()
    limit = max(30.0, context.left())
    try:
        done = subprocess.run(
            [*command, name, json.dumps(sets)],
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"headline": f"it took longer than {limit:.0f} s"}
    figures = {
        "recorder": recorder,
        "rc": done.returncode,
        "seconds": round(time.perf_counter() - start, 1),
    }
    found = _analyzed(out) if done.returncode == 0 else {"headline": done.stderr.strip()[-300:]}
    shutil.rmtree(out, ignore_errors=True)
    return figures | found


def add_device(trace: Path) -> None:
    """A stand-in's device: a kernel wherever the processor was inside `train_step`, with the launch
    that began it.
    """
    told = json.loads(trace.read_text())
    made: list[dict[str, Any]] = []
    steps = [e for e in told["traceEvents"] if e.get("name") == "train_step" and e.get("ph") == "X"]
    for number, step in enumerate(steps, 1):
        launch = {"correlation": number, "cbid": 211}
        span = max(1.0, float(step["dur"]) - 2)
        made.append(dict(step, cat="cuda_runtime", name="cudaLaunchKernel", dur=1, args=launch))
        kernel = {"correlation": number, "device": 0, "context": 1, "stream": 7}
        made.append(
            dict(
                step,
                cat="kernel",
                name="stand_in",
                pid=0,
                tid=7,
                ts=step["ts"] + 1,
                dur=span,
                args=kernel,
            )
        )
    told["traceEvents"] += made
    told["deviceProperties"] = [
        {"id": 0, "name": "stand-in: a processor", "computeMajor": 9, "computeMinor": 0}
    ]
    trace.write_text(json.dumps(told))
