"""Boxes and masks that were made for another picture than the one that is decoded: turned by EXIF,
or shrunk since.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.products import in_turn
from helpers.rectangles import rectangles, seen
from PIL import Image, ImageOps

import fastfeed as ff
from fastfeed.decode.orientation import displayed_boxes
from fastfeed.errors import ConfigError

STORED = (48, 64)
SWAPPED = (64, 48)


def photo(path: Path, pixels: np.ndarray, orientation: int, format: str) -> Image.Image:
    """A file whose orientation is this; what it shows."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(pixels).save(
        path, format, exif=exif, **({"quality": 100} if format == "JPEG" else {})
    )
    return ImageOps.exif_transpose(Image.open(path))


def coco(root: Path, size: tuple[int, int], box: np.ndarray, name: str = "1.jpg") -> Path:
    left, top, right, bottom = box.tolist()
    content = {
        "images": [{"id": 7, "file_name": name, "height": size[0], "width": size[1]}],
        "annotations": [
            {
                "id": 1,
                "image_id": 7,
                "category_id": 3,
                "bbox": [left, top, right - left, bottom - top],
            }
        ],
        "categories": [{"id": 3, "name": "cat"}],
    }
    (root / "boxes.json").write_text(json.dumps(content))
    return root / "boxes.json"


def only(source: Any, size: tuple[int, int], **options: Any) -> tuple[Any, Any]:
    with ff.Feed(source, [ff.Resize(size)], batch=1, threads=1, on_bad="mask", **options) as feed:
        (batch,) = feed
        return batch, feed.stats().bad


@pytest.mark.parametrize(
    ("orientation", "format"), in_turn(range(1, 9), ["JPEG", "PNG", "WEBP", "TIFF"])
)
@pytest.mark.parametrize("decode", ["auto", "pillow"])
def test_stored_boxes_and_masks_follow_the_picture(
    tmp_path: Path, orientation: int, format: str, decode: Any
):
    images, boxes = rectangles(1, STORED, seed=3)
    shown = np.asarray(photo(tmp_path / f"1.{format.lower()}", images[0], orientation, format))
    mask = (images[0, ..., 0] > 0).astype(np.uint8)
    source = ff.ImageFolder(tmp_path, labeled=False)
    located = ff.Objects(source, [boxes], masks=[mask], sizes=[STORED], frame="stored")
    batch, bad = only(located, shown.shape[:2], decode=decode)
    assert not bad
    np.testing.assert_array_equal(seen(batch.images[0]), batch.objects.boxes[0, 0])
    np.testing.assert_array_equal(batch.masks[0], batch.images[0, ..., 0] > 127)


@pytest.mark.parametrize("frame", ["displayed", "stored"])
@pytest.mark.parametrize("orientation", [1, 6])
def test_a_size_that_contradicts_is_a_bad_sample(tmp_path: Path, orientation: int, frame: Any):
    images, _ = rectangles(1, STORED)
    photo(tmp_path / "1.jpg", images[0], orientation, "JPEG")
    box = np.array([4, 4, 20, 20])
    right = STORED if frame == "stored" or orientation == 1 else SWAPPED
    displayed = STORED if orientation == 1 else SWAPPED
    batch, bad = only(ff.Objects.coco(tmp_path, coco(tmp_path, right, box), frame=frame), displayed)
    assert not bad and batch.objects.counts.tolist() == [1]
    for wrong in ((right[1], right[0]), (2 * right[0], 2 * right[1]), (right[0] + 1, right[1])):
        batch, bad = only(
            ff.Objects.coco(tmp_path, coco(tmp_path, wrong, box), frame=frame), displayed
        )
        assert batch.weights.tolist() == [0] and batch.objects.counts.tolist() == [0]
        (failure,) = bad
        assert failure.reason == "corrupt"
        turned = wrong[::-1] if frame == "stored" and orientation == 6 else wrong
        assert f"its boxes are for {turned[0]}x{turned[1]} pixels" in failure.detail
        assert (
            f"the image has {displayed[0]}x{displayed[1]} pixels (height x width)" in failure.detail
        )
        assert ('frame="stored"' in failure.detail) == (frame == "displayed")


