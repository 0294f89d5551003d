"""Epochs of other loaders for bench_transform: with their own decoding, and with a Transform.

Each builder takes paths and returns a function that runs an epoch over them and returns the number
of images. All make random crops of 224 x 224, flipped or not, uint8, in batches of 64, on two
workers or threads. OpenCV shrinks by area, as its documentation advises.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import cv2
import numpy as np
import rival_feeds

import fastfeed as ff

SIZE, BATCH, WORKERS = 224, 64, 2
OPS = [ff.RandomResizedCrop(SIZE), ff.RandomFlip()]
CHW = [*OPS, ff.ToLayout("CHW")]
Epoch = Callable[[], int]
Paths = Sequence[str]
Decode = Callable[[str], Any]


# -- decode, crop, resize and flip one file


def drawn_window(height: int, width: int) -> tuple[int, int, int, int]:
    """Top, left, height and width, drawn as torchvision's RandomResizedCrop does."""
    for _ in range(10):
        area = height * width * random.uniform(0.08, 1)
        aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, height - h), random.randint(0, width - w), h, w
    side = min(height, width)
    return (height - side) // 2, (width - side) // 2, side, side


def opencv(path: str) -> np.ndarray:
    image = cv2.imread(path, cv2.IMREAD_COLOR_RGB)
    top, left, height, width = drawn_window(*image.shape[:2])
    part = image[top : top + height, left : left + width]
    how = cv2.INTER_AREA if height * width > SIZE * SIZE else cv2.INTER_LINEAR
    resized = cv2.resize(part, (SIZE, SIZE), interpolation=how)
    return cv2.flip(resized, 1) if random.random() < 0.5 else resized


def ffmpeg(path: str) -> np.ndarray:
    """SPDL's own decoder, with filters of FFmpeg."""
    import spdl.io

    packets = spdl.io.demux_image(path)
    top, left, height, width = drawn_window(packets.height, packets.width)
    filters = f"crop={width}:{height}:{left}:{top},scale={SIZE}:{SIZE}:flags=bilinear"
    filters += ",hflip" if random.random() < 0.5 else ""
    frames = spdl.io.decode_packets(packets, filter_desc=f"{filters},format=pix_fmts=rgb24")
    return spdl.io.to_numpy(spdl.io.convert_frames(frames))


def torchvision_moves() -> list[Any]:
    from torchvision.transforms import v2

    return [v2.RandomResizedCrop(SIZE, antialias=True), v2.RandomHorizontalFlip()]


def torchvision_pil() -> Decode:
    from PIL import Image
    from torchvision.transforms import v2

    transform = v2.Compose([*torchvision_moves(), v2.PILToTensor()])
    return lambda path: transform(Image.open(path).convert("RGB"))


def torchcodec() -> Decode:
    from torchcodec.decoders import decode_jpeg
    from torchvision.transforms import v2

    transform = v2.Compose(torchvision_moves())
    return lambda path: transform(decode_jpeg(path))


def opencv_tensor() -> Decode:
    import torch

    return lambda path: torch.from_numpy(opencv(path)).permute(2, 0, 1)


# -- loaders


def torch_loader(samples: Any, collate: Any = None) -> Epoch:
    """A DataLoader whose workers stay from epoch to epoch."""
    from torch.utils.data import DataLoader

    loader = DataLoader(
        samples,
        BATCH,
        shuffle=True,
        num_workers=WORKERS,
        persistent_workers=True,
        collate_fn=collate,
        multiprocessing_context="fork",
        worker_init_fn=seed_worker,
    )
    return lambda: sum(len(batch) for batch in loader)


def seed_worker(number: int) -> None:
    random.seed(number)
    cv2.setNumThreads(1)


class Decoded(Sequence[Any]):
    """A dataset of images, each decoded when it is asked for."""

    def __init__(self, paths: Paths, decode: Decode) -> None:
        self.paths = paths
        self.decode = decode

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: Any) -> Any:
        return self.decode(self.paths[row])


def torch_transform(paths: Paths, threads: int = 1) -> Epoch:
    """A Transform instead of `default_collate`: one call per batch."""
    import torch

    transform = ff.Transform(CHW, threads=threads)

    def collate(samples: list[tuple[str, int]]) -> torch.Tensor:
        files, ids = zip(*samples, strict=True)
        return transform.torch(files, ids=ids).images

    return torch_loader([(path, i) for i, path in enumerate(paths)], collate)


