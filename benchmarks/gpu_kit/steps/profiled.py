"""The verdict on a run that starves and on one that does not, by PyTorch's profiler, and by nsys where it is."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.setting import Wrong
from benchmarks.gpu_kit.steps.feeds import OPS, SIDE, TINY, TINY_OPS, endless, feed
from benchmarks.gpu_kit.steps.nets import torch_net

__all__ = ["CLI", "add_device", "analysis", "run"]

STEPS, WARM = 40, 10
_STARVED = ("starved", "severe")
CLI = [sys.executable, "-c", "from fastfeed.cli import main; main()"]


def run(context: Any) -> None:
    wrong = []
    for name in ("starved", "healthy"):
        trace = context.work / f"{name}.json"
        figures = _recorded(context, name, trace)
        if context.stand_in:
            add_device(trace)
        found = _analyzed(trace) | figures
        said = found.get("verdict") in _STARVED
        found["right"] = "verdict" in found and said == (name == "starved")
        context.note(name, found)
        trace.unlink(missing_ok=True)
        if not found["right"]:
            wrong.append(f"{name}: the verdict was {found.get('verdict')}: {found.get('headline')}")
    if shutil.which("nsys") and not context.stand_in and not context.skips("fastfeed profile under nsys", 30):
        context.note("fastfeed profile", _under_nsys(context))
    if wrong:
        raise Wrong(wrong, context.figures)


def _recorded(context: Any, name: str, trace: Path) -> dict[str, Any]:
    """Steps under PyTorch's profiler. Starved: one thread decodes large photographs. Healthy: a batch that is there."""
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    stand_in = context.stand_in
    sets = context.setting().sets
    device, batch = ("cpu", 4) if stand_in else ("cuda", 64)
    net = torch_net("resnet18" if name == "starved" else "resnet50", batch, stand_in)
    side = TINY if stand_in else SIDE
    still = torch.randn(batch, side, side, 3, device=device)
    activities = [ProfilerActivity.CPU, *([] if stand_in else [ProfilerActivity.CUDA])]
    made = feed(sets.get("stock", next(iter(sets.values()))), batch, 1, ops=TINY_OPS if stand_in else OPS)
    batches = endless(made.to_torch(device))

    def late() -> Any:
        if stand_in:  # on a processor the net competes with the decoder, and either may be slower
            time.sleep(0.03)
        return next(batches)

    take = late if name == "starved" else lambda: still
    warm, steps = (2, 24) if stand_in else (WARM, STEPS)
    for _ in range(warm):
        net(take())
    context.setting().sync()
    start = time.perf_counter()
    with profile(activities=activities) as recording:
        for k in range(steps):
            with record_function(f"ProfilerStep#{k}"):
                with record_function("enumerate(DataLoader)#fastfeed.__next__"):
                    images = take()
                with record_function("train_step"):
                    net(images)
        context.setting().sync()
    seconds = time.perf_counter() - start
    batches.close()
    made.close()
    recording.export_chrome_trace(str(trace))
    return {"recorder": "torch.profiler", "steps": steps, "ms per step": round(1e3 * seconds / steps, 2)}


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
    return {"verdict": verdict["word"], "confidence": verdict.get("confidence"), "headline": verdict["headline"]}


def _under_nsys(context: Any) -> dict[str, Any]:
    """The command itself around a run of the same kind."""
    program = (
        "from benchmarks.gpu_kit.steps.feeds import endless, feed\n"
        "from benchmarks.gpu_kit.steps.nets import torch_net\n"
        "import torch\n"
        f"made = feed({str(next(iter(context.setting().sets.values())))!r}, 64, 1)\n"
        "net, batches = torch_net('resnet18', 64, False), endless(made.to_torch('cuda'))\n"
        "for _ in range(60):\n    net(next(batches))\n"
        "torch.cuda.synchronize()\n"
    )
    out = context.work / "profiled"
    command = [*CLI, "profile", "--out", str(out), "--no-html", "--", sys.executable]
    start = time.perf_counter()
    done = subprocess.run([*command, "-c", program], capture_output=True, text=True, timeout=180, check=False)
    shutil.rmtree(out, ignore_errors=True)
    return {"rc": done.returncode, "seconds": round(time.perf_counter() - start, 1), "said": done.stderr[-2000:]}


def add_device(trace: Path) -> None:
    """A stand-in's device: a kernel wherever the processor was inside `train_step`, with the launch that began it."""
    told = json.loads(trace.read_text())
    made: list[dict[str, Any]] = []
    steps = [e for e in told["traceEvents"] if e.get("name") == "train_step" and e.get("ph") == "X"]
    for number, step in enumerate(steps, 1):
        launch = {"correlation": number, "cbid": 211}
        span = max(1.0, float(step["dur"]) - 2)
        made.append(dict(step, cat="cuda_runtime", name="cudaLaunchKernel", dur=1, args=launch))
        kernel = {"correlation": number, "device": 0, "context": 1, "stream": 7}
        made.append(dict(step, cat="kernel", name="stand_in", pid=0, tid=7, ts=step["ts"] + 1, dur=span, args=kernel))
    told["traceEvents"] += made
    told["deviceProperties"] = [{"id": 0, "name": "stand-in: a processor", "computeMajor": 9, "computeMinor": 0}]
    trace.write_text(json.dumps(told))
