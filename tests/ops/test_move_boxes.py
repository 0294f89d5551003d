"""Points, boxes and masks go where the pixels go: a bright rectangle is found again where its box
says it is.
"""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from helpers.opencv_ops import reference
from helpers.opencv_ops.masks import mask_after as defined_mask
from hypothesis import given, settings
from hypothesis import strategies as st

from fastfeed.backends.cpu.masks import mask_after
from fastfeed.decode.base import Header
from fastfeed.decode.pixels import PixelsEngine
from fastfeed.ops import (
    Affine,
    CenterCrop,
    ColorJitter,
    Crop,
    Maybe,
    OneOf,
    Pad,
    Perspective,
    RandomCrop,
    RandomFlip,
    RandomResizedCrop,
    Resize,
    Rotate,
    Sequential,
)
from fastfeed.ops.move_boxes import boxes_after, stages
from fastfeed.ops.program.compile import fuse
from fastfeed.sampling.rng import uniform
from fastfeed.spec import PIXELS

MOVES = [
    Resize((50, 90)),
    Resize((70, 70), fit="pad", fill=(0, 40, 0)),
    CenterCrop((70, 60)),
    CenterCrop((100, 90)),
    Crop(20, 10, (60, 70)),
    RandomCrop((90, 80), padding=(10, 30)),
    RandomCrop(64, (40, 0, 8, 60), "edge"),
    Pad((5, 0, 20, 31)),
    RandomFlip(0.5, "both"),
    RandomResizedCrop((64, 48), scale=(0.3, 0.9)),
    Rotate(40),
    Rotate((90, 90), "nearest"),
    Rotate((20, 70), border="reflect", expand=True),
    Rotate(30, center=(10, 30), border="edge"),
    Affine(20, (0.1, 0.1), (0.6, 1.4), (-10, 10, -10, 10)),
    Perspective(0.5, 1.0),
    Maybe(RandomFlip(1.0)),
    OneOf([Rotate(20), Sequential([RandomFlip(0.5, "both"), Affine(5)]), Perspective(0.4)]),
]
ENDS = Resize((80, 88))  # one size, for what follows and for the batch
N = 6


def scene(n: int, seed: int = 0) -> tuple[list[np.ndarray], np.ndarray, list[np.ndarray]]:
    """Dark images of odd sizes, each with one bright rectangle; its box (left, top, right, bottom);
    masks.
    """
    rng = np.random.default_rng(seed)
    images, boxes, masks = [], [], []
    for _ in range(n):
        height, width = rng.integers(81, 131, 2)
        top, left = rng.integers(0, height - 30), rng.integers(0, width - 30)
        box = (
            left,
            top,
            left + rng.integers(16, width - left + 1),
            top + rng.integers(16, height - top + 1),
        )
        image, mask = np.full((height, width, 3), 40, np.uint8), np.zeros((height, width), np.uint8)
        image[box[1] : box[3], box[0] : box[2]] = (240, 40, 40)
        mask[box[1] : box[3], box[0] : box[2]] = 7
        images.append(image)
        boxes.append(box)
        masks.append(mask)
    return images, np.array(boxes, np.float64), masks


def run(ops, images, seed=0):
    """Pixels as the cpu backend makes them, and the stages."""
    program = fuse(ops, PIXELS)
    ids, sizes = np.arange(len(images)), np.array([i.shape[:2] for i in images])
    work = program.work(program.draw(lambda slot, k: uniform(seed, 0, ids, slot, k)), sizes)
    out = np.empty((len(images), *program.spec.shape), np.uint8)
    headers = [Header(*i.shape[:2], "array") for i in images]

    class Never:
        def is_set(self) -> bool:
            return False

    done = reference.compile(program, PixelsEngine()).render(images, headers, work, out, Never())
    assert done == [None] * len(images)
    return out, stages(program, work)


def bounds_of(bright: np.ndarray) -> np.ndarray | None:
    """left, top, right, bottom of all such pixels."""
    y, x = np.nonzero(bright)
    return np.array([x.min(), y.min(), x.max() + 1, y.max() + 1]) if len(x) else None


