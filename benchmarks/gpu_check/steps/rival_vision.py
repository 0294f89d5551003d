"""torchvision's decode_jpeg on the GPU: hardware decoding that many have installed.

By batch and threads.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.gpu_check.parts.setting import NotRun
from benchmarks.gpu_check.steps.feeds import rate


def run(context: Any) -> None:
    import torch

    decode = _stand_in() if context.stand_in else _torchvision()
    for name, folder in context.setting().sets.items():
        files = sorted(folder.glob("*.jpg"))
        blobs = [
            torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8) for path in files
        ]
        found: dict[str, Any] = {}
        for threads in (
            (1,) if context.stand_in else (1, 2)
        ):  # it decodes under one lock: the second should add nothing
            for batch in (
                (4,) if context.stand_in else (32, 128, 512) if name == "imagenet" else (8, 32)
            ):
                if context.skips(f"{name}, {threads} threads, batch {batch}", 3):
                    continue
                with ThreadPoolExecutor(threads) as pool:
                    found[f"{threads} threads, batch {batch}"] = _rate(
                        pool, threads, decode, blobs, batch, context
                    )
                context.note(name, found)


def _rate(
    pool: Any, threads: int, decode: Any, blobs: list[Any], batch: int, context: Any
) -> dict[str, float]:
    at = [0]

    def take() -> int:
        parts = []
        for _ in range(threads):
            parts.append([blobs[(at[0] + k) % len(blobs)] for k in range(batch)])
            at[0] += batch
        return sum(len(images) for images in pool.map(decode, parts))

    return rate(take, 0.1 if context.stand_in else 1.0, context.setting().sync, drained=1)


def _torchvision() -> Callable[[list[Any]], list[Any]]:
    try:
        from torchvision.io import ImageReadMode, decode_jpeg
    except ImportError as error:
        raise NotRun(f"torchvision is not here: {error}") from None

    def decode(blobs: list[Any]) -> list[Any]:
        return decode_jpeg(blobs, mode=ImageReadMode.RGB, device="cuda")

    return decode


def _stand_in() -> Callable[[list[Any]], list[Any]]:
    """Pillow in torchvision's place."""
    import io

    from PIL import Image

    def decode(blobs: list[Any]) -> list[Any]:
        return [Image.open(io.BytesIO(blob.numpy().tobytes())).convert("RGB") for blob in blobs]

    return decode
