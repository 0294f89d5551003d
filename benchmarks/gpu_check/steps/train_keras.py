"""`model.fit` in Keras, on PyTorch or JAX: on photographs, and on a batch that lies on the
device.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.parts.setting import Wrong
from benchmarks.gpu_check.steps.feeds import OPS, SIDE, TINY, TINY_OPS, threads_here
from benchmarks.gpu_check.steps.nets import keras_model
from benchmarks.gpu_check.steps.train import BATCH, THREADS

NETS = ("resnet50", "vit_b")
_FIRST = 4  # steps that are compiled in and do not count


def run(context: Any) -> None:
    """Each net on photographs and on a still batch, each for one epoch of as many steps."""
    backend = context.name.rsplit("-", 1)[1]
    for number, net in enumerate(NETS):
        with context.part(1 / (len(NETS) - number)):
            if not number or not context.skips(net, 25):
                _net(context, net, backend)


def _net(context: Any, net: str, backend: str) -> None:
    model = keras_model(net, backend, context.stand_in)
    import keras

    import fastfeed as ff

    batch, steps = (8, 12) if context.stand_in else (BATCH[net], 80)
    context.note("keras", f"{keras.__version__} on {keras.backend.backend()}")
    source = ff.ImageFolder(_classes(context.work), progress=False)
    rows = dict(context.interrupted(net))
    if "synthetic" not in rows:
        rate = _fit(model, _still(backend, batch, context.stand_in), batch, steps)
        rows["synthetic"] = {"images_per_second": rate}
    context.note(net, rows)
    for threads in [
        n for n in THREADS if n in threads_here(context.stand_in, tuple(sorted(THREADS)))
    ] or [1]:
        name = f"{threads} threads"
        if name in rows or context.skips(f"{net}, {name}", 2 if context.stand_in else 8):
            continue
        # an epoch of so many steps: the photographs again and again
        often = ff.Repeated(-(-steps * batch // len(source)))
        ops = TINY_OPS if context.stand_in else OPS
        with ff.Feed(source, ops, batch=batch, threads=threads, shuffle=often) as made:
            rate = _fit(model, made.to_keras(), batch, steps)
        ratio = round(rate / rows["synthetic"]["images_per_second"], 4)
        rows[name] = {"images_per_second": rate, "real / synthetic": ratio}
        context.note(net, rows)


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
        pair = (
            torch.rand(batch, *size, 3, device=device),
            torch.zeros(batch, dtype=torch.int64, device=device),
        )
    else:
        import jax

        pair = (
            jax.random.uniform(jax.random.key(0), (batch, *size, 3)),
            jax.numpy.zeros(batch, "int32"),
        )
        # tied to it, as batches of a feed are: compiled once for both
        pair = jax.device_put(pair, jax.devices()[0])
    while True:  # Keras takes generators, not other iterators
        yield pair


def _fit(model: Any, data: Any, batch: int, steps: int) -> float:
    """Images per second of one epoch, after the first steps."""
    import keras

    class Clock(keras.callbacks.Callback):
        """When steps ended."""

        def __init__(self) -> None:
            super().__init__()
            self.ends: list[float] = []

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.ends.append(time.perf_counter())

    clock = Clock()
    model.fit(data, epochs=1, steps_per_epoch=steps, callbacks=[clock], verbose=0)
    if len(clock.ends) != steps:
        raise Wrong([f"an epoch of {steps} steps had {len(clock.ends)}"], {})
    return round(batch * (steps - _FIRST) / (time.perf_counter() - clock.ends[_FIRST - 1]), 1)
