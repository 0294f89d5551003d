"""Boxes and masks added to a source: what goes in, what comes out, what is refused."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.photos import folder, picture
from helpers.remotes import uploaded
from PIL import Image

from fastfeed.errors import ConfigError
from fastfeed.faults import Failure
from fastfeed.sources import Arrays, ImageFolder, Mixture, Objects, TarShards
from fastfeed.sources.base import Annotated, Fetching, HasObjects, Sharded
from fastfeed.storage.fingerprint import difference

IMAGES = Arrays(
    np.stack([picture(i, (20, 30)) for i in range(4)]), np.arange(4) % 2, classes=("a", "b")
)
BOXES = [[[1, 2, 11, 8]], [], np.array([[0, 0, 30, 20], [5, 5, 6.5, 7]]), np.empty((0, 4))]
LABELS = [[1], [], [0, 2], []]
ALL = np.arange(4)


def png(mask: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(mask).save(file, "PNG")
    return file.getvalue()


def test_boxes_come_image_by_image():
    source = Objects(IMAGES, BOXES, LABELS, classes=("x", "y", "z"))
    found = source.objects(np.array([2, 1, 0, 2]))
    assert (
        found is not None
        and found.counts.tolist() == [2, 0, 1, 2]
        and found.counts.dtype == np.int64
    )
    assert found.labels.tolist() == [0, 2, 1, 0, 2] and found.labels.dtype == np.int64
    whole, small = [0, 0, 30, 20], [5, 5, 6.5, 7]
    assert (
        found.boxes.tolist() == [whole, small, [1, 2, 11, 8], whole, small]
        and found.boxes.dtype == np.float64
    )
    none = source.objects(np.empty(0, np.int64))
    assert none is not None and (none.boxes.shape, none.counts.shape) == ((0, 4), (0,))
    assert (source.most, source.object_classes, source.masks([0])) == (2, ("x", "y", "z"), None)
    assert repr(source) == f"{IMAGES!r} with 3 boxes of 3 classes"


@pytest.mark.parametrize(
    ("format", "box"),
    [
        ("xyxy", [3, 4, 10, 16]),
        ("yxyx", [4, 3, 16, 10]),
        ("xywh", [3, 4, 7, 12]),
        ("yxhw", [4, 3, 12, 7]),
        ("cxcywh", [6.5, 10, 7, 12]),
    ],
)
def test_formats(format: str, box: list[float]):
    source = Objects(IMAGES, [[box]] * 4, format=format)
    found = source.objects(ALL)
    assert (
        found is not None
        and found.boxes.tolist() == [[3, 4, 10, 16]] * 4
        and found.labels.tolist() == [0] * 4
    )


def test_all_else_is_the_source(tmp_path: Path):
    place = uploaded(folder(tmp_path / "a", {"x": 3, "y": 3}))
    inner = ImageFolder(place)
    source = Objects(inner, [[]] * 6)
    assert (
        isinstance(source, Fetching)
        and isinstance(source, Sharded)
        and isinstance(source, Annotated)
    )
    assert isinstance(source, HasObjects) and not isinstance(inner, HasObjects)
    assert (
        source.remote and source.fetch([3])[0].result() == inner.read([3])[0] == source.read([3])[0]
    )
    assert (source.classes, source.label(np.arange(6)).tolist()) == (("x", "y"), [0, 0, 0, 1, 1, 1])
    assert source.uri(2) == inner.uri(2) and source.most == 1
    assert source.bounds.tolist() == [0, 6] and source.sizes(np.arange(2)).tolist() == [0, 0]
    assert (source.weights(ALL), source.boxes(ALL), source.columns(ALL)) == (None, None, {})


def test_units_of_storage_are_the_source_s(tmp_path: Path):
    from helpers.shards import shard_folder

    inner = TarShards(shard_folder(tmp_path / "s", (3, 2)), columns=["cls"])
    source = Objects(inner, [[]] * 5)
    assert source.bounds.tolist() == [0, 3, 5] and source.shard(1) == inner.shard(1)
    assert source.sizes(np.arange(5)).tolist() == inner.sizes(np.arange(5)).tolist()
    assert (
        source.columns(np.arange(2))["cls"].tolist() == inner.columns(np.arange(2))["cls"].tolist()
    )


def test_masks_may_be_arrays_files_and_bytes(tmp_path: Path):
    mask = np.arange(600, dtype=np.uint8).reshape(20, 30)
    held = Objects(IMAGES, masks=[mask, png(mask), None, mask[::-1]])
    found = held.masks([1, 0, 2])
    assert found is not None and found[0] == png(mask) and found[1] is mask and found[2] is None
    assert (held.objects(ALL), held.most) == (None, 0) and repr(held).endswith("with masks")
    (tmp_path / "m.png").write_bytes(png(mask))
    (tmp_path / "empty.png").touch()
    files = [tmp_path / "m.png", tmp_path / "empty.png", str(tmp_path / "none.png"), None]
    there = pickle.loads(pickle.dumps(Objects(IMAGES, BOXES, masks=files))).masks([0, 1, 2, 3, 0])
    assert there[0] == there[4] == png(mask) and there[3] is None
    assert isinstance(there[1], Failure) and (there[1].id, there[1].reason, there[1].uri) == (
        1,
        "empty",
        "array[1]",
    )
    assert isinstance(there[2], Failure) and (there[2].id, there[2].reason) == (2, "not_found")
    place = uploaded(tmp_path)
    remote = Objects(
        IMAGES, masks=[f"{place}/m.png", f"{place}/none.png", f"{place}/m.png", None]
    ).masks([1, 0, 3])
    assert remote is not None and remote[1] == png(mask) and remote[2] is None
    assert isinstance(remote[0], Failure) and remote[0].reason == "not_found"


def test_fingerprints_tell_boxes_from_images():
    def made(
        boxes: Any = BOXES, labels: Any = LABELS, masks: Any = None, images: Any = IMAGES
    ) -> str:
        return Objects(images, boxes, labels, masks).fingerprint

    other = [[[1, 2, 11, 9]], *BOXES[1:]]
    moved = [[], [[1, 2, 11, 8]], *BOXES[2:]]
    mask = np.zeros((20, 30), np.uint8)
    prints = [
        made(),
        made(other),
        made(moved, [[], [1], [0, 2], []]),
        made(labels=[[2], [], [0, 2], []]),
        made(masks=[mask] * 4),
        made(masks=[mask, mask, mask, mask + np.uint8(1)]),
        made(masks=["a.png"] * 4),
        made(images=Arrays(np.zeros((4, 20, 30), np.uint8))),
        Objects(IMAGES, BOXES, LABELS, classes=("u", "v", "w")).fingerprint,
    ]
    assert len(set(prints)) == len(prints) and made() == prints[0] != IMAGES.fingerprint
    said = difference(prints[0], prints[1], 4, IMAGES.uri)
    assert said.startswith("of objects changed: content of samples in 0..") and "array[0]" in said


@pytest.mark.parametrize(
    ("box", "error"),
    [
        (
            [1, 2, np.nan, 8],
            r"box 1 of sample 2 \(array\[2\]\) must be finite numbers, got \[1.0, 2.0, nan, 8.0\]",
        ),
        ([1, 2, 3, np.inf], "must be finite"),
        ([0, 0, 1e39, 1], "must be finite"),  # beyond what a float holds
        (
            [900, 2, 905, 8],
            r"is outside of its image, \d+ wide and \d+ high: \[900.0, 2.0, 905.0, 8.0\] as xyxy",
        ),
        ([-9, -9, -1, 3], "is outside of its image"),
        (
            [9, 2, 8, 8],
            (
                r"got \[9.0, 2.0, 8.0, 8.0\] as xyxy: its right or bottom edge is before the"
                r" other; format"
            ),
        ),
    ],
)
def test_bad_boxes_are_refused(box: list[float], error: str):
    with pytest.raises(ConfigError, match=error):
        Objects(IMAGES, [[], [], [[0, 0, 1, 1], box], []])


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"boxes": BOXES[:3]}, "boxes must be one per sample, got 3 for 4 samples"),
        (
            {"boxes": [[], [[1, 2, 3]], [], []]},
            r"boxes of sample 1 \(array\[1\]\) must be .* got int64\[1, 3\]",
        ),
        (
            {"boxes": [[], [1, 2, 3, 4], [], []]},
            r"must be numbers of shape \(k, 4\), got int64\[4\]",
        ),
        ({"boxes": [[], [["a"] * 4], [], []]}, "boxes of sample 1"),
        ({"boxes": [[], [[1, 2, 3, 4], [1]], [], []]}, "boxes of sample 1"),
        (
            {"boxes": [[[1, 2, -1, 4]], [], [], []], "format": "xywh"},
            "its width or height is negative",
        ),
        (
            {"boxes": BOXES, "format": "cyxhw"},
            "format must be one of xyxy, yxyx, xywh, yxhw, cxcywh, cxcywhr, got 'cyxhw'",
        ),
        (
            {"boxes": BOXES, "labels": LABELS[:2]},
            "labels must be one array per sample, got 2 for 4",
        ),
        (
            {"boxes": BOXES, "labels": [[1], [], [0], []]},
            r"sample 2 \(array\[2\]\) has 2 boxes and 1 labels",
        ),
        (
            {"boxes": BOXES, "labels": [[1.5], [], [0, 1], []]},
            "labels of sample 0 .* must be integers",
        ),
        (
            {"boxes": BOXES, "labels": [[1], [], [0, -1], []]},
            "box 1 of sample 2 .* must have a label >= 0, got -1",
        ),
        (
            {"boxes": BOXES, "labels": LABELS, "classes": ("x", "y")},
            "has label 2, but there are 2 classes",
        ),
        ({"boxes": BOXES, "classes": "xy"}, "classes must be a list of names"),
        ({"boxes": BOXES, "most": 0}, "most must be an integer >= 1, got 0"),
        ({}, "needs boxes, keypoints or masks"),
        ({"labels": LABELS, "masks": [None] * 4}, "labels without them"),
        ({"most": 3, "masks": [None] * 4}, "most=3 without boxes"),
        ({"masks": [None] * 3}, "masks must be one per sample, got 3"),
        ({"masks": "masks"}, "masks must be a list, one per sample, got 'masks'"),
        (
            {"masks": [np.zeros((2, 2)), None, None, None]},
            r"mask of sample 0 \(array\[0\]\) must be uint8",
        ),
        ({"masks": [np.zeros((2, 2, 1), np.uint8)] * 4}, r"got uint8\[2, 2, 1\]"),
        (
            {"masks": [7] * 4},
            "must be a uint8 array, the bytes or the path of a PNG, or None, got int",
        ),
        ({"masks": ["a.png", b"x", None, None]}, "masks must be all paths, or none of them"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], error: str):
    with pytest.raises(ConfigError, match=error):
        Objects(IMAGES, **arguments)


def test_a_pickle_holds_arrays_not_boxes():
    many = Objects(Arrays(np.zeros((2000, 1, 1), np.uint8)), [[[0, 0, 1, 1]] * 8] * 2000)
    assert len(pickle.dumps(many)) < 2000 * (8 * (16 + 4) + 8 + 8) + 20_000


def test_a_mixture_says_what_its_sources_say(tmp_path: Path):
    pixels = Arrays(np.zeros((3, 20, 30, 3), np.uint8), [0, 1, 1], classes=("a", "b"))
    mask = np.zeros((20, 30), np.uint8)
    files = [str(tmp_path / "none.png")] * 3
    one = Objects(IMAGES, BOXES, LABELS, classes=("x", "y", "z"))
    two = Objects(
        pixels, [[[1, 1, 2, 2]] * 3] * 3, [[0, 1, 0]] * 3, masks=files, classes=("y", "w")
    )
    mixed = Mixture(
        {"one": one, "plain": pixels, "two": two, "masks": Objects(pixels, masks=[mask] * 3)}
    )
    assert isinstance(mixed, HasObjects) and (mixed.most, mixed.object_classes) == (
        3,
        ("w", "x", "y", "z"),
    )
    found = mixed.objects(np.array([8, 2, 5, 0, 10]))  # two, one, plain, one, masks
    assert found is not None and found.counts.tolist() == [3, 2, 0, 1, 0]
    assert found.labels.tolist() == [2, 0, 2, 1, 3, 2] and found.boxes[3].tolist() == [0, 0, 30, 20]
    failure, nothing, there, _ = mixed.masks([8, 0, 11, 4]) or []
    assert isinstance(failure, Failure) and (failure.id, nothing) == (8, None) and there is mask
    assert pickle.loads(pickle.dumps(mixed)).fingerprint == mixed.fingerprint
    plain = Mixture([IMAGES, IMAGES])
    assert (plain.most, plain.objects(ALL), plain.masks([1])) == (0, None, None)
    same = Mixture([one, one])
    assert same.object_classes == one.object_classes and same.masks([0]) is None
    with pytest.raises(
        ConfigError, match="source '1' has no names for labels of objects and others have"
    ):
        Mixture([one, Objects(IMAGES, BOXES, LABELS)])