def blur(path) -> int:
    """How far off an edge may lie: about a pixel of each move's result, as later moves enlarge
    it.
    """
    far, grown = 1.0, 1.0
    for stage in reversed(path):
        far += grown
        grown *= max(1.0, np.linalg.norm(stage.forward[:, :2, :2], 2, axis=(1, 2)).max())
    return int(np.ceil(far))


def check(ops, seed):
    images, boxes, masks = scene(N, seed)
    out, path = run(ops, images, seed)
    slack = blur(path)
    after, kept = boxes_after(path, boxes, np.arange(N), min_visible=0.0)
    assert (np.diff(kept) > 0).all()
    for row, image in enumerate(out):
        mask = mask_after(path, row, masks[row])
        np.testing.assert_array_equal(mask, defined_mask(path, row, masks[row]))
        bright = image[:, :, 0] > 140
        bounds = bounds_of(bright & (mask != 255))  # a border may repeat it
        assert mask.shape == image.shape[:2] and set(np.unique(mask)) <= {0, 7, 255}
        around = np.ones((2 * slack + 1, 2 * slack + 1), np.uint8)
        outline = cv2.dilate(mask, around) != cv2.erode(mask, around)
        known = (mask != 255) & ~outline
        known[:slack] = known[-slack:] = known[:, :slack] = known[:, -slack:] = (
            False  # an outline may lie just outside
        )
        assert (bright[known] == (mask[known] == 7)).all(), f"{ops}, row {row}"
        if row not in kept:
            assert bounds is None or (bounds[2:] - bounds[:2]).min() <= 1 + slack
        elif bounds is not None:
            box = after[list(kept).index(row)]
            assert (bounds[:2] >= box[:2] - slack).all() and (
                bounds[2:] <= box[2:] + slack
            ).all(), f"{ops}, row {row}"
            yield box, bounds


@pytest.mark.parametrize("op", MOVES, ids=repr)
def test_every_move(op):
    """What bounds the rectangle is its box, but where a corner of it was cut off."""
    moves = (Rotate, Affine, Perspective, OneOf)
    ops = [Resize((90, 100)), op] if isinstance(op, (*moves, Maybe)) else [op, ENDS]
    close = []
    for seed in range(4):
        for box, bounds in check(ops, seed):
            close.append(np.abs(box - bounds).max())
    assert len(close) > 8
    if not isinstance(op, moves):
        assert max(close) <= 2
    assert np.median(close) <= 1


LISTS = st.lists(st.sampled_from(MOVES), min_size=1, max_size=4)


@settings(max_examples=40, deadline=None)
@given(LISTS, st.integers(0, 1000))
def test_lists_of_moves(ops, seed):
    """Crops of a given size need an image that is larger, so each stands behind a resize."""
    listed = []
    for op in ops:
        listed += [Resize((100, 90)), op]
    seen = list(check([*listed, ENDS], seed))
    assert len(seen) <= N


def test_turns_without_cuts_do_not_enlarge_boxes():
    """Four turns of 45 degrees about the same middle: half a turn, of a box that stays in sight."""
    program = fuse([Resize((100, 100)), *[Rotate((45, 45))] * 4], PIXELS)
    work = program.work(program.draw(lambda slot, k: np.zeros((1, k))), np.array([[100, 100]]))
    box = np.array([[40.0, 45.0, 65.0, 55.0]])
    after, kept = boxes_after(stages(program, work), box, np.array([0]))
    assert kept.tolist() == [0]
    np.testing.assert_allclose(after, [[35, 45, 60, 55]], atol=1e-9)


def cut(top, left, size, boxes, **rules):
    program = fuse([Crop(top, left, size), ColorJitter(0.5)], PIXELS.with_size(100, 100))
    work = program.work(program.draw(lambda slot, k: np.zeros((2, k))), np.full((2, 2), 100))
    boxes = np.array(boxes, np.float64)
    after, kept = boxes_after(stages(program, work), boxes, np.arange(len(boxes)) % 2, **rules)
    return after.tolist(), kept.tolist()


