"""The files that examples of the API reference read, made up in one folder."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np

from helpers.hugging_face import repository
from helpers.mosaic import mds_folder, raw_folder
from helpers.photos import folder
from helpers.profiler.kineto_files import starved_steps, write
from helpers.records import record_folder, tfds_folder
from helpers.shards import shard_folder


def example_files(root: Path) -> Path:
    """photos/ with two classes, photos.csv, boxes.json, shards in every format, MNIST, CIFAR-10, a
    trace.
    """
    photos = folder(root / "photos", {"cat": 3, "dog": 3})
    names = [path.relative_to(photos).as_posix() for path in sorted(photos.rglob("*.jpg"))]
    rows = [f"photos/{name},{name.split('/')[0]},{1 + i % 2}" for i, name in enumerate(names)]
    (root / "photos.csv").write_text("\n".join(["path,animal,trust", *rows]) + "\n")
    categories = [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]
    images = [
        {"id": i, "file_name": name, "height": 40, "width": 56} for i, name in enumerate(names)
    ]
    boxes = [
        {
            "id": i,
            "image_id": i,
            "category_id": 1 + ("dog" in name),
            "bbox": [8, 10, 20, 12],
            "iscrowd": 0,
            "area": 240,
        }
        for i, name in enumerate(names)
    ]
    (root / "boxes.json").write_text(
        json.dumps({"images": images, "annotations": boxes, "categories": categories})
    )
    shard_folder(root / "tar", [4, 4])
    record_folder(root / "tfrecord", [4, 4])
    tfds_folder(root / "tfds" / "pets" / "1.0.0", {"train": [4, 4]})
    mds_folder(root / "mds", [4, 4])
    raw_folder(root / "raw", [4, 4])
    repository(root / "birds")
    write(root / "trace.json", starved_steps())
    mnist(root / "mnist")
    _cifar(root / "cifar-10-batches-bin")
    return root


def mnist(folder: Path, count: int = 10) -> None:
    """Training and test digits, in the layout of MNIST."""
    folder.mkdir()
    pixels, labels = np.zeros((count, 28, 28), np.uint8), np.arange(count, dtype=np.uint8)
    for split in ("train", "t10k"):
        (folder / f"{split}-images-idx3-ubyte").write_bytes(
            struct.pack(">4i", 0x803, *pixels.shape) + pixels.tobytes()
        )
        (folder / f"{split}-labels-idx1-ubyte").write_bytes(
            struct.pack(">2i", 0x801, count) + labels.tobytes()
        )


def _cifar(folder: Path, count: int = 10) -> None:
    folder.mkdir()
    rows = np.zeros((count, 3073), np.uint8)
    rows[:, 0] = np.arange(count) % 10
    for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"):
        (folder / f"{name}.bin").write_bytes(rows.tobytes())
    (folder / "batches.meta.txt").write_text("".join(f"class{k}\n" for k in range(10)))
