"""Keypoints follow the pixels, end to end: a bright spot is where its keypoint says."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from helpers.feeds import feed
from helpers.photos import folder
from helpers.rectangles import samples
from PIL import Image

import fastfeed as ff
from fastfeed.errors import ConfigError, SpecError

N = 12
SIZE = (60, 90)
COLORS = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255]], np.uint8)
LEFT, RIGHT, NOSE = range(3)


def spots(n: int = N) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images, a box around three spots of each, and their keypoints: (n, 1, 4), (n, 1, 3, 3)."""
    rng = np.random.default_rng(0)
    images = np.zeros((n, *SIZE, 3), np.uint8)
    points = np.full((n, 1, 3, 3), 2.0)
    for image, own in zip(images, points[:, 0], strict=True):
        for k, x in enumerate(rng.permutation([15, 40, 70])):
            y = int(rng.integers(8, 50))
            image[y - 6 : y + 7, x - 6 : x + 7] = COLORS[k]
            own[k, :2] = x + 0.5, y + 0.5
    low, high = points[..., :2].min(axis=2), points[..., :2].max(axis=2)
    return images, np.concatenate([low - 6.5, high + 6.5], axis=2), points


def pointed(n: int = N, boxes: bool = True, **more: Any) -> ff.Objects:
    images, around, points = spots(n)
    settings: dict[str, Any] = {"flip_pairs": [(LEFT, RIGHT)]} | more
    source = ff.Arrays(images)
    return ff.Objects(source, around if boxes else None, keypoints=points, **settings)


