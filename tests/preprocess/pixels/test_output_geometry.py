"""Geometry: laws over any size, and the numbers of each mode."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from fastfeed.preprocess.model.image_recipe import MODES
from fastfeed.preprocess.model.recipe import Scaling
from fastfeed.preprocess.model.record import REASONS
from fastfeed.preprocess.pixels.geometry import (
    OutputGeometry,
    nearest_bucket,
    output_error,
    output_geometry,
)

SIDES = st.integers(1, 5000) | st.integers(1, 30)
SHAPES = st.tuples(SIDES, SIDES)
ENLARGE = st.booleans()


@st.composite
def scalings(draw: st.DrawFn) -> Scaling:
    mode, enlarge = draw(st.sampled_from(sorted(MODES))), draw(ENLARGE)
    if mode == "buckets":
        return Scaling(
            None,
            mode,
            enlarge=enlarge,
            buckets=tuple(draw(st.lists(SHAPES, min_size=1, max_size=5))),
        )
    if mode == "none":
        return Scaling(None, mode, enlarge=enlarge)
    return Scaling(
        draw(SIDES) if mode in ("short", "long") else draw(SIDES | SHAPES), mode, enlarge=enlarge
    )


def wanted(scaling: Scaling, shape: tuple[int, int]) -> tuple[int, int]:
    if scaling.mode == "buckets":
        return scaling.buckets[nearest_bucket(scaling.buckets, *shape)]
    assert scaling.size is not None
    return (scaling.size, scaling.size) if isinstance(scaling.size, int) else scaling.size


@given(scalings(), SHAPES)
@example(Scaling(512), (1, 5000))
@example(Scaling((3, 7), "cover", enlarge=True), (1, 1))
def test_what_holds_for_every_mode(scaling: Scaling, shape: tuple[int, int]) -> None:
    found = output_geometry(scaling, *shape)
    top, left, height, width = found.box
    assert top >= 0 and left >= 0 and height > 0 and width > 0
    assert top + height <= shape[0] + 1e-9 and left + width <= shape[1] + 1e-9
    for axis in (0, 1):
        assert 1 <= found.size[axis] <= found.canvas[axis]
        assert 0 <= found.at[axis] <= found.canvas[axis] - found.size[axis]
        if not scaling.enlarge:
            assert found.size[axis] <= found.box[2 + axis] + 1e-9
    assert found.enlarged == any(
        n > length + 1e-9 for n, length in zip(found.size, (height, width), strict=True)
    )
    if scaling.fixed is not None:
        assert found.canvas == scaling.fixed
    assert found.padded == (found.canvas != found.size)
    assert not found.padded or scaling.mode == "contain"


@given(scalings(), SHAPES)
def test_the_middle_is_kept(scaling: Scaling, shape: tuple[int, int]) -> None:
    found = output_geometry(scaling, *shape)
    for axis in (0, 1):  # where pixels are copied, an odd one stays at the end
        before, after = found.box[axis], shape[axis] - found.box[axis] - found.box[2 + axis]
        assert 0 <= after - before + 1e-6 <= 1 + 1e-5
        assert found.canvas[axis] - found.size[axis] - 2 * found.at[axis] in (0, 1)


@given(scalings(), SHAPES)
def test_shapes_are_kept_to_within_a_pixel(scaling: Scaling, shape: tuple[int, int]) -> None:
    assume(scaling.mode != "exact")
    found = output_geometry(scaling, *shape)
    # by what each axis may have been scaled, had it been rounded by a pixel; a side that would
    # vanish has one
    least = [(n - 1) / found.box[2 + axis] for axis, n in enumerate(found.size)]
    most = [(n + 1) / found.box[2 + axis] for axis, n in enumerate(found.size)]
    assert max(least) <= min(most)


@given(st.integers(1, 5000), SHAPES, ENLARGE)
def test_short_and_long(size: int, shape: tuple[int, int], enlarge: bool) -> None:
    for mode, side in (("short", min), ("long", max)):
        found = output_geometry(Scaling(size, mode, enlarge=enlarge), *shape)
        assert found.box == (0, 0, *shape)
        if size > side(shape) and not enlarge:
            assert found.size == shape
        else:
            assert size in found.size
            axis = shape.index(side(shape))
            assert found.size[axis] == size
            assert found.size[1 - axis] == max(
                1, math.floor(shape[1 - axis] * size / shape[axis] + 0.5 + 1e-12)
            )


@given(SHAPES, SHAPES)
def test_cover_is_cut_to_the_shape_and_never_enlarged_unasked(
    size: tuple[int, int], shape: tuple[int, int]
) -> None:
    found = output_geometry(Scaling(size, "cover"), *shape)
    assert found.size == found.canvas
    if size[0] <= shape[0] and size[1] <= shape[1]:
        assert found == output_geometry(Scaling(size, "cover", enlarge=True), *shape)
        assert found.size == size
    else:
        assert found.box[2:] == found.size and found.box == tuple(map(int, found.box)), (
            "pixels are copied"
        )
        assert found.size[0] == shape[0] or found.size[1] == shape[1], (
            "the largest part of that shape"
        )
        off = min(
            abs(found.size[0] * size[1] / size[0] - found.size[1]),
            abs(found.size[1] * size[0] / size[1] - found.size[0]),
        )
        assert off <= 0.5 or 1 in found.size


@given(SHAPES, SHAPES)
def test_contain_never_enlarges_unasked(size: tuple[int, int], shape: tuple[int, int]) -> None:
    found = output_geometry(Scaling(size, "contain"), *shape)
    assert found.canvas == size and found.box == (0, 0, *shape)
    if shape[0] <= size[0] and shape[1] <= size[1]:
        assert found.size == shape
    else:
        assert found == output_geometry(Scaling(size, "contain", enlarge=True), *shape)
        assert found.size[0] == size[0] or found.size[1] == size[1]


KNOWN = [  # mode, size, enlarge, photograph -> box, size, canvas, at
    ("short", 512, False, (2000, 3000), (0, 0, 2000, 3000), (512, 768), (512, 768), (0, 0)),
    ("short", 512, False, (3000, 2001), (0, 0, 3000, 2001), (768, 512), (768, 512), (0, 0)),
    ("short", 100, False, (99, 300), (0, 0, 99, 300), (99, 300), (99, 300), (0, 0)),
    ("short", 100, True, (50, 75), (0, 0, 50, 75), (100, 150), (100, 150), (0, 0)),
    ("short", 5, False, (10, 13), (0, 0, 10, 13), (5, 7), (5, 7), (0, 0)),  # 6.5: up
    ("long", 512, False, (2000, 3000), (0, 0, 2000, 3000), (341, 512), (341, 512), (0, 0)),
    ("long", 10, False, (5000, 100), (0, 0, 5000, 100), (10, 1), (10, 1), (0, 0)),  # 0.2: a pixel
    ("cover", 256, False, (1000, 2000), (0, 500, 1000, 1000), (256, 256), (256, 256), (0, 0)),
    ("cover", (100, 300), False, (1000, 1500), (250, 0, 500, 1500), (100, 300), (100, 300), (0, 0)),
    ("cover", (200, 300), False, (100, 303), (0, 76, 100, 150), (100, 150), (100, 150), (0, 0)),
    ("cover", (200, 300), True, (100, 303), (0, 76.5, 100, 150), (200, 300), (200, 300), (0, 0)),
    ("contain", 100, False, (400, 200), (0, 0, 400, 200), (100, 50), (100, 100), (0, 25)),
    ("contain", (100, 101), False, (40, 60), (0, 0, 40, 60), (40, 60), (100, 101), (30, 20)),
    ("contain", 100, True, (40, 60), (0, 0, 40, 60), (67, 100), (100, 100), (16, 0)),
    ("exact", (10, 20), False, (400, 200), (0, 0, 400, 200), (10, 20), (10, 20), (0, 0)),
    ("exact", (100, 20), False, (40, 60), (0, 0, 40, 60), (40, 20), (40, 20), (0, 0)),
    ("exact", (100, 20), True, (40, 60), (0, 0, 40, 60), (100, 20), (100, 20), (0, 0)),
    ("none", None, True, (7, 9), (0, 0, 7, 9), (7, 9), (7, 9), (0, 0)),
]


@pytest.mark.parametrize(
    ("mode", "size", "enlarge", "shape", "box", "scaled", "canvas", "at"), KNOWN
)
def test_known(mode, size, enlarge, shape, box, scaled, canvas, at) -> None:  # type: ignore[no-untyped-def]
    found = output_geometry(Scaling(size, mode, enlarge=enlarge), *shape)
    assert found == OutputGeometry(box, scaled, canvas, at, found.enlarged)


BUCKETS = ((512, 512), (512, 768), (768, 512), (640, 640))


@pytest.mark.parametrize(
    ("shape", "bucket"),
    [
        ((1000, 1000), 0),  # two as near: the first
        ((1000, 1500), 1),
        ((3000, 1000), 2),
        ((100, 122), 0),  # below the square root of 1.5
        ((100, 123), 1),
    ],
)
def test_the_nearest_bucket(shape: tuple[int, int], bucket: int) -> None:
    assert nearest_bucket(BUCKETS, *shape) == bucket
    found = output_geometry(Scaling(None, "buckets", buckets=BUCKETS, enlarge=True), *shape)
    assert found == output_geometry(Scaling(BUCKETS[bucket], "cover", enlarge=True), *shape)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40))
def test_a_bucket_and_its_transpose_are_as_near_to_a_square(a: int, b: int, side: int) -> None:
    assert nearest_bucket(((a, b), (b, a)), side, side) == 0
    assert nearest_bucket(((b, a), (a, b)), side, side) == 0


def test_what_no_file_can_hold() -> None:
    wide = output_geometry(Scaling(512), 600, 77_000)
    assert wide.canvas == (512, 65_707)
    for image, most in (("jpeg", 65_500), ("webp", 16_383)):
        why = output_error(wide, image, 10**9)
        assert why is not None and why.reason in REASONS
        assert (
            why.detail == f"would become 65707x512 pixels; {image} allows at most {most} per side"
        )
        assert output_error(wide._replace(canvas=(most, most)), image, 10**10) is None
    assert output_error(wide, "png", 10**9) is None and output_error(wide, "raw", 10**9) is None
    assert output_error(wide, "png", 512 * 65_707) is None
    assert output_error(wide, "png", 512 * 65_707 - 1) == (
        "bomb",
        "would become 65707x512 pixels, the limit is 33641983",
    )