def test_a_file_that_names_no_sizes_is_taken_as_it_is(tmp_path: Path):
    images, boxes = rectangles(1, STORED)
    photo(tmp_path / "1.jpg", images[0], 1, "JPEG")
    path = coco(tmp_path, STORED, boxes[0])
    content = json.loads(path.read_text())
    content["images"] = [{"id": 7, "file_name": "1.jpg", "width": None}]
    path.write_text(json.dumps(content))
    batch, bad = only(ff.Objects.coco(tmp_path, path), STORED)
    assert not bad and batch.objects.counts.tolist() == [1]


def test_a_box_outside_of_the_picture_is_a_bad_sample(tmp_path: Path):
    """Also where no size is known beforehand, whatever the source."""
    images, _ = rectangles(1, STORED)
    photo(tmp_path / "1.jpg", images[0], 6, "JPEG")
    source = ff.ImageFolder(tmp_path, labeled=False)
    boxes = [[[50, 5, 60, 15], [0, 0, 9, 9]]]  # inside of 48x64, not of 64x48
    for located in (ff.Objects(source, boxes), ff.Mixture([ff.Objects(source, boxes)])):
        batch, bad = only(located, SWAPPED)
        assert batch.objects.counts.tolist() == [0]
        assert [f.reason for f in bad] == ["corrupt"] and "its box [50.0, 5.0, 60.0, 15.0]" in bad[
            0
        ].detail
    batch, bad = only(ff.Mixture([ff.Objects(source, boxes, frame="stored")]), SWAPPED)
    assert not bad and batch.objects.boxes[0].tolist() == [[33, 50, 43, 60], [39, 0, 48, 9]]


def test_masks_of_the_stored_frame_have_its_size(tmp_path: Path):
    images, _ = rectangles(1, STORED)
    photo(tmp_path / "1.jpg", images[0], 6, "JPEG")
    file = io.BytesIO()
    Image.fromarray(images[0, ..., 0]).save(file, "PNG")
    source = ff.ImageFolder(tmp_path, labeled=False)
    _, bad = only(ff.Objects(source, masks=[file.getvalue()]), SWAPPED)
    assert [f.reason for f in bad] == ["corrupt"]
    _, bad = only(ff.Objects(source, masks=[file.getvalue()], frame="stored"), SWAPPED)
    assert not bad


def test_displayed_boxes_are_where_pillow_puts_them():
    images, boxes = rectangles(1, STORED, seed=1)
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        file = io.BytesIO()
        Image.fromarray(images[0]).save(file, "PNG", exif=exif)
        shown = np.asarray(ImageOps.exif_transpose(Image.open(file)))
        moved = displayed_boxes(np.array([orientation]), boxes, np.array([shown.shape[:2]]))
        np.testing.assert_array_equal(seen(shown), moved[0])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"frame": "exif"}, 'frame must be "displayed" or "stored", got \'exif\''),
        (
            {"sizes": [(8, 0)]},
            r"sizes must be one \(height, width\) above 0 per sample, 1 of them, got",
        ),
        ({"sizes": [(8, 9), (8, 9)]}, "sizes must be one"),
        (
            {"sizes": [(8, 9)]},
            r"boxes of sample 0 are for 8x9 pixels \(height x width\), the image has 8x8",
        ),
    ],
)
def test_refuses(options: dict[str, Any], text: str):
    images = ff.Arrays(np.zeros((1, 8, 8, 3), np.uint8))
    with pytest.raises(ConfigError, match=text):
        ff.Objects(images, [[[0, 0, 4, 4]]], **options)


def test_a_mixture_has_one_frame():
    images = ff.Arrays(np.zeros((1, 8, 8, 3), np.uint8))
    one, other = (
        ff.Objects(images, [[[0, 0, 4, 4]]]),
        ff.Objects(images, [[[0, 0, 4, 4]]], frame="stored"),
    )
    assert one.fingerprint != other.fingerprint
    with pytest.raises(ConfigError, match="boxes and masks must be in one frame"):
        ff.Mixture([one, other])
