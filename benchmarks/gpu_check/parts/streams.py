"""Are the right pixels there when the trainer's queued work reads them, and still there while it
keeps them?

Heavy work is queued on the current stream and on another before each checksum, nothing waits for
the GPU until the end, and the sums must be those of a walk that waits for every batch. "dropped": a
batch is let go right after its checksum is queued, so that memory is used again as soon as can be;
"held": checksums of a batch are queued three steps late. The hardware JPEG engine has been seen to
write without waiting for its stream: this is where that would show.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

import fastfeed as ff
from benchmarks.gpu_check.parts.setting import Setting
from fastfeed.backends.options import GpuDecode

_SIZE, _HELD = 160, 3
_FEW = _HELD + 2  # batches of a quick run
_PERIOD = 65521  # of the weights, so that exchanged pixels change a sum
_MODULUS = 1 << 32

Sum = Callable[[Any], Any]  # images -> a checksum on the device, queued


def ordered(setting: Setting, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """(batches that were right, by way to decode, framework and mode; what is wrong)."""
    ways: dict[str, Any] = {"dali": GpuDecode(hw_load=1.0 if setting.gpu else 0.65)}
    ways |= {
        "half by the native extension": GpuDecode(cpu_share=0.5),
    }
    ways |= {"nvjpeg": GpuDecode(engine="nvjpeg")} if setting.gpu else {}
    ways["cpu kernel"] = "cpu"
    figures: dict[str, Any] = {}
    wrong: list[str] = []
    for way, decode in ways.items():
        want: list[int] = []
        for framework, begin in (("torch", _torch), ("jax", _jax)):
            name = f"{way}, {framework}"
            if setting.skips(f"agree, order of streams, {name}", 3 if setting.quick else 8):
                continue
            queue = begin(setting)
            if isinstance(queue, str):
                figures[name] = queue
                continue
            with _feed(setting, folder, decode) as feed:
                epochs, most = (1, _FEW) if setting.quick else (2, None)
                want = want or [
                    _host_sum(batch.images)
                    for batch in islice(feed.batches(0, epochs=epochs), most)
                ]
                modes = [("dropped", 0, False), ("held", _HELD, False)]
                modes += [("dropped, own stream", 0, True)] * (framework == "torch" and setting.gpu)
                for mode, late, own in modes:
                    feed.seek(0)
                    with _stream(own):
                        got = _walked(
                            islice(_epochs(feed, framework, setting, epochs), most), queue, late
                        )
                    good = sum(a == b for a, b in zip(want, got, strict=True))
                    figures[f"{name}, {mode}"] = f"{good}/{len(want)} batches"
                    if good < len(want):
                        wrong.append(
                            f"{name}, {mode}: {len(want) - good} of {len(want)} batches had wrong"
                            " pixels"
                        )
    return figures, wrong


def _feed(setting: Setting, folder: Path, decode: Any) -> ff.Feed:
    source = ff.ImageFolder(folder, labeled=False, progress=False)
    ops = [ff.RandomResizedCrop(_SIZE), ff.RandomFlip()]
    batch = min(len(source), 8 if setting.quick else 64)
    return ff.Feed(source, ops, batch=batch, threads=setting.cores, decode=decode, seed=5)


def _epochs(feed: ff.Feed, framework: str, setting: Setting, epochs: int) -> Iterator[Any]:
    made = (
        feed.to_torch("cuda" if setting.gpu else "cpu") if framework == "torch" else feed.to_jax()
    )
    # which hold no batch themselves
    return chain.from_iterable(map(itemgetter(0), made) for _ in range(epochs))


def _stream(own: bool) -> AbstractContextManager[Any]:
    """The default stream, with which others are in step, or one that is not."""
    if not own:
        return nullcontext()
    import torch

    return torch.cuda.stream(torch.cuda.Stream())


def _walked(batches: Iterator[Any], queue: Sum, late: int) -> list[int]:
    held: deque[Any] = deque()
    sums: list[Any] = []
    for images in batches:
        held.append(images)
        del images
        if len(held) > late:
            sums.append(queue(held.popleft()))
    while held:
        sums.append(queue(held.popleft()))
    return [int(one) % _MODULUS for one in sums]


def _host_sum(images: Any) -> int:
    there = np.asarray(images.get() if hasattr(images, "get") else images).astype(np.int64).ravel()
    return int((there * (np.arange(there.size) % _PERIOD + 1)).sum()) % _MODULUS


def _torch(setting: Setting) -> Sum:
    import torch

    device = torch.device("cuda" if setting.gpu else "cpu")
    # some 20 ms: longer than a batch takes, so that steps queue
    size, times = (8192, 12) if setting.gpu else (64, 1)
    heavy = torch.randn(size, size, device=device).to(torch.bfloat16)
    side = torch.cuda.Stream() if setting.gpu else None
    setting.sync()

    def queue(images: Any) -> Any:
        for _ in range(times):
            torch.mm(heavy, heavy)
        if side is not None:
            with torch.cuda.stream(side):
                for _ in range(times // 2):
                    torch.mm(heavy, heavy)
        flat = images.reshape(-1).to(torch.int64)
        weights = torch.arange(flat.numel(), device=device).remainder_(_PERIOD).add_(1)
        return (flat * weights).sum()

    return queue


def _jax(setting: Setting) -> Sum | str:
    import jax
    import jax.numpy as jnp

    if setting.gpu and jax.default_backend() != "gpu":
        return f"not run: JAX computes on {jax.default_backend()}, not on a GPU"
    heavy = jnp.ones((8192 if setting.gpu else 64,) * 2, jnp.bfloat16)

    @jax.jit
    def work(x: Any) -> Any:
        for _ in range(8):
            x = (x @ x) * 1e-4
        return x

    @jax.jit
    def checksum(images: Any) -> Any:
        flat = images.reshape(-1).astype(jnp.uint32)  # wraps around, as the modulus says
        return (flat * (jnp.arange(flat.size, dtype=jnp.uint32) % _PERIOD + 1)).sum(
            dtype=jnp.uint32
        )

    work(heavy).block_until_ready()

    def queue(images: Any) -> Any:
        work(heavy)
        return checksum(images)

    return queue
