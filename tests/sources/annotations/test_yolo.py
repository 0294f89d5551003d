"""Normalized boxes and keypoints, and YOLO's folders of label files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.photos import folder
from PIL import Image

import fastfeed as ff
from fastfeed.errors import ConfigError, SourceError

SIZE = (40, 56)  # of the images of `folder`
LABELS = {
    "a/0000.txt": "1 0.5 0.5 0.25 0.5\n\n0 0.125 0.25 0.25 0.5\n",
    "a/0001.txt": "",
    "b/0001.txt": "0 0.5 0.5 1 1",
}
POSES = {
    "a/0000.txt": "0 0.5 0.5 0.25 0.5  0.25 0.25 2  0.5 0.75 1\n",
    "b/0000.txt": "0 0.5 0.5 0.25 0.5  0.25 0.25  -1 0.5\n",
}


def place(root: Path, labels: dict[str, str], **images: int) -> Path:
    folder(root / "images", images or {"a": 2, "b": 2})
    (root / "labels").mkdir()
    for name, text in labels.items():
        (root / "labels" / name).parent.mkdir(exist_ok=True)
        (root / "labels" / name).write_text(text)
    return root


def test_boxes_of_a_folder(tmp_path: Path) -> None:
    root = place(tmp_path, LABELS)
    source = ff.Objects.yolo(root / "images", root / "labels", classes=["cat", "dog"])
    assert [source.uri(i)[-10:] for i in (0, 3)] == ["a/0000.jpg", "b/0001.jpg"]
    found = source.objects(np.arange(4))
    assert found is not None and found.counts.tolist() == [2, 0, 0, 1]
    assert found.boxes[0].tolist() == [0.375, 0.25, 0.625, 0.75]
    assert source.object_classes == ("cat", "dog") and source.most == 2
    (note,) = source.notes[-1:]
    assert "1 of 4 images have no label file and so no objects, such as" in note
    assert note.endswith("b/0000.txt")
    with ff.Feed(source, [ff.Resize((20, 28))], batch=4, shuffle=False) as feed:
        (batch,) = feed
    height, width = 20, 28
    assert batch["boxes"][0].tolist() == [
        [0.375 * width, 0.25 * height, 0.625 * width, 0.75 * height],
        [0, 0, 0.25 * width, 0.5 * height],
    ]
    assert batch["box_labels"].tolist() == [[1, 0], [-1, -1], [-1, -1], [0, -1]]
    assert batch["boxes"][3, 0].tolist() == [0, 0, width, height]


def test_keypoints_of_a_folder(tmp_path: Path) -> None:
    root = place(tmp_path, POSES, a=1, b=1)
    source = ff.Objects.yolo(
        ff.ImageFolder(root / "images", min_per_class=1),
        root / "labels",
        keypoints=2,
        keypoint_names=["left_eye", "right_eye"],
        flip_pairs="names",
    )
    assert source.object_spec.flip_pairs == ((0, 1),) and source.classes == ("a", "b")
    with ff.Feed(source, [ff.RandomFlip(1.0), ff.Resize(SIZE)], batch=2, shuffle=False) as feed:
        (batch,) = feed
    assert batch["keypoints"][0, 0].tolist() == [[28, 30, 1], [42, 10, 2]]
    assert batch["keypoints"][1, 0, 1].tolist() == [42, 10, 2]
    assert batch["keypoints"][1, 0, 0, 2] == 0


@pytest.mark.parametrize("turn", range(1, 9))
def test_shares_of_a_stored_image_turn_with_it(turn: int, tmp_path: Path) -> None:
    """A file with EXIF has the boxes that its own pixels have, turned."""
    pixels = np.zeros((40, 60, 3), np.uint8)
    pixels[10:20, 30:60] = 255
    exif = Image.Exif()
    exif[0x0112] = turn
    Image.fromarray(pixels).save(tmp_path / "0.png", exif=exif)
    source = ff.Objects(
        ff.Files([tmp_path / "0.png"]),
        [[[0.5, 0.25, 1, 0.5]]],
        keypoints=[[[0.6, 0.3]]],
        flip_pairs=[],
        normalized=True,
        frame="stored",
    )
    with ff.Feed(source, [ff.Resize((120, 120))], batch=1) as feed:
        (batch,) = feed
    rows, columns = np.nonzero(batch.images[0, ..., 0] > 127)
    shown = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    np.testing.assert_allclose(batch["boxes"][0, 0], shown, atol=1)
    x, y, seen = batch["keypoints"][0, 0, 0].astype(int)
    assert seen == 2 and batch.images[0, y, x, 0] == 255


def test_normalized_boxes_are_checked_as_shares() -> None:
    images = ff.Arrays(np.zeros((1, 20, 30, 3), np.uint8))
    with pytest.raises(
        ConfigError, match=r"box 0 of sample 0 .* is outside of its image, 1 wide and"
    ):
        ff.Objects(images, [[[3, 4, 20, 10]]], normalized=True)
    source = ff.Objects(images, [[[0.5, 0.5, 0.2, 0.4]]], format="cxcywh", normalized=True)
    with ff.Feed(source, [], batch=1) as feed:
        (batch,) = feed
    np.testing.assert_allclose(batch["boxes"][0, 0], [12, 6, 18, 14], rtol=1e-6)
    pixels = ff.Objects(images, [[[0.5, 0.5, 0.2, 0.4]]], format="cxcywh")
    assert source.fingerprint != pixels.fingerprint
    with pytest.raises(ConfigError, match="must have the same keypoints, flip_pairs, normalized"):
        ff.Mixture([source, pixels])


@pytest.mark.parametrize(
    ("text", "keypoints", "error"),
    [
        (
            "0 0.5 0.5 1",
            0,
            r"line 1 of .*0000.txt must be a class number and cx, .* 5 numbers, got 4",
        ),
        (
            "0 0.5 0.5 1 1\n0 .5 .5 .1 .1 .1 .1",
            0,
            "line 2 .* lines of polygons need instance_masks=True",
        ),
        ("0 0.5 0.5 1 1", 2, "then 2 keypoints of 2 or 3 numbers: 9 or 11 numbers, got 5 values"),
        ("0.5 0.5 0.5 1 1", 0, "must be a class number"),
        ("inf 0.5 0.5 1 1", 0, "must be a class number"),
        ("cat 0.5 0.5 1 1", 0, "got 5 values, cat 0.5"),
        ("\xff\x00", 0, "got 1 values"),
    ],
)
def test_lines_that_are_no_objects_are_refused(
    text: str, keypoints: int, error: str, tmp_path: Path
) -> None:
    root = place(tmp_path, {"a/0000.txt": text}, a=1)
    with pytest.raises(SourceError, match=error):
        ff.Objects.yolo(root / "images", root / "labels", keypoints=keypoints)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("0 0.5 0.5 -1 1", "object 0 of .*a/0000.txt got .* its width or height is negative"),
        ("0 0.5 nan 1 1", "object 0 of .* must be finite numbers"),
        ("0 50 60 10 20", "is outside of its image, 1 wide and 1 high"),
        ("2 0.5 0.5 1 1", "has label 2, but there are 2 classes"),
        ("-1 0.5 0.5 1 1", "must have a label >= 0"),
    ],
)
def test_objects_that_make_no_sense_are_refused(text: str, error: str, tmp_path: Path) -> None:
    root = place(tmp_path, {"a/0000.txt": text}, a=1)
    with pytest.raises(ConfigError, match=error):
        ff.Objects.yolo(root / "images", root / "labels", classes=["cat", "dog"])


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"labels": "nowhere"}, "nowhere is not a local folder; pass the one that holds the label"),
        ({"labels": "s3://bucket/labels"}, "is not a local folder"),
        ({"keypoints": -1}, r"keypoints must be an integer in \[0, 4096\], got -1"),
        ({"keypoints": True}, "keypoints must be"),
        ({"draw": "polygons"}, "makes polygons of instance_masks; pass instance_masks=, too"),
        (
            {"draw": "classes", "instance_masks": True},
            "label files do not have the sizes of images",
        ),
        ({"keypoints": 2, "instance_masks": True}, r"keypoints must be an integer in \[0, 0\]"),
        ({"flip_pairs": [(0, 1)]}, "flip_pairs are of keypoints, got them without"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], error: str, tmp_path: Path) -> None:
    root = place(tmp_path, LABELS)
    with pytest.raises((ConfigError, SourceError), match=error):
        ff.Objects.yolo(root / "images", **({"labels": root / "labels"} | arguments))


def test_polygons_of_a_folder(tmp_path: Path) -> None:
    """Boxes are around them; masks are those of the polygons in pixels."""
    lines = {
        "a/0000.txt": "1 0.25 0.25 0.75 0.25 0.75 0.75 0.25 0.75\n0 0 0 0.5 0 0.5 1\n",
        "a/0001.txt": "",
    }
    root = place(tmp_path, lines, a=3)
    source = ff.Objects.yolo(root / "images", root / "labels", instance_masks=True)
    with ff.Feed(source, [ff.Resize((20, 28))], batch=3, shuffle=False) as feed:
        (batch,) = feed
    assert batch["box_counts"].tolist() == [2, 0, 0]
    assert batch["boxes"][0].tolist() == [[7, 5, 21, 15], [0, 0, 14, 20]]
    assert batch["box_labels"][0].tolist() == [1, 0]
    square, triangle = batch["instance_masks"][0]
    want = np.zeros((20, 28), np.uint8)
    want[5:15, 7:21] = 1
    np.testing.assert_array_equal(square, want)
    assert abs(int(triangle.sum()) - 140) <= 10 and not triangle[:, 14:].any()
    assert not batch["instance_masks"][1:].any()
    options: dict[str, Any] = {"instance_masks": True, "draw": "polygons"}
    points = ff.Objects.yolo(root / "images", root / "labels", **options)
    with ff.Feed(points, [ff.Resize((20, 28))], batch=3, shuffle=False) as feed:
        (batch,) = feed
    assert batch["polygon_rings"].tolist() == [[[0, 0, 4], [1, 4, 7]]] + [[[-1, 0, 0]] * 2] * 2
    corners = [[7, 5], [21, 5], [21, 15], [7, 15], [0, 0], [14, 0], [14, 20]]
    assert batch["polygons"][0, :7].tolist() == corners


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("0 0.5 0.5 1 1", "line 1 of .* x, y of a polygon's points, .* three points or more"),
        ("0 0 0 1 0 1 1\n0 0 0 1 x 1 1", "line 2 of .* could not convert string to float"),
        ("cat 0 0 1 0 1 1", "line 1 of .* invalid literal for int"),
        ("0 0 0 1 nan 1 1", "line 1 of .* finite"),
    ],
)
def test_lines_that_are_no_polygons_are_refused(text: str, error: str, tmp_path: Path) -> None:
    root = place(tmp_path, {"a/0000.txt": text}, a=1)
    with pytest.raises(SourceError, match=error):
        ff.Objects.yolo(root / "images", root / "labels", instance_masks=True)
