"""2. Training steps per second on photographs, against a batch that lies on the GPU already."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.gpu_check.contestants import Ours, Rival, batch_for
from benchmarks.gpu_check.nets import jax_step, torch_step
from benchmarks.gpu_check.setting import Setting, Wrong

__all__ = ["run"]

ROUNDS = 2
GROWTH_MB = 512  # device memory that may come in the second round: allocators round up
_DRAINED = 4  # steps on batches that lay ready before the clock starts

Next = Callable[[], Any]


def run(setting: Setting) -> dict[str, Any]:
    folder = next(iter(setting.sets.values()))
    files = sum(p.suffix.lower() in (".jpg", ".jpeg") for p in folder.rglob("*"))
    batch = batch_for(setting, files, stock=False)
    decode = setting.learned.get("decode", "gpu")
    threads, load = setting.learned.get("rival", (min(16, setting.cores), 0.65))
    figures: dict[str, Any] = {
        "batch": batch,
        "decode": str(decode),
        "rival": f"{threads} threads, hw load {load:g}",
    }
    figures["torch"] = _torch(setting, folder, batch, decode, threads, load)
    if not setting.skips("steps, jax", 25):
        figures["jax"] = _jax(setting, folder, batch, decode)
    grown = figures["torch"]["device_grown_mb"]
    if grown > GROWTH_MB:
        raise Wrong(
            [f"device memory grew by {grown} MB over the second round, allowed {GROWTH_MB}"],
            figures,
        )
    return figures


def _torch(
    setting: Setting, folder: Any, batch: int, decode: Any, threads: int, load: float
) -> dict[str, Any]:
    import torch

    step = torch_step(batch)
    still = torch.randn(batch, 224, 224, 3, device="cuda")
    ours = Ours(setting, folder, decode, batch)
    rival = Rival(setting, folder, threads, load, batch)
    nexts: dict[str, Next] = {
        "synthetic": lambda: still,
        "fastfeed": ours.images,
        "DALI": rival.images,
    }
    try:
        ours.warm(1.0)
        rival.warm(0.5)
        return _contest(setting, batch, step, torch.cuda.synchronize, nexts)
    finally:
        ours.close()
        rival.close()
        nexts.clear()
        gc.collect()
        torch.cuda.empty_cache()


def _jax(setting: Setting, folder: Any, batch: int, decode: Any) -> dict[str, Any]:
    import jax

    if jax.default_backend() != "gpu":
        return {"not run": f"JAX computes on {jax.default_backend()}, not on a GPU"}
    step, wait = jax_step(batch)
    still = jax.device_put(
        jax.random.normal(jax.random.key(1), (batch, 224, 224, 3)), jax.devices()[0]
    )
    ours = Ours(setting, folder, decode, batch)
    try:
        epochs = ours.feed.to_jax()

        def forever() -> Iterator[Any]:
            while True:
                for images, *_ in epochs:
                    yield images

        batches = forever()
        nexts: dict[str, Next] = {"synthetic": lambda: still, "fastfeed": lambda: next(batches)}
        return _contest(setting, batch, step, wait, nexts)
    finally:
        ours.close()


def _contest(
    setting: Setting,
    batch: int,
    step: Callable[[Any], None],
    wait: Callable[[], Any],
    nexts: dict[str, Next],
) -> dict[str, Any]:
    """Rates of all in turn, forth and back, as many steps each; device memory between the
    rounds.
    """
    for _ in range(3):  # compiled, and the fastest convolutions found
        for take in nexts.values():
            step(take())
    wait()
    start = time.perf_counter()
    for _ in range(10):
        step(nexts["synthetic"]())
    wait()
    one = (time.perf_counter() - start) / 10
    # real data may take three times as long
    seconds = max(1.0, min(8.0, setting.left() / (3 * ROUNDS * len(nexts))))
    steps = max(10, int(seconds / one))
    rates: dict[str, list[float]] = {name: [] for name in nexts}
    used: list[float] = []
    for k in range(ROUNDS):
        used.append(setting.device_mb())
        for name in list(nexts) if k % 2 else list(nexts)[::-1]:
            take = nexts[name]
            for _ in range(_DRAINED):
                step(take())
            wait()
            start = time.perf_counter()
            for _ in range(steps):
                step(take())
            wait()
            rates[name].append(batch * steps / (time.perf_counter() - start))
    used.append(setting.device_mb())
    figures: dict[str, Any] = {"steps": steps, "ms per synthetic step": round(1e3 * one, 2)}
    for name, found in rates.items():
        figures[f"{name}, images/s"] = round(statistics.median(found), 1)
        if name != "synthetic":
            pairs = zip(found, rates["synthetic"], strict=True)
            figures[f"{name} / synthetic"] = round(statistics.median(a / b for a, b in pairs), 4)
        setting.say(f"{name}: {statistics.median(found):,.0f} images/s")
    figures["device_mb"] = [round(mb) for mb in used]
    figures["device_grown_mb"] = round(used[-1] - used[1], 1)
    return figures
