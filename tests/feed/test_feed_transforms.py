"""What was done to each image: the matrix from the original to the result, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.feeds import feed
from PIL import Image

import fastfeed as ff
from fastfeed.errors import ConfigError, SpecError

SIZES = [(60, 90), (75, 50), (64, 64), (91, 120)]
ON = {"to_original": True, "shuffle": "none", "batch": 4}


def files(place: Path) -> ff.Files:
    """Photos of several sizes, the last one turned by EXIF: as displayed (120, 91)."""
    exif = Image.Exif()
    exif[0x0112] = 6
    for i, size in enumerate(SIZES):
        picture = Image.fromarray(np.full((*size, 3), 40 * i, np.uint8))
        picture.save(place / f"{i}.jpg", exif=exif if i == 3 else Image.Exif())
    return ff.Files([place / f"{i}.jpg" for i in range(4)])


DISPLAYED = [*SIZES[:3], (120, 91)]
MOVES = [
    [ff.Resize((48, 48))],
    [ff.RandomResizedCrop(32), ff.RandomFlip()],
    [ff.Resize((64, 64), fit="pad"), ff.Rotate(30), ff.CenterCrop(50)],
    [ff.Resize((40, 40)), ff.Perspective(0.4, 1.0), ff.ColorJitter(0.3), ff.RandomFlip(1.0)],
]


@pytest.mark.parametrize("ops", MOVES, ids=repr)
def test_points_go_there_and_back(ops: list[Any], tmp_path: Path) -> None:
    corners = [[[0.0, 0, 1], [w, 0, 1], [w / 2, h / 3, 2]] for h, w in DISPLAYED]
    source = ff.Objects(files(tmp_path), keypoints=corners, flip_pairs=[])
    with feed(source, ops, **ON) as made:
        assert made.fields["transform"].shape == (3, 3)
        assert list(made.fields) == list(next(made.batches()).keys())
        (batch,) = made
    assert batch["transform"].shape == (4, 3, 3) and batch["transform"].dtype == np.float32
    assert batch["original_size"].tolist() == [list(size) for size in DISPLAYED]
    assert batch["original_size"].dtype == np.int64
    points = np.array(corners)
    moved = np.c_[points[..., :2].reshape(-1, 2), np.ones(12)].reshape(4, 3, 3)
    moved = moved @ batch["transform"].transpose(0, 2, 1).astype(np.float64)
    np.testing.assert_allclose(
        moved[..., :2] / moved[..., 2:], batch["keypoints"][:, 0, :, :2], atol=1e-3
    )
    again = ff.to_original(batch["keypoints"], batch["transform"])
    np.testing.assert_allclose(again[:, 0, :, :2], points[..., :2], atol=1e-3)
    np.testing.assert_array_equal(again[..., 2], batch["keypoints"][..., 2])


def test_boxes_go_back_to_the_photo(tmp_path: Path) -> None:
    boxes = [[[5.0, 6, 25, 36], [30, 20, 45, 40]]] * 4
    source = ff.Objects(files(tmp_path), boxes)
    ops = [ff.RandomFlip(), ff.Resize((64, 72), fit="pad")]
    with feed(source, ops, **ON) as made:
        (batch,) = made
    again = ff.to_original(batch["boxes"], batch["transform"])
    np.testing.assert_allclose(again, np.array(boxes), atol=1e-4)
    turned = ff.to_original([[0.0, 0, 4, 2]], [[[0, 1, 0], [-1, 0, 4], [0, 0, 1]]])
    np.testing.assert_allclose(turned, [[2, 0, 4, 4]])  # by a right angle


def test_crop_coordinates_of_sdxl(tmp_path: Path) -> None:
    """Where the crop begins, in the resized image: what such trainers condition on."""
    with feed(files(tmp_path), [ff.Resize(40), ff.RandomCrop(32)], **ON) as made:
        (batch,) = made
    transform = batch["transform"]
    scale = 40 / np.array(DISPLAYED).min(axis=1)
    np.testing.assert_allclose(transform[:, 0, 0], scale, rtol=0.02)  # sides are whole pixels
    top_left = -transform[:, [1, 0], 2]
    np.testing.assert_allclose(top_left, np.round(top_left), atol=1e-4)
    assert (top_left >= 0).all() and top_left.max() > 0


def test_fields_exist_only_on_request(tmp_path: Path) -> None:
    with feed(files(tmp_path), [ff.Resize((8, 8))], batch=4) as made:
        assert "transform" not in made.fields and "transform" not in next(iter(made))
    column = {"transform": np.arange(4)}

    class Named(ff.Arrays):
        def columns(self, ids: np.ndarray) -> dict[str, np.ndarray]:
            return {name: values[ids] for name, values in column.items()}

    images = Named(np.zeros((4, 8, 8, 3), np.uint8))
    with pytest.raises(ConfigError, match="has a column of this name; name the column otherwise"):
        feed(images, [], batch=2, to_original=True)
    with pytest.raises(ConfigError, match="to_original must be True or False, got 1"):
        feed(images, [], batch=2, to_original=1)


def grown(image: np.ndarray, _: np.ndarray) -> np.ndarray:
    return np.zeros((9, 9, 3), np.uint8)


@pytest.mark.parametrize(
    ("ops", "text"),
    [
        ([ff.MixUp()], "and MixUp makes one image of several; leave one of them out"),
        ([ff.FiveCrop(4)], "and there are several views of each image"),
        (
            [ff.Function(grown, returns=ff.Spec((9, 9, 3), "uint8", "HWC"))],
            r"and Function\(grown.* changes the size of images as it likes",
        ),
    ],
)
def test_ops_without_a_matrix_are_refused(ops: list[Any], text: str) -> None:
    images = ff.Arrays(np.zeros((4, 8, 8, 3), np.uint8), np.zeros(4, np.int64), classes=("a", "b"))
    with pytest.raises(SpecError, match=text):
        feed(images, ops, batch=2, to_original=True)


def test_a_bad_sample_stays_where_it_is(tmp_path: Path) -> None:
    source = files(tmp_path)
    (tmp_path / "1.jpg").write_bytes(b"none")
    with feed(source, [ff.Resize((8, 8))], **ON, on_bad="mask") as made:
        (batch,) = made
    np.testing.assert_array_equal(batch["transform"][1], np.eye(3))
    assert batch["original_size"][1].tolist() == [0, 0]


@pytest.mark.slow  # test_fields.py sends all fields
def test_a_helper_process_and_a_transform_say_the_same(tmp_path: Path) -> None:
    source, ops = files(tmp_path), [ff.RandomResizedCrop(16), ff.RandomFlip()]
    with feed(source, ops, **ON) as made:
        (batch,) = made
        transform = ff.Transform.of(made)
    with feed(source, ops, **ON, side_process=True) as made:
        (helped,) = made
    pixels = [np.asarray(Image.open(tmp_path / f"{i}.jpg")) for i in range(3)]
    with transform:
        one = transform([str(tmp_path / f"{i}.jpg") for i in range(4)], ids=batch.ids)
        other = transform(pixels, ids=batch.ids[:3])
        transform.save(tmp_path / "saved.json")
    with ff.Transform.load(tmp_path / "saved.json") as again:
        loaded = again([str(tmp_path / f"{i}.jpg") for i in range(4)], ids=batch.ids, epoch=0)
    for name in ("transform", "original_size"):
        np.testing.assert_array_equal(helped[name], batch[name])
        np.testing.assert_array_equal(one[name], batch[name])
        np.testing.assert_array_equal(other[name], batch[name][:3])
        assert loaded[name].shape == batch[name].shape


def test_shapes_that_do_not_fit_are_refused() -> None:
    eye = np.eye(3)[None]
    with pytest.raises(ConfigError, match=r"transform must be of shape \(n, 3, 3\), got \(3, 3\)"):
        ff.to_original([[1, 2]], eye[0])
    with pytest.raises(ConfigError, match=r"must be boxes \(1, ..., 4\) or points .* got \(2, 2\)"):
        ff.to_original([[1, 2], [3, 4]], eye)
    with pytest.raises(ConfigError, match=r"got \(1, 5\)"):
        ff.to_original([[1, 2, 3, 4, 5]], eye)
    for shape in ((0, 4), (0, 7, 4), (0, 2), (0, 7, 3), (0, 2, 7, 2)):
        assert ff.to_original(np.empty(shape), np.empty((0, 3, 3))).shape == shape
    assert ff.to_original(np.empty((1, 0, 3)), eye).shape == (1, 0, 3)


@pytest.mark.parametrize("wrong", (np.zeros((3, 3)), np.full((3, 3), np.nan), np.ones((3, 3))))
def test_a_matrix_without_an_inverse_is_named(wrong: np.ndarray) -> None:
    matrices = np.array([np.eye(3), wrong])
    for places in (np.zeros((2, 4)), np.zeros((2, 5, 3))):
        with pytest.raises(ConfigError, match=r"must have an inverse .* in row 1; pass the field"):
            ff.to_original(places, matrices)


def test_a_map_takes_them(tmp_path: Path) -> None:
    ops = [ff.Resize((8, 8)), ff.Map(lambda sizes: sizes[:, 0] / 8, "original_size", out="scale")]
    with feed(files(tmp_path), ops, **ON) as made:
        (batch,) = made
    assert batch["scale"].tolist() == [size[0] / 8 for size in DISPLAYED]
