"""An example of every source, with a few samples each, for laws over all of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

import fastfeed as ff
from fastfeed.sources import (
    Arrays,
    Files,
    HuggingFace,
    ImageFolder,
    Mapped,
    MDSShards,
    Mixture,
    Objects,
    RawShards,
    Source,
    Storage,
    Table,
    TarShards,
    TFRecords,
    Together,
)
from fastfeed.sources.listing.listing import list_images
from helpers.hugging_face import saved, table, write_parquet
from helpers.mosaic import mds_folder, raw_folder
from helpers.photos import folder, jpeg, picture
from helpers.records import record_folder
from helpers.remotes import uploaded
from helpers.shards import shard_folder
from helpers.tables import image_bytes, write

IMAGES = np.stack([picture(i, (20, 30)) for i in range(6)])


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def photos(root: Path, changed: bool) -> Path:
    if not root.exists():
        folder(root, {"a": 3, "b": 4})
    if changed:
        (root / "b" / "0001.jpg").write_bytes(jpeg(99, (48, 64)))
    return root


def from_listing(root: Path) -> ImageFolder:
    list_images(str(root), f"{root}.csv", storage=Storage())
    return ImageFolder(root, listing=f"{root}.csv")


def mnist(root: Path, changed: bool) -> Arrays:
    root.mkdir(exist_ok=True)
    digits = np.arange(5 * 28 * 28, dtype=np.uint8).reshape(5, 28, 28) + np.uint8(changed)
    (root / "train-images-idx3-ubyte").write_bytes(idx(digits))
    (root / "train-labels-idx1-ubyte").write_bytes(idx(np.arange(5, dtype=np.uint8)))
    return Arrays.mnist(root)


def cifar(root: Path, changed: bool) -> Arrays:
    root.mkdir(exist_ok=True)
    for i in range(5):
        (root / f"data_batch_{i + 1}.bin").write_bytes(bytes([i]) + bytes([i + changed] * 3072))
    return Arrays.cifar(root)


def mixture(root: Path, changed: bool) -> Mixture:
    tar = TarShards(shard_folder(root / "shards", (3, 2)), classes=("a", "b", "c"))
    return Mixture(
        {"folder": ImageFolder(photos(root / "folder", changed)), "tar": tar}, [0.25, 0.75]
    )


def together(root: Path, changed: bool) -> Together:
    pair = ImageFolder(photos(root / "left", False)), ImageFolder(photos(root / "right", changed))
    return Together(dict(zip(("left", "right"), pair, strict=True)))


def listed(root: Path, changed: bool, format: str) -> Table:
    paths = [f"a/{i:04}.jpg" for i in (0, 2 if changed else 1)] + [
        f"b/{i:04}.jpg" for i in range(4)
    ]
    table = {"path": paths, "label": ["x", "x", "y", "x", "z", "y"], "weight": [1.5] * 6}
    return Table(
        write(photos(root, False) / f"t.{format}", table),
        image="path",
        label="label",
        weight="weight",
    )


def paths_of(root: Path, changed: bool) -> list[str]:
    return [str(path) for path in sorted(photos(root, False).glob("*/*.jpg"))[changed:]]


def in_memory(root: Path, changed: bool) -> Table:
    photos(root, False)
    frame = {"id": [0, 1, 2, 1 if changed else 3], "folder": ["a", "a", "b", "b"]}
    return Table(frame, path="{folder}/{id:04}.jpg", label="folder", columns=["id"], root=root)


class Squares:
    """A Python data set."""

    def __init__(self, changed: bool) -> None:
        self.length = 5 + changed

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> tuple[np.ndarray, int]:
        return IMAGES[i], i % 2


def saved_by_datasets(root: Path, changed: bool) -> HuggingFace:
    folder = saved(root, [0, 1, 2], [3, 5 if changed else 4])
    return HuggingFace(folder, columns=["caption"])


def held(root: Path, changed: bool) -> Table:
    blobs = [jpeg(i + 1000 * (changed and i == 4), (48 + 8 * i, 64)) for i in range(6)]
    return Table(
        image_bytes(root / "t.parquet", blobs, 2, label=list(range(6))),
        image="image",
        label="label",
    )


def located(root: Path, changed: bool) -> Objects:
    return Objects(
        ImageFolder(photos(root, False)), [[[1, 2, 9 + changed, 8]] * (i % 3) for i in range(7)]
    )


def boxed(root: Path, changed: bool) -> Path:
    boxes = [{"image_id": 3, "category_id": 1, "bbox": [1, 2, 9 + changed, 8]}]
    images = [{"id": i, "file_name": f"{'ab'[i > 2]}/{i - 3 * (i > 2):04}.jpg"} for i in range(7)]
    found = {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "thing"}]}
    (root / "instances.json").write_text(json.dumps(found))
    return root / "instances.json"


# (folder, whether one sample's content is another) -> source
SOURCES: dict[str, Callable[[Path, bool], Source]] = {
    "ImageFolder": lambda root, changed: ImageFolder(photos(root, changed)),
    "ImageFolder, unlabeled": lambda root, changed: ImageFolder(
        photos(root, changed), labeled=False
    ),
    "ImageFolder, classes": lambda root, changed: ImageFolder(
        photos(root, changed), classes=("c", "b", "a")
    ),
    "ImageFolder, remote": lambda root, changed: ImageFolder(uploaded(photos(root, changed))),
    "ImageFolder, listing": lambda root, changed: from_listing(photos(root, changed)),
    "Arrays": lambda root, changed: Arrays(
        IMAGES + np.uint8(changed), np.arange(6), classes=tuple("xyzuvw")
    ),
    "Arrays, gray": lambda root, changed: Arrays(IMAGES[..., 0] + np.uint8(changed)),
    "TarShards": lambda root, changed: TarShards(
        shard_folder(root, (3, 1, 4), 2 if changed else None)
    ),
    "TFRecords": lambda root, changed: TFRecords(
        record_folder(root, (3, 1, 4), 2 if changed else None), columns=["image/filename"]
    ),
    "TarShards, columns": lambda root, changed: TarShards(
        shard_folder(root, (3, 1, 4), 2 if changed else None), columns=["cls"]
    ),
    "MDSShards": lambda root, changed: MDSShards(
        mds_folder(root, (3, 1, 4), 2 if changed else None), columns=["id"]
    ),
    "MDSShards, remote": lambda root, changed: MDSShards(
        uploaded(mds_folder(root, (3, 1), 2 if changed else None))
    ),
    "RawShards": lambda root, changed: RawShards(
        raw_folder(root, (3, 1, 4), 2 if changed else None)
    ),
    "RawShards, remote": lambda root, changed: RawShards(
        uploaded(raw_folder(root, (3, 2), 2 if changed else None))
    ),
    "Mixture": mixture,
    "Objects": located,
    "Objects.coco": lambda root, changed: Objects.coco(photos(root, False), boxed(root, changed)),
    "Table, CSV": lambda root, changed: listed(root, changed, "csv"),
    "Table, JSON lines": lambda root, changed: listed(root, changed, "jsonl"),
    "Table, Parquet": lambda root, changed: listed(root, changed, "parquet"),
    "Table, images in Parquet": held,
    "Table, in memory": in_memory,
    "HuggingFace": saved_by_datasets,
    "HuggingFace, remote": lambda root, changed: HuggingFace(
        uploaded(saved(root, [0, 1], [3 if changed else 2]))
    ),
    "HuggingFace, Parquet": lambda root, changed: HuggingFace(
        write_parquet(root / "a.parquet", table([0, 1, 3 if changed else 2]))
    ),
    "Mapped": lambda root, changed: Mapped(Squares(changed), classes=("x", "y"), size=(20, 30)),
    "Files": lambda root, changed: Files(
        paths_of(root, changed),
        labels=["x", "y"] * 3 + ["y"] * (not changed),
        columns={"place": np.eye(7)[changed:], "name": [*"abcdefg"][changed:]},
    ),
    "Files, remote": lambda root, changed: Files(
        [f"{i:04}.jpg" for i in range(3 - changed)], root=f"{uploaded(photos(root, False))}/a"
    ),
    "Together": together,
    "Arrays.mnist": mnist,
    "Arrays.cifar": cifar,
}


def small_feed(name: str, folder: Path) -> ff.Feed:
    """A feed of two small images per batch from one of SOURCES."""
    source = SOURCES[name](folder / "data", False)
    return ff.Feed(source, [ff.Resize((12, 16))], batch=2, seed=3, threads=1)
