"""MixUp, CutMix and Mosaic of pixels and labels, against their formulas written down pixel by
pixel.
"""

import threading

import numpy as np
import pytest
from helpers.products import in_turn

from fastfeed.backends.cpu.mixing import mix, mix_labels
from fastfeed.ops import CutMix, MixUp, Mosaic, RandomChoice
from fastfeed.ops.mix import AS_IS, BLEND, MOSAIC, PASTE, MixPlan, member_rows

OPS = [
    MixUp(1.0, p=0.7),
    CutMix(p=0.7),
    Mosaic(0.7, center=(0, 1)),
    RandomChoice([MixUp(), CutMix(), Mosaic(0.7)]),
]
SHAPES = [
    (9, 12, 3),
    (9, 12, 1),
    (1, 1, 3),
    (1, 1, 1),
    (4, 1, 1),
    (1, 4, 1),
    (1, 50, 3),
    (33, 2, 3),
]


class Elsewhere:
    """NumPy under another name: what is done on a device."""

    asarray, rint = staticmethod(np.asarray), staticmethod(np.rint)


def drawn(op, n, size, seed=0) -> MixPlan:
    return op.mix_plan(np.random.default_rng(seed).random((n, op.draws)), size)


def plain(images: list[np.ndarray], mixed: MixPlan, row: int) -> np.ndarray:
    """One HWC sample, as floats."""
    how, shares, box = mixed.how[row], mixed.shares[row], mixed.box[row]
    out = images[0].astype(np.float64)
    height, width = out.shape[:2]
    if how == BLEND:
        return shares[0] * images[0] + shares[1] * images[1].astype(np.float64)
    for y in range(height):
        for x in range(width):
            if how == PASTE and box[0] <= y < box[0] + box[2] and box[1] <= x < box[1] + box[3]:
                out[y, x] = images[1][y, x]
            if how == MOSAIC:  # a canvas of 2 x 2 images, of which one is seen
                big_y, big_x = y + height - box[0], x + width - box[1]
                out[y, x] = images[2 * (big_y // height) + big_x // width][
                    big_y % height, big_x % width
                ]
    return out


def made_of(n: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    rng = np.random.default_rng(1)
    if dtype == "uint8":
        return rng.integers(0, 256, (n, *shape), dtype=np.uint8)
    return rng.normal(size=(n, *shape)).astype(dtype)


@pytest.mark.parametrize("xp", [np, Elsewhere], ids=["here", "elsewhere"])
@pytest.mark.parametrize(
    ("dtype", "layout"), in_turn(["uint8", "float32", "float16"], ["HWC", "CHW"])
)
@pytest.mark.parametrize("op", OPS, ids=repr)
def test_pixels_are_those_of_the_formula(op, dtype, layout, xp):
    for shape in SHAPES:
        made, mixed = made_of(24, shape, dtype), drawn(op, 17, shape[:2])
        members = member_rows(np.arange(3, 20), op.group, 0)
        given = made if layout == "HWC" else np.ascontiguousarray(made.transpose(0, 3, 1, 2))
        out = np.full_like(given[:17], 77)
        mix(given, members, mixed, out, xp, layout)
        found = out if layout == "HWC" else out.transpose(0, 2, 3, 1)
        for row in range(17):
            wanted = plain([made[m] for m in members[row]], mixed, row)
            # bytes are rounded to the nearest: a half may go either way
            within = (
                {"uint8": 0.501, "float32": 1e-5, "float16": 5e-3}[dtype]
                if mixed.how[row] == BLEND
                else 0
            )
            np.testing.assert_allclose(found[row], wanted, rtol=0, atol=within)
        assert len(set(mixed.how)) >= 2 or shape is not SHAPES[0]


def test_rows_as_they_are_and_full_shares_are_copied_whole():
    made = made_of(4, (5, 6, 3), "uint8")
    how = np.array([AS_IS, BLEND, BLEND, PASTE])
    shares = np.array([[1, 0], [1, 0], [0, 1], [1, 0]], np.float64)
    out = np.empty_like(made)
    mix(
        made, member_rows(np.arange(4), 2, 0), MixPlan(how, shares, np.zeros((4, 4), np.int64)), out
    )
    np.testing.assert_array_equal(out, made[[0, 1, 3, 3]])


def test_what_was_made_stays_as_it_was_and_out_may_be_any_view():
    made = made_of(8, (6, 7, 3), "uint8")
    before = made.copy()
    for op in OPS:
        mixed, members = drawn(op, 8, (6, 7)), member_rows(np.arange(8), op.group, 0)
        out, wide = np.empty_like(made), np.full((8, 6, 9, 3), 5, np.uint8)
        mix(made, members, mixed, out)
        mix(made, members, mixed, wide[:, :, 1:8])
        np.testing.assert_array_equal(wide[:, :, 1:8], out)
        assert (wide[:, :, [0, 8]] == 5).all()
        if isinstance(op, MixUp):
            mix(made[:, ::-1], members, mixed, wide[:, ::-1, 1:8])  # upside down, both
            np.testing.assert_array_equal(wide[:, :, 1:8], out)
    np.testing.assert_array_equal(made, before)


@pytest.mark.parametrize("op", OPS, ids=repr)
def test_parts_of_a_batch_by_several_threads_are_the_whole(op):
    made = made_of(64, (16, 16, 3), "uint8")
    mixed, members = drawn(op, 64, (16, 16)), member_rows(np.arange(64), op.group, 0)
    whole, parts = np.empty_like(made), np.empty_like(made)
    mix(made, members, mixed, whole)

    def part(first: int) -> None:
        for rows in (slice(first, first + 5), slice(first + 5, first + 16)):
            mix(made, members[rows], mixed[rows], parts[rows])

    threads = [threading.Thread(target=part, args=(first,)) for first in range(0, 64, 16)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    np.testing.assert_array_equal(parts, whole)


@pytest.mark.parametrize("op", OPS, ids=repr)
def test_labels_are_shared_as_the_pixels_are(op):
    soft = np.random.default_rng(2).dirichlet(np.ones(7), 24).astype(np.float32)
    mixed, members = drawn(op, 17, (20, 30)), member_rows(np.arange(3, 20), op.group, 0)
    found = mix_labels(soft, members, mixed)
    assert found.dtype == np.float32 and found.shape == (17, 7)
    for row in range(17):
        wanted = mixed.shares[row] @ soft[members[row]].astype(np.float64)
        np.testing.assert_allclose(found[row], wanted, atol=1e-6)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-6)
    as_is = mixed.how == AS_IS
    np.testing.assert_array_equal(found[as_is], soft[members[as_is, 0]])


def test_a_gray_mosaic_has_the_shares_it_says():
    """Pixels of member j are all j: counting them gives the shares."""
    made = np.broadcast_to(np.arange(4, dtype=np.uint8)[:, None, None, None], (4, 20, 30, 1))
    mixed, out = drawn(Mosaic(), 4, (20, 30)), np.empty((4, 20, 30, 1), np.uint8)
    members = member_rows(np.arange(4), 4, 0)
    mix(made, members, mixed, out)
    for row in range(4):
        counts = np.bincount(out[row].ravel(), minlength=4) / 600
        np.testing.assert_allclose(counts[members[row]], mixed.shares[row])