def spdl_loader(build: Callable[[Any], Any], paths: Paths) -> Epoch:
    from spdl.pipeline import PipelineBuilder

    def epoch() -> int:
        pipeline = build(PipelineBuilder().add_source(paths)).add_sink(3)
        pipeline = pipeline.build(num_threads=WORKERS)
        with pipeline.auto_stop():
            return sum(len(batch) for batch in pipeline)

    return epoch


def spdl_own(decode: Decode, paths: Paths) -> Epoch:
    def build(builder: Any) -> Any:
        return builder.pipe(decode, concurrency=WORKERS).aggregate(BATCH).pipe(np.stack)

    return spdl_loader(build, paths)


def spdl_transform(paths: Paths) -> Epoch:
    transform = ff.Transform(OPS, threads=WORKERS)

    def images(rows: list[tuple[int, str]]) -> np.ndarray:
        ids, files = zip(*rows, strict=True)
        return transform(files, ids=ids).images

    def build(builder: Any) -> Any:
        return builder.aggregate(BATCH).pipe(images, concurrency=WORKERS)

    return spdl_loader(build, list(enumerate(paths)))


def grain_loader(data: Any, batches: bool) -> Epoch:
    """Its threads run `map`; `batches`: of whole batches."""
    import grain

    options = grain.ReadOptions(num_threads=WORKERS, prefetch_buffer_size=4 if batches else 128)
    data = data.to_iter_dataset(options)
    data = data if batches else data.batch(BATCH)
    return lambda: sum(len(batch) for batch in data)


def grain_own(paths: Paths) -> Epoch:
    import grain

    return grain_loader(grain.MapDataset.source(paths).shuffle(seed=0).map(opencv), False)


def grain_transform(paths: Paths) -> Epoch:
    import grain

    transform = ff.Transform(OPS, threads=WORKERS)

    def images(rows: list[tuple[int, str]]) -> np.ndarray:
        ids, files = zip(*rows, strict=True)
        return transform(files, ids=ids).images

    samples = grain.MapDataset.source(list(enumerate(paths))).shuffle(seed=0)
    return grain_loader(samples.batch(BATCH, batch_fn=list).map(images), True)


def tfdata_own(paths: Paths, folder: str) -> Epoch:
    """An endless pipeline, of which as many batches are taken as an epoch has."""
    return taken(rival_feeds.tfdata_batches(folder, WORKERS), len(paths))


def tfdata_transform(paths: Paths) -> Epoch:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    transform = ff.Transform(OPS, threads=WORKERS)

    def batches() -> Iterator[int]:
        count = len(paths)
        data = tf.data.Dataset.from_tensor_slices((list(paths), np.arange(count)))
        data = data.shuffle(count, seed=1).repeat()
        read = lambda path, i: (tf.io.read_file(path), i)  # noqa: E731
        data = data.map(read, num_parallel_calls=WORKERS, deterministic=False)
        data = data.batch(rival_feeds.BATCH)
        data = data.map(lambda files, ids: transform.tf(files, ids=ids)).prefetch(2)
        options = tf.data.Options()
        options.threading.private_threadpool_size = WORKERS
        for batch in data.with_options(options):
            yield int(batch.shape[0])

    return taken(batches(), len(paths))


def taken(batches: Iterator[int], images: int) -> Epoch:
    steps = images // rival_feeds.BATCH
    return lambda: sum(next(batches) for _ in range(steps))


def torch_loaders(paths: Paths, folder: str) -> dict[str, Epoch]:
    decoders = {
        "torchvision v2 on PIL": torchvision_pil(),
        "OpenCV": opencv_tensor(),
        "torchcodec, v2 on tensors": torchcodec(),
    }
    rivals = {name: torch_loader(Decoded(paths, decode)) for name, decode in decoders.items()}
    return {"Transform": torch_transform(paths), **rivals}


def spdl_loaders(paths: Paths, folder: str) -> dict[str, Epoch]:
    return {
        "Transform": spdl_transform(paths),
        "OpenCV": spdl_own(opencv, paths),
        "spdl.io": spdl_own(ffmpeg, paths),
    }


def grain_loaders(paths: Paths, folder: str) -> dict[str, Epoch]:
    return {"Transform": grain_transform(paths), "OpenCV": grain_own(paths)}


def tfdata_loaders(paths: Paths, folder: str) -> dict[str, Epoch]:
    return {"Transform": tfdata_transform(paths), "tf.image": tfdata_own(paths, folder)}


LOADERS: dict[str, Any] = {
    "torch": torch_loaders,
    "spdl": spdl_loaders,
    "grain": grain_loaders,
    "tfdata": tfdata_loaders,
}