@pytest.mark.parametrize(
    ("box", "rules", "left"),
    [
        ((10, 10, 30, 30), {}, [0, 0, 10, 10]),  # a quarter of it is seen
        ((10, 10, 30, 30), {"min_visible": 0.25}, [0, 0, 10, 10]),
        ((10, 10, 30, 30), {"min_visible": 0.26}, None),
        ((0, 0, 26, 26), {}, None),  # 36 of 676
        ((0, 0, 26, 26), {"min_visible": 0.05}, [0, 0, 6, 6]),
        ((0, 20.5, 21, 70), {"min_visible": 0}, [0, 0.5, 1, 50]),
        ((0, 20.5, 20.9, 70), {"min_visible": 0}, None),  # 0.9 pixels wide
        ((0, 20.5, 20.9, 70), {"min_visible": 0, "min_size": 0.5}, [0, 0.5, 0.9, 50]),
        ((0, 0, 20, 100), {"min_visible": 0, "min_size": 0}, None),  # nothing is left
        ((30, 30, 30, 40), {"min_visible": 0, "min_size": 0}, None),  # it never had an area
        ((30, 25, 33, 29), {"min_size": 3}, [10, 5, 13, 9]),
        ((30, 25, 33, 29), {"min_size": 3.5}, None),
    ],
    ids=str,
)
def test_boxes_are_cut_off_and_small_rests_dropped(box, rules, left):
    after, kept = cut(20, 20, 50, [box], **rules)
    assert (kept, after) == (([], []) if left is None else ([0], [pytest.approx(left)]))


def test_several_boxes_of_several_images_keep_their_order():
    after, kept = cut(
        20, 20, 50, [(20, 20, 30, 30), (0, 0, 5, 5), (60, 60, 80, 80), (21, 22, 90, 99)]
    )
    assert kept == [0, 2, 3]
    assert after == [[0, 0, 10, 10], [40, 40, 50, 50], [1, 2, 50, 50]]
    assert cut(20, 20, 50, np.empty((0, 4))) == ([], [])


def test_cuts_add_up():
    """Half, then half of that, is a quarter, though each cut alone keeps half of the box."""
    program = fuse(
        [Crop(0, 50, (100, 50)), ColorJitter(0.1), Crop(50, 0, (50, 50))],
        PIXELS.with_size(100, 100),
    )
    work = program.work(program.draw(lambda slot, k: np.zeros((1, k))), np.array([[100, 100]]))
    path, whole = stages(program, work), np.array([[0.0, 0, 100, 100]])
    assert boxes_after(path, whole, np.array([0]), min_visible=0.25)[1].tolist() == [0]
    assert boxes_after(path, whole, np.array([0]), min_visible=0.26)[1].tolist() == []


def test_what_an_earlier_crop_cut_away_does_not_come_back():
    program = fuse([Crop(0, 0, 50), Pad((0, 0, 0, 50))], PIXELS.with_size(100, 100))
    work = program.work(program.draw(lambda slot, k: np.zeros((1, k))), np.array([[100, 100]]))
    path = stages(program, work)
    after, kept = boxes_after(
        path, np.array([[40.0, 10, 80, 20], [60, 10, 80, 20]]), np.zeros(2, int)
    )
    assert (after.tolist(), kept.tolist()) == ([[40, 10, 50, 20]], [0])
    mask = mask_after(path, 0, np.full((100, 100), 3, np.uint8), ignore=9)
    assert (mask[:, :50] == 3).all() and (mask[:, 50:] == 9).all()


def test_a_border_over_what_was_cut_off_is_not_known():
    """All stays where it was, so nothing moves; but the border is none of the image."""
    program = fuse([CenterCrop(60), Pad(20)], PIXELS.with_size(100, 100))
    work = program.work(program.draw(lambda slot, k: np.zeros((1, k))), np.array([[100, 100]]))
    mask = mask_after(stages(program, work), 0, np.full((100, 100), 3, np.uint8), ignore=9)
    assert (mask[20:80, 20:80] == 3).all() and (mask == 9).sum() == 100 * 100 - 60 * 60


def test_a_row_of_stages_is_that_sample_alone():
    images, boxes, _ = scene(N, 5)
    _, path = run([Resize((90, 100)), Rotate(20), RandomCrop(80)], images, 5)
    after, kept = boxes_after(path, boxes, np.arange(N))
    alone = [
        boxes_after([s[i : i + 1] for s in path], boxes[i : i + 1], np.zeros(1, int))[0]
        for i in range(N)
    ]
    assert len(kept) > 3
    np.testing.assert_array_equal(np.concatenate(alone), after)
