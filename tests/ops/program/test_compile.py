"""Fusing: any run of geometry is one window, and gives what doing it step by step gives."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from helpers.photos import picture
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fastfeed.decode.base import Header, Request
from fastfeed.decode.pixels import PixelsEngine
from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops import (
    CenterCrop,
    Crop,
    Decode,
    FiveCrop,
    Normalize,
    Pad,
    RandomCrop,
    RandomFlip,
    RandomResizedCrop,
    Resize,
    ToFloat,
    ToLayout,
)
from fastfeed.ops.convert import Convert
from fastfeed.ops.program.compile import fuse
from fastfeed.sampling.rng import uniform
from fastfeed.spec import ENCODED, PIXELS, Spec

IMAGE = Spec((400, 520, 3), "uint8", "HWC")
MIRROR, UPSIDE_DOWN = RandomFlip(1.0), RandomFlip(1.0, "vertical")


def windows(program, sizes, seed=0):
    ids = np.arange(len(sizes))
    return program.windows(
        program.draw(lambda slot, n: uniform(seed, 0, ids, slot, n)),
        np.array(sizes, np.int64).reshape(-1, 2),
    )


def fused(program, image, seed=0):
    """The image after its one window."""
    out = np.empty((1, *program.pixels.shape), np.uint8)
    header = Header(*image.shape[:2], "array")
    cut = windows(program, [image.shape[:2]], seed)
    PixelsEngine().decode(Request([image], [header], cut, program.filter), out, threading.Event())
    return out[0]


def stepwise(program, image, seed=0):
    """The image after each op by itself, in float so that nothing is rounded in between."""
    planes = [Image.fromarray(image[:, :, c].astype(np.float32)) for c in range(3)]
    for step in program.window:
        size = np.array([planes[0].size[::-1]], np.int64)
        u = (
            uniform(seed, 0, np.arange(1), step.slot, step.op.draws)
            if step.op.draws
            else np.empty((1, 0))
        )
        move = {name: value[0].tolist() for name, value in step.op.params(u, size).items()}
        top, left, height, width = move["box"]
        box, to = (left, top, left + width, top + height), tuple(move["size"][::-1])
        planes = [plane.resize(to, Image.Resampling.BILINEAR, box=box) for plane in planes]
        for flip, method in zip(
            move["flip"],
            (Image.Transpose.FLIP_TOP_BOTTOM, Image.Transpose.FLIP_LEFT_RIGHT),
            strict=True,
        ):
            planes = [plane.transpose(method) for plane in planes] if flip else planes
    return np.stack([np.asarray(plane) for plane in planes], axis=2)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "ops",
    [
        [Resize(256), CenterCrop(224), RandomFlip()],
        [CenterCrop(300), Resize((150, 140))],
        [RandomFlip(), RandomResizedCrop(120), RandomFlip(direction="both")],
        [MIRROR, CenterCrop((200, 100)), UPSIDE_DOWN, RandomResizedCrop(64, scale=(0.4, 1.0))],
        [UPSIDE_DOWN, Resize((300, 333)), RandomFlip(), CenterCrop((211, 223))],
        [RandomResizedCrop(200), CenterCrop(100)],
    ],
    ids=str,
)
def test_one_window_is_what_the_steps_give(ops, seed):
    image, program = picture(3, (400, 520), detail=6), fuse(ops, IMAGE)
    got, want = fused(program, image, seed).astype(float), stepwise(program, image, seed)
    assert got.shape == want.shape
    inner = np.abs(got - want)[3:-3, 3:-3]
    assert inner.max() <= 2, "a window in the wrong place, or mirrored the wrong way"
    assert np.abs(got - want).mean() < 1


def test_wrong_windows_would_be_noticed():
    """The test above can fail: a pixel's shift is more than its tolerance."""
    image = picture(3, (400, 520), detail=6)
    program = fuse([CenterCrop(224)], IMAGE)
    whole = fused(program, image).astype(float)
    assert np.abs(whole[:, 1:] - whole[:, :-1]).max() > 2
    assert np.abs(whole[:, ::-1] - whole).max() > 100


@pytest.mark.parametrize(
    ("ops", "box", "flip", "size"),
    [
        ([Resize((100, 50))], (0, 0, 400, 520), (0, 0), (100, 50)),
        ([CenterCrop(200)], (100, 160, 200, 200), (0, 0), (200, 200)),
        ([CenterCrop((200, 100)), CenterCrop(50)], (175, 235, 50, 50), (0, 0), (50, 50)),
        ([Resize(200), CenterCrop(100)], (100, 160, 200, 200), (0, 0), (100, 100)),
        ([MIRROR, MIRROR], (0, 0, 400, 520), (0, 0), (400, 520)),
        ([MIRROR, UPSIDE_DOWN], (0, 0, 400, 520), (1, 1), (400, 520)),
        (
            [CenterCrop(201), MIRROR],
            (100, 160, 201, 201),
            (0, 1),
            (201, 201),
        ),  # 99.5 and 159.5 go to the even number
        (
            [MIRROR, CenterCrop(201)],
            (100, 159, 201, 201),
            (0, 1),
            (201, 201),
        ),  # 160 from the other side
        ([], (0, 0, 400, 520), (0, 0), (400, 520)),
    ],
    ids=str,
)
def test_window(ops, box, flip, size):
    got = windows(fuse(ops, IMAGE), [(400, 520)])
    assert got.boxes.tolist() == [list(map(float, box))]
    assert got.flips.tolist() == [list(map(bool, flip))]
    assert got.sizes.tolist() == [list(size)]