def colors_at(image: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The colors of the pixels that visible points are in."""
    x, y = np.floor(points[points[:, 2] > 0, :2]).astype(int).T
    return image[np.minimum(y, len(image) - 1), np.minimum(x, image.shape[1] - 1)]


@pytest.mark.parametrize(
    "ops",
    [
        [],
        [ff.RandomResizedCrop(56, scale=(0.4, 1))],
        [ff.Resize((48, 100), fit="pad"), ff.Pad(4)],
        [ff.Rotate((180, 180)), ff.ColorJitter(0.1)],
        [ff.Affine(20, (0.1, 0.1), (0.9, 1.2), 5)],
        [ff.Perspective(0.3, 1.0), ff.CenterCrop(50)],
    ],
    ids=repr,
)
def test_keypoints_are_where_the_pixels_are(ops: list[Any]) -> None:
    with feed(pointed(flip_pairs=None), ops, batch=N, shuffle="none") as made:
        assert made.fields["keypoints"].shape == (1, 3, 3)
        (batch,) = made
    points = batch["keypoints"]
    assert points.shape == (N, 1, 3, 3) and points.dtype == np.float32
    assert points is batch.objects.keypoints
    for image, own in zip(batch.images, points[:, 0], strict=True):
        seen = own[:, 2] > 0
        assert (np.abs(colors_at(image, own).astype(int) - COLORS[seen]) < 100).all()
    assert (points[..., 2] > 0).sum() > N * 3 / 3
    assert (points[..., 2] == 2).all() == (ops == [] or isinstance(ops[0], (ff.Resize, ff.Rotate)))


@pytest.mark.parametrize(
    ("direction", "swapped"), [("horizontal", True), ("vertical", True), ("both", False)]
)
def test_a_mirrored_image_shows_left_as_right(direction: Any, swapped: bool) -> None:
    """Flipped along both axes, an image is turned, not mirrored."""
    with feed(pointed(), [ff.RandomFlip(1.0, direction)], batch=N, shuffle="none") as made:
        (batch,) = made
    order = [RIGHT, LEFT, NOSE] if swapped else [LEFT, RIGHT, NOSE]
    for image, own in zip(batch.images, batch["keypoints"][:, 0], strict=True):
        np.testing.assert_array_equal(colors_at(image, own), COLORS[order])


def test_a_point_outside_is_marked_and_keeps_its_place() -> None:
    with feed(pointed(boxes=False), [ff.CenterCrop((60, 40))], batch=N, shuffle="none") as made:
        (batch,) = made
    want = spots()[2].copy()
    want[..., 0] -= 25
    want[..., 2] = np.where((want[..., 0] >= 0) & (want[..., 0] <= 40), 2, 0)
    np.testing.assert_array_equal(batch["keypoints"], want.astype(np.float32))
    assert batch["box_counts"].tolist() == [1] * N and (want[..., 2] == 0).sum() == 2 * N


def test_a_border_hides_what_was_cut_off_before() -> None:
    ops = [ff.CenterCrop((60, 40)), ff.Pad((0, 25))]
    with feed(pointed(boxes=False), ops, batch=N, shuffle="none") as made:
        (batch,) = made
    want = spots()[2]
    np.testing.assert_array_equal(batch["keypoints"][..., :2], want[..., :2].astype(np.float32))
    hidden = np.abs(want[..., 0] - 45) > 20
    np.testing.assert_array_equal(batch["keypoints"][..., 2], np.where(hidden, 0, 2))


def test_a_dropped_box_takes_its_keypoints_along() -> None:
    images, boxes, points = spots(4)
    corner = [[0, 0, 4, 4]]
    lists = [np.concatenate([corner, own]) for own in boxes]
    pairs = [np.concatenate([np.full((1, 3, 3), 1.0), own]) for own in points]
    source = ff.Objects(ff.Arrays(images), lists, [[5, 6]] * 4, keypoints=pairs, min_visible=0)
    with feed(source, [ff.CenterCrop((50, 80))], batch=4, shuffle="none") as made:
        (batch,) = made
    assert batch["box_labels"].tolist() == [[6, -1]] * 4
    np.testing.assert_array_equal(
        batch["keypoints"][:, 0, :, :2], (points[:, 0, :, :2] - 5).astype(np.float32)
    )
    assert not batch["keypoints"][:, 1].any()


@pytest.mark.parametrize(
    ("rules", "left"),
    [({}, 1), ({"min_visible": 0.3}, 0), ({"min_size": 21}, 0), ({"min_area": 601}, 0)],
    ids=str,
)
def test_rules_of_objects_decide_what_is_dropped(rules: dict[str, float], left: int) -> None:
    images = ff.Arrays(np.zeros((1, 60, 60, 3), np.uint8))
    source = ff.Objects(images, [[[0, 0, 60, 40]]], **rules)  # 30 x 20 of 60 x 40 are left
    with feed(source, [ff.Crop(0, 0, (20, 30))], batch=1) as made:
        (batch,) = made
    assert batch["box_counts"].tolist() == [left]


def test_mixed_images_have_the_keypoints_of_all() -> None:
    with feed(pointed(), [ff.RandomFlip(), ff.Mosaic()], batch=4) as made:
        batches = list(made)
    kinds = set()
    for batch in batches:
        assert batch["keypoints"].shape == (4, 4, 3, 3)
        for row, image in enumerate(batch.images):
            for own in batch["keypoints"][row, : batch["box_counts"][row]]:
                shown = colors_at(image, own)
                kinds.add(len(shown))
                assert (shown.max(axis=1) == 255).all() and (shown.sum(axis=1) == 255).all()
            assert not batch["keypoints"][row, batch["box_counts"][row] :].any()
    assert len(kinds) > 1, "some are cut off at tiles"
    with feed(pointed(), [ff.MixUp(1.0)], batch=4, shuffle="none") as made:
        batch = next(iter(made))
    points = spots()[2].astype(np.float32)
    assert batch["box_counts"].tolist() == [2] * 4
    for row, own in enumerate(batch["keypoints"]):
        np.testing.assert_array_equal(own, points[batch.ids[[row, row ^ 1]], 0])


def test_points_without_boxes_are_all_kept() -> None:
    with feed(pointed(boxes=False), [ff.Mosaic()], batch=4) as made:
        batch = next(iter(made))
    assert batch["box_counts"].tolist() == [4] * 4
    seen = batch["keypoints"][..., 2:] > 0
    low = np.where(seen, batch["keypoints"][..., :2], np.inf).min(axis=2)
    has_any = seen.any(axis=(2, 3))
    np.testing.assert_array_equal(batch["boxes"][has_any, :2], low[has_any])
    assert not batch["boxes"][~has_any].any()


def test_stored_keypoints_turn_with_their_image(tmp_path: Any) -> None:
    """Of each EXIF orientation, points in the file's own pixels are those of what is displayed."""
    image, _, points = (array[0] for array in spots(1))
    pixels = Image.fromarray(image)
    for turn in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = turn
        pixels.save(tmp_path / f"{turn}.png", exif=exif)
    files = ff.Files([tmp_path / f"{turn}.png" for turn in range(1, 9)])
    source = ff.Objects(files, keypoints=[points] * 8, flip_pairs=[(0, 1)], frame="stored")
    crop = [ff.Resize((120, 120), fit="pad", filter="box")]
    with feed(source, crop, batch=8, shuffle="none") as made:
        (batch,) = made
    for turn, (shown, own) in enumerate(zip(batch.images, batch["keypoints"][:, 0], strict=True)):
        order = [1, 0, 2] if turn + 1 in (2, 4, 5, 7) else [0, 1, 2]
        np.testing.assert_array_equal(colors_at(shown, own), COLORS[order])
        assert (own[:, 2] == 2).all()


def test_a_bad_sample_has_no_keypoints_and_a_helper_process_makes_the_same(tmp_path: Any) -> None:
    place = folder(tmp_path, {"a": 4})
    (place / "a" / "0002.jpg").write_bytes(b"none")
    source = ff.Objects(ff.ImageFolder(place), keypoints=[[[[3.0, 4]]]] * 4)
    with feed(source, [ff.Resize((20, 20))], batch=4, shuffle="none", on_bad="mask") as made:
        (batch,) = made
    assert batch["box_counts"].tolist() == [1, 1, 0, 1] and not batch["keypoints"][2].any()
    ops = [ff.RandomResizedCrop(24), ff.RandomFlip()]
    alone, helped = (
        samples(feed(pointed(), ops, batch=4, side_process=on)) for on in (False, True)
    )
    assert alone == helped


def taking(image: Any, numbers: Any, boxes: Any, box_labels: Any, keypoints: Any) -> Any:
    moved = keypoints + np.float32([1, 2, 0])
    return {"image": image, "boxes": boxes, "box_labels": box_labels, "keypoints": moved}


def test_functions_move_keypoints() -> None:
    fields = ("boxes", "box_labels", "keypoints")
    with feed(pointed(), [ff.Function(taking, fields=fields)], batch=N, shuffle="none") as made:
        (batch,) = made
    want = (spots()[2] + [1, 2, 0]).astype(np.float32)
    np.testing.assert_array_equal(batch["keypoints"], want)
    with pytest.raises(ConfigError, match="must have keypoints together with boxes and box_labels"):
        ff.Function(taking, fields=("keypoints",))

    def without(image: Any, numbers: Any, boxes: Any, box_labels: Any) -> Any:
        return {"image": image, "boxes": boxes, "box_labels": box_labels}

    with pytest.raises(SpecError, match="keypoints would stay as they are; add keypoints to its"):
        feed(pointed(), [ff.Function(without, fields=fields[:2])], batch=4)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            lambda points: points[:, :2],
            r"finite keypoints of shape \(1, 3, 3\), returned \(1, 2, 3\)",
        ),
        (lambda points: points * np.nan, "finite keypoints"),
        (lambda points: points + 5, "0, 1 or 2 as the visibility of keypoints"),
    ],
)
def test_functions_return_keypoints_that_make_sense(change: Any, text: str) -> None:
    def wrong(image: Any, numbers: Any, boxes: Any, box_labels: Any, keypoints: Any) -> Any:
        points = change(keypoints)
        return {"image": image, "boxes": boxes, "box_labels": box_labels, "keypoints": points}

    op = ff.Function(wrong, fields=("boxes", "box_labels", "keypoints"))
    with feed(pointed(), [op], batch=4) as made, pytest.raises(ff.errors.SampleError, match=text):
        next(iter(made))


