"""Feeds whose batches carry more than images and labels, for laws over fields and adapters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fastfeed as ff
from helpers.photos import jpeg
from helpers.shards import tar_of

N = 10
BATCH = 4
IMAGES = np.random.default_rng(0).integers(0, 256, (N, 12, 16, 3), dtype=np.uint8)
LABELS = np.arange(N) % 3
CAPTIONS = [f"caption {i} ä" for i in range(N)]


class Described(ff.Arrays):
    """Arrays with columns in memory, one of which has the name of a field."""

    def columns(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        return {
            "caption": np.array(CAPTIONS, object)[ids],
            "year": (2000 + np.asarray(ids)).astype(np.int32),
            "place": np.stack([ids, ids], axis=1).astype(np.float32),
            "id": np.asarray(ids) * 10,
        }


class Read(ff.Arrays):
    """Arrays whose columns are read with each sample; the numbers of one differ in length."""

    def columns(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        return {name: np.empty(len(ids), object) for name in ("caption", "score", "tokens")}

    def column_values(self, ids: Sequence[int]) -> list[dict[str, Any]]:
        return [
            {"caption": CAPTIONS[i], "score": np.float32(i), "tokens": np.arange(i % 3)}
            for i in ids
        ]


class Dated(ff.Arrays):
    """Arrays with a column that frameworks have no arrays of, and one of Python objects."""

    def columns(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        return {
            "taken": np.full(len(ids), "2020-01-01", "datetime64[D]"),
            "notes": np.array([{"a": 1}] * len(ids), object),
        }


def shards(folder: Path) -> ff.TarShards:
    """Tar shards with a text and a number of each sample."""
    members = []
    for i in range(N):
        members += [(f"{i:03d}.jpg", jpeg(i, (12, 16))), (f"{i:03d}.cls", str(i % 3).encode())]
        members += [(f"{i:03d}.txt", CAPTIONS[i].encode())]
    (folder / "s.tar").write_bytes(tar_of(members))
    return ff.TarShards(folder, columns=["txt"])


def annotated(
    source: Any, masks: bool = True, points: bool = False, outlines: Any = None
) -> ff.Objects:
    """A source with boxes, none of every third image, masks and keypoints.

    outlines: what those of objects become.
    """
    boxes = [[[1.0, 2.0, 9.0, 10.0]] * (i % 3) for i in range(N)]
    labels = [list(range(i % 3)) for i in range(N)]
    pixels = [np.full((12, 16), i, np.uint8) for i in range(N)]
    more: dict[str, Any] = {}
    if points:
        face = [[3.0, 4.0, 2.0], [7.0, 4.0, 1.0]]
        more = {"keypoints": [[face] * (i % 3) for i in range(N)], "flip_pairs": [(0, 1)]}
    if outlines:
        outline = [[2, 3, 8, 3, 8, 9]]
        more |= {"instance_masks": [[outline] * (i % 3) for i in range(N)], "draw": outlines}
    return ff.Objects(source, boxes, labels, masks=pixels if masks else None, **more)


SIZES = [ff.RandomResizedCrop(ff.RandomSizes([8, (6, 10)])), ff.RandomFlip(), ff.ToFloat()]
VIEWS = [ff.MultiCrop((ff.View(8, 2), ff.View(6, 1)))]

PAIR = ff.Together({"left": Described(IMAGES, LABELS), "right": ff.Arrays(255 - IMAGES)})
FLIPS = {"left": [ff.RandomFlip(), ff.ToFloat()], "right": [ff.RandomFlip()]}


def lengths(captions: list[str]) -> np.ndarray:
    return np.array([[len(caption)] * 3 for caption in captions], np.int32)


def upper(captions: list[str], image: np.ndarray) -> tuple[list[str], np.ndarray]:
    return [caption.upper() for caption in captions], image[..., :1]


MAPS = [
    ff.Map(lambda label: label + np.float32(0.5), "label", out="label"),
    ff.Map(lengths, "caption", out="lengths", shape=(3,), dtype="int32"),
    ff.Map(upper, "caption", "image", out=("shouted", "red")),
]

FEEDS: dict[str, Callable[[Path], tuple[Any, Any]]] = {
    "plain": lambda _: (ff.Arrays(IMAGES, LABELS), [ff.RandomFlip(), ff.ToFloat()]),
    "soft labels": lambda _: (ff.Arrays(IMAGES, LABELS), [ff.OneHot(3), ff.MixUp(1.0)]),
    "columns": lambda _: (Described(IMAGES, LABELS), [ff.Normalize.imagenet()]),
    "columns that are read": lambda _: (Read(IMAGES, LABELS), []),
    "shards": lambda folder: (shards(folder), [ff.Resize((12, 16))]),
    "boxes and masks": lambda _: (annotated(Described(IMAGES, LABELS)), [ff.RandomFlip()]),
    "boxes": lambda _: (annotated(ff.Arrays(IMAGES, LABELS), masks=False), [ff.Mosaic()]),
    "keypoints": lambda _: (annotated(ff.Arrays(IMAGES), points=True), [ff.RandomFlip()]),
    "instance masks": lambda _: (annotated(ff.Arrays(IMAGES), outlines="instances"), [ff.Mosaic()]),
    "polygons": lambda _: (annotated(ff.Arrays(IMAGES), outlines=["polygons"]), [ff.Mosaic()]),
    "pairs": lambda _: (PAIR, FLIPS),
    "maps": lambda _: (Described(IMAGES, LABELS), [*MAPS, ff.RandomFlip(), ff.ToFloat()]),
    "maps of pairs": lambda _: (PAIR, [ff.RandomFlip(), MAPS[1]]),
    "sizes": lambda _: (annotated(Described(IMAGES, LABELS)), SIZES),
    "views": lambda _: (Described(IMAGES, LABELS), [*VIEWS, ff.ToFloat(), ff.ToLayout("CHW")]),
}


def feed(kind: str, folder: Path, **options: Any) -> ff.Feed:
    """A feed of this kind; two feeds with the same options have the same batches."""
    source, ops = FEEDS[kind](folder)
    settings: dict[str, Any] = {"batch": BATCH, "seed": 3, "threads": 1}
    return ff.Feed(source, ops, **settings | options)


def structures(made: ff.Feed, texts: bool = True, every: bool = True) -> list[Any]:
    """Choices of fields, over all that a trainer can take of a feed; not `every`: all fields."""
    fields = made.fields.items()
    names = [name for name, field in fields if field.is_array or (texts and field.dtype == "str")]
    if not every:
        return [dict(zip(names, reversed(names), strict=True))]
    return [
        "image",
        names[-1],
        ("image", "image"),
        tuple(names),
        dict(zip(names, reversed(names), strict=True)),
        [{"x": "image", "more": (names[-1], ["weight"])}, names[-1]],
    ]


def default_of(made: ff.Feed, weighted: bool) -> Any:
    """The choice that `yields` has by default, written out."""
    images: Any = ("image", "image_1") if "image_1" in made.fields else "image"
    if "left" in made.fields:
        images = {"left": "left", "right": "right"}
    objects = ["boxes", "box_labels", "keypoints", "instance_masks", "polygons", "polygon_rings"]
    objects += ["masks"]
    targets = {name.removeprefix("box_"): name for name in objects if name in made.fields}
    item = (images, targets or "label")
    return (*item, "weight") if weighted else item


def assert_holds(item: Any, structure: Any, batch: Any, listed: bool = True) -> None:
    """An item has this structure, with the arrays and texts of the batch at its leaves.

    `listed`: lists are lists; otherwise tuples.
    """
    if isinstance(structure, str):
        want = batch[structure]
        if want.dtype == object:
            texts = np.asarray(item, object).tolist()
            texts = [text.decode() if isinstance(text, bytes) else text for text in texts]
            assert texts == list(want), structure
        else:
            np.testing.assert_allclose(np.asarray(item), want, 1e-6, 1e-6, err_msg=structure)
        return
    kind = tuple if isinstance(structure, list) and not listed else type(structure)
    assert type(item) is kind and len(item) == len(structure)
    if isinstance(structure, dict):
        assert item.keys() == structure.keys()
        item, structure = item.values(), structure.values()
    for part, name in zip(item, structure, strict=True):
        assert_holds(part, name, batch, listed)


def check_yields(
    made: ff.Feed, load: Callable[[ff.Feed, Any], Any], chosen: Sequence[Any], listed: bool = True
) -> None:
    """The first item of an adapter has the fields of the feed's batch, for each choice of fields."""
    for yields in chosen:
        epoch = made.state()["epoch"]
        batch = next(made.batches(epoch))
        item = next(iter(load(made, yields)))
        structure = default_of(made, False) if yields is None else yields
        assert_holds(item, structure, batch, listed)
        del item
        made.seek(epoch + 1)