GEOMETRY = st.one_of(
    st.builds(Resize, st.integers(1, 300)),
    st.builds(Resize, st.tuples(st.integers(1, 300), st.integers(1, 300))),
    st.builds(CenterCrop, st.integers(1, 300)),
    st.builds(RandomResizedCrop, st.integers(1, 300)),
    st.builds(RandomFlip, st.floats(0, 1), st.sampled_from(["horizontal", "vertical", "both"])),
)


@given(
    st.lists(GEOMETRY, max_size=5),
    st.tuples(st.integers(1, 3000), st.integers(1, 3000)),
    st.integers(0, 99),
)
def test_any_list_stays_inside_the_image(ops, image, seed):
    """Of a size that only the file says: crops that do not fit are the largest of their shape."""
    try:
        program = fuse(ops, PIXELS, fixed=False)
    except SpecError as error:
        said = str(error)  # what an earlier op of the list leaves
        assert "does not fit into HWC uint8[" in said or "is larger than any image after" in said
        return
    got = windows(program, [image] * 3, seed)
    assert np.all(got.boxes[:, :2] >= -1e-6)
    assert np.all(got.boxes[:, 2:] > 0)
    assert np.all(got.boxes[:, :2] + got.boxes[:, 2:] <= np.array(image) + 1e-6)
    if program.pixels.fixed:
        assert got.sizes.tolist() == [list(program.pixels.size)] * 3


def test_rows_are_independent():
    program = fuse([RandomFlip(), RandomResizedCrop(64)], ENCODED)
    sizes = [(400, 520), (30, 10), (1000, 999)]
    together = windows(program, sizes)
    assert together[1:].boxes.tolist() == together.boxes[1:].tolist()
    for row, size in enumerate(sizes):
        u = [uniform(0, 0, np.array([row]), step.slot, step.op.draws) for step in program.window]
        alone = program.windows(u, np.array([size]))
        assert alone.boxes.tolist() == [together.boxes[row].tolist()]
        assert alone.flips.tolist() == [together.flips[row].tolist()]


def slots(ops):
    return {type(step.op).__name__: step.slot for step in fuse(ops, ENCODED).steps if step.op.draws}


def test_ops_that_draw_nothing_leave_all_numbers_as_they_were():
    plain = [RandomResizedCrop(64), RandomFlip()]
    more = [
        Decode(),
        Resize(300),
        RandomResizedCrop(64),
        CenterCrop(60),
        RandomFlip(),
        ToFloat(),
        ToLayout("CHW"),
    ]
    assert slots(plain) == slots(more) == {"RandomResizedCrop": 0, "RandomFlip": 1}


def test_each_draw_has_its_own_slot():
    program = fuse([RandomFlip(), RandomFlip(), RandomResizedCrop(8)], ENCODED)
    assert [step.slot for step in program.window] == [0, 1, 2]


def test_program_of_the_usual_list():
    ops = [
        RandomResizedCrop(224, filter="bicubic"),
        RandomFlip(),
        Normalize.imagenet(),
        ToLayout("CHW"),
    ]
    program = fuse(ops, ENCODED)
    assert [step.op for step in program.steps] == [Decode(), *ops]
    assert [step.implied for step in program.steps] == [True, False, False, False, False]
    assert [step.spec for step in program.steps] == [
        PIXELS,
        Spec((224, 224, 3), "uint8", "HWC"),
        Spec((224, 224, 3), "uint8", "HWC"),
        Spec((224, 224, 3), "float32", "HWC"),
        Spec((3, 224, 224), "float32", "CHW"),
    ]
    assert [step.op for step in program.window] == ops[:2]
    assert program.convert == Convert.of(ops[2:], 3)
    assert program.filter == "bicubic"
    assert (program.decode, program.input_spec) == (Decode(), ENCODED)
    assert program.pixels == Spec((224, 224, 3), "uint8", "HWC")
    assert program.spec == Spec((3, 224, 224), "float32", "CHW")


def test_decode_is_put_in_for_files_only():
    assert fuse([], IMAGE).decode is None
    assert fuse([Decode(matte=(0, 0, 0)), Resize((8, 8))], ENCODED).decode == Decode(
        matte=(0, 0, 0)
    )
    assert not any(step.implied for step in fuse([Decode(), Resize((8, 8))], ENCODED).steps)


