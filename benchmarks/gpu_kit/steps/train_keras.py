"""`model.fit` in Keras, on PyTorch or JAX: on photographs, and on a batch that lies on the device."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu_kit.steps.feeds import OPS, SIDE, TINY, TINY_OPS, threads_here
from benchmarks.gpu_kit.steps.nets import keras_model
from benchmarks.gpu_kit.steps.train import THREADS

__all__ = ["run"]

_FIRST = 4  # steps that are compiled in and do not count


def run(context: Any) -> None:
    backend = context.name.rsplit("-", 1)[1]
    model = keras_model(backend, context.stand_in)
    import keras

    import fastfeed as ff

    batch, steps = (8, 12) if context.stand_in else (256, 80)
    context.note("keras", f"{keras.__version__} on {keras.backend.backend()}")
    source = ff.ImageFolder(_classes(context.work), progress=False)
    rows = {
        "synthetic": {"images_per_second": _fit(model, _still(backend, batch, context.stand_in), batch, steps, steps)}
    }
    for threads in [n for n in THREADS if n in threads_here(context.stand_in, tuple(sorted(THREADS)))] or [1]:
        if context.skips(f"{threads} threads", 2 if context.stand_in else 8):
            continue
        with ff.Feed(source, TINY_OPS if context.stand_in else OPS, batch=batch, threads=threads) as made:
            rate = _fit(model, made.to_keras(), batch, steps, None, -(-steps // len(made)))
        rows[f"{threads} threads"] = {
            "images_per_second": rate,
            "real / synthetic": round(rate / rows["synthetic"]["images_per_second"], 4),
        }
        context.note("resnet50" if not context.stand_in else "a tiny net", rows)


def _classes(work: Path) -> Path:
    """The ImageNet-size photographs, as one class."""
    root = work / "classes"
    root.mkdir(exist_ok=True)
    link = root / "all"
    with contextlib.suppress(FileExistsError):  # of the other backend's step
        link.symlink_to((work / "photos" / "imagenet").resolve(), target_is_directory=True)
    return root


def _still(backend: str, batch: int, stand_in: bool) -> Iterator[Any]:
    """The same batch for ever, on the device."""
    size = (TINY, TINY) if stand_in else (SIDE, SIDE)
    if backend == "torch":
        import torch

        device = "cpu" if stand_in else "cuda"
        pair = torch.rand(batch, *size, 3, device=device), torch.zeros(batch, dtype=torch.int64, device=device)
    else:
        import jax

        pair = jax.random.uniform(jax.random.key(0), (batch, *size, 3)), jax.numpy.zeros(batch, "int32")
    while True:  # Keras takes generators, not other iterators
        yield pair


def _fit(model: Any, data: Any, batch: int, steps: int, per_epoch: int | None, epochs: int = 1) -> float:
    """Images per second after the first steps."""
    import keras

    class Clock(keras.callbacks.Callback):
        """When steps ended."""

        def __init__(self) -> None:
            super().__init__()
            self.ends: list[float] = []

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.ends.append(time.perf_counter())

    clock = Clock()
    model.fit(data, epochs=epochs, steps_per_epoch=per_epoch, callbacks=[clock], verbose=0)
    counted = clock.ends[_FIRST:]
    return round(batch * len(counted) / (time.perf_counter() - clock.ends[_FIRST - 1]), 1)