@pytest.mark.parametrize(
    "flip",
    [
        ff.RandomFlip(),
        ff.Maybe(ff.RandomFlip(1.0)),
        ff.OneOf([ff.Rotate(5), ff.Sequential([ff.Rotate(5), ff.RandomFlip()])]),
    ],
    ids=repr,
)
def test_flips_are_refused_without_a_table(flip: Any) -> None:
    source = pointed(flip_pairs=None)
    with pytest.raises(SpecError, match=r"have no table of left and right; pass flip_pairs=\[\("):
        feed(source, [flip], batch=4)
    feed(source, [ff.RandomFlip(0.0)], batch=4).close()
    feed(pointed(flip_pairs=[]), [flip], batch=4).close()


def test_a_png_mask_boxes_and_keypoints_go_together() -> None:
    images, boxes, points = spots()
    masks = []
    for image in images:
        file = io.BytesIO()
        Image.fromarray((image.max(axis=2) > 0).astype(np.uint8)).save(file, "PNG")
        masks.append(file.getvalue())
    source = ff.Objects(
        ff.Arrays(images), boxes, masks=masks, keypoints=points, flip_pairs=[(0, 1)]
    )
    ops = [ff.RandomFlip(), ff.RandomResizedCrop(64, scale=(0.4, 1))]
    with feed(source, ops, batch=N) as made:
        (batch,) = made
    for mask, own, box in zip(batch.masks, batch["keypoints"][:, 0], batch["boxes"], strict=True):
        shown = own[own[:, 2] > 0]
        assert (colors_at(mask[..., None], own) == 1).all()
        assert (shown[:, :2] >= box[0, :2]).all() and (shown[:, :2] <= box[0, 2:]).all()