def test_conversion_may_come_before_geometry():
    program = fuse([ToFloat(), RandomResizedCrop(8), RandomFlip()], ENCODED)
    assert (str(program.pixels), str(program.spec)) == (
        "HWC uint8[8, 8, 3]",
        "HWC float32[8, 8, 3]",
    )


FIXED = "add Resize((height, width)), CenterCrop(size) or RandomResizedCrop(size)"


@pytest.mark.parametrize(
    ("ops", "given", "text"),
    [
        (
            [Resize((8, 8)), Decode()],
            ENCODED,
            "Resize needs HWC pixels, got encoded bytes; put Decode() before it",
        ),
        (
            [Decode(), Decode()],
            ENCODED,
            (
                "Decode needs encoded bytes, got HWC uint8[?, ?, 3]; put it first, once, and leave"
                " it out for arrays"
            ),
        ),
        (
            [Decode()],
            IMAGE,
            (
                "Decode needs encoded bytes, got HWC uint8[400, 520, 3]; put it first, once, and"
                " leave it out for arrays"
            ),
        ),
        (
            [CenterCrop((401, 8))],
            IMAGE,
            (
                "CenterCrop of 401x8 does not fit into HWC uint8[400, 520, 3]; put Resize before"
                " it, or write pad_if_needed=True for a border"
            ),
        ),
        (
            [ToLayout("CHW"), Resize((8, 8))],
            IMAGE,
            "Resize needs HWC pixels, got CHW uint8[3, 400, 520]; put ToLayout after it",
        ),
        (
            [],
            ENCODED,
            (
                "a batch needs samples of one size, got HWC uint8[?, ?, 3] at the end of the list;"
                f" {FIXED}"
            ),
        ),
        (
            [Resize(256), RandomFlip(), ToFloat()],
            ENCODED,
            (
                "a batch needs samples of one size, got HWC float32[?, ?, 3] at the end of the"
                f" list; {FIXED}"
            ),
        ),
        (
            [Normalize((0.5,), (0.5,)), Resize((8, 8))],
            ENCODED,
            (
                "Normalize has 1 channels, got HWC uint8[?, ?, 3]; give one mean and one std per"
                " channel"
            ),
        ),
    ],
    ids=str,
)
def test_refuses_what_cannot_follow(ops, given, text):
    with pytest.raises(SpecError) as error:
        fuse(ops, given)
    assert str(error.value) == text


@pytest.mark.parametrize(
    ("ops", "text"),
    [
        (
            [Resize],
            "ops[0] must be an op such as Resize(224), got the class Resize; write Resize(...)",
        ),
        ([Resize((8, 8)), "flip"], "ops[1] must be an op such as Resize(224), got 'flip'"),
        ([Resize((8, 8)), 7], "ops[1] must be an op such as Resize(224), got 7"),
        (
            Resize((8, 8)),
            (
                "ops must be a list of ops such as [Resize(224)], got Resize(size=(8, 8),"
                " filter='bilinear')"
            ),
        ),
        (None, "ops must be a list of ops such as [Resize(224)], got None"),
    ],
    ids=str,
)
def test_refuses_what_is_no_op(ops, text):
    with pytest.raises(ConfigError) as error:
        fuse(ops, ENCODED)
    assert str(error.value).startswith(text)


@pytest.mark.parametrize("resize", [Resize(30), Resize(30, fit="long")], ids=["short", "long"])
@pytest.mark.parametrize(
    "cut", [CenterCrop(32), RandomCrop((31, 40)), Crop(0, 0, 31), FiveCrop(40)], ids=repr
)
def test_no_image_is_large_enough(resize, cut):
    side = resize.fit or "short"
    for between in ([], [RandomFlip()]):
        with pytest.raises(SpecError) as error:
            fuse([resize, *between, cut], ENCODED)
        said = f"{cut!r} is larger than any image after {resize!r}, whose {side} side is 30"
        assert said in str(error.value)
        assert "write a larger Resize or a smaller size" in str(error.value)


@pytest.mark.parametrize(
    "ops",
    [
        [Resize(30), CenterCrop((30, 60))],
        [Resize(30), RandomCrop(32, padding=1)],
        [Resize(30), Pad(1), CenterCrop(32)],
        [Resize(30, fit="long"), CenterCrop(30)],
        [CenterCrop(32)],
    ],
    ids=repr,
)
def test_some_images_may_be_large_enough(ops):
    assert fuse(ops, ENCODED).spec.fixed


@pytest.mark.parametrize("op", [RandomFlip, ToFloat])
def test_each_op_of_a_long_list_is_looked_at_some_times(op, monkeypatch):
    looks = 0

    def kind(_):
        nonlocal looks
        looks += 1
        return op.kind

    counted = type("Counted", (op,), {"kind": property(kind), "__slots__": ()})
    counts = []
    for count in (50, 100):
        looks = 0
        fuse([Resize((8, 8)), *[counted() for _ in range(count)]], ENCODED)
        counts.append(looks)
    assert counts[1] < 2.2 * counts[0]
