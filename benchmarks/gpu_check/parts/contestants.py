"""Who takes part in `rates` and `steps`: fastfeed as a trainer gets its batches, and DALI tuned by
hand.

All cut a random window to 224 x 224, flip, normalize to float32 HWC, and end with the batch on the
GPU.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import fastfeed as ff
from benchmarks.gpu_check.parts.setting import Setting, busy_seconds
from fastfeed.feed.session import FeedSession

SIZE = 224
OPS = [ff.RandomResizedCrop(SIZE), ff.RandomFlip(), ff.Normalize.imagenet()]
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_DRAINED = 4  # batches that lay ready since the last run, and do not count


class Rate(NamedTuple):
    """What one run showed."""

    images_per_second: float
    cpu_ms: float  # processor time per image


def batch_for(setting: Setting, files: int, stock: bool) -> int:
    """Samples per batch: 256, or 32 where images are large."""
    return min(files, 8 if setting.quick else 32 if stock else 256)


class Ours:
    """A feed."""

    def __init__(
        self, setting: Setting, folder: Path, decode: Any, batch: int, prefetch: int = 2
    ) -> None:
        source = ff.ImageFolder(folder, labeled=False, progress=False)
        self._setting = setting
        how = {"batch": batch, "threads": setting.cores, "prefetch": prefetch}
        self.feed = ff.Feed(source, OPS, decode=decode, **how)
        self._batches = self._forever()

    def warm(self, seconds: float) -> None:
        """Build what is built with the first batch, and measure the processor's share where that is
        asked for.
        """
        share = self.share
        start = time.perf_counter()
        taken = 0
        while (
            taken < 3
            or time.perf_counter() - start < seconds
            or not (share is None or share.measured)
        ):
            next(self._batches)
            taken += 1
            if taken >= 3 and time.perf_counter() - start > 10 * seconds:
                break

    @property
    def share(self) -> Any:
        """The CPU's share of the files, if the backend has one."""
        return getattr(FeedSession.of(self.feed).backend, "share", None)

    def run(self, seconds: float) -> Rate:
        return _measured(self._setting, seconds, lambda: len(next(self._batches)))

    def images(self) -> Any:
        """The next batch."""
        return next(self._batches)

    def close(self) -> None:
        self.feed.close()

    def _forever(self) -> Iterator[Any]:
        epochs = self.feed.to_torch("cuda") if self._setting.gpu else self.feed
        while True:
            for batch in epochs:
                yield batch[0] if isinstance(batch, tuple) else batch.images


class Rival:
    """DALI as its documentation's training example has it: file reader, fused decoding and
    cropping, two batches ahead.

    Buffers are left to grow while it warms up, which comes to the same as the example's
    preallocation.
    """

    def __init__(
        self,
        setting: Setting,
        folder: Path,
        threads: int,
        load: float,
        batch: int,
        fancy: bool = False,
        whole: bool = False,
    ) -> None:
        """fancy: chroma upsampled as on the CPU; whole: decoded in full, then cropped. fastfeed
        asks for both.
        """
        from nvidia.dali import Pipeline, fn, types

        self._setting = setting
        files = sorted(str(p) for p in folder.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg"))
        device = 0 if setting.gpu else None
        pipe = Pipeline(
            batch_size=batch, num_threads=threads, device_id=device, prefetch_queue_depth=2, seed=1
        )
        with pipe:
            jpegs, _ = fn.readers.file(files=files, random_shuffle=True, initial_fill=len(files))
            own = {"hw_decoder_load": load, "jpeg_fancy_upsampling": fancy} if setting.gpu else {}
            own |= {"device": "mixed" if setting.gpu else "cpu", "output_type": types.RGB}
            area = {"random_area": [0.08, 1.0], "random_aspect_ratio": [0.75, 4 / 3]}
            scaling = {"size": [SIZE, SIZE], "interp_type": types.INTERP_LINEAR, "antialias": True}
            if whole:
                image = fn.random_resized_crop(fn.decoders.image(jpegs, **own), **area, **scaling)
            else:
                image = fn.resize(fn.decoders.image_random_crop(jpegs, **area, **own), **scaling)
            image = fn.crop_mirror_normalize(
                image,
                dtype=types.FLOAT,
                output_layout="HWC",
                mean=[255 * x for x in _MEAN],
                std=[255 * x for x in _STD],
                mirror=fn.random.coin_flip(probability=0.5),
            )
            pipe.set_outputs(image)
        pipe.build()
        self._pipe: Any = pipe

    def warm(self, seconds: float) -> None:
        start, taken = time.perf_counter(), 0
        while taken < 3 or time.perf_counter() - start < seconds:
            self._pipe.run()
            taken += 1

    def run(self, seconds: float) -> Rate:
        return _measured(self._setting, seconds, lambda: len(self._pipe.run()[0]))

    def images(self) -> Any:
        """The next batch as a tensor, without a copy: its memory belongs to the stream that
        computes.
        """
        import torch

        if not self._setting.gpu:
            return torch.from_dlpack(self._pipe.run()[0].as_tensor())
        (images,) = self._pipe.run(torch.cuda.current_stream())
        return torch.from_dlpack(images.as_tensor())

    def close(self) -> None:
        self._pipe = None


def _measured(setting: Setting, seconds: float, take: Any) -> Rate:
    for _ in range(_DRAINED):
        take()
    setting.sync()
    start, busy, images = time.perf_counter(), busy_seconds(), 0
    while (wall := time.perf_counter() - start) < seconds or not images:
        images += take()
    setting.sync()
    wall, busy = time.perf_counter() - start, busy_seconds() - busy
    return Rate(round(images / wall, 1), round(1e3 * busy / images, 3))
