"""Laws of every op. A new op without examples fails by name."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest
from helpers.op_examples import ALL, CHANGES, EXAMPLES, MEANING, SIMPLE, listed, one_of_each
from helpers.opencv_ops import kernels
from helpers.photos import folder, picture

import fastfeed
from fastfeed import ops as every
from fastfeed.errors import SpecError
from fastfeed.feed.feed import Feed
from fastfeed.feed.session import FeedSession
from fastfeed.ops import OPS, Decode, RandomFlip, RandomResizedCrop, Resize
from fastfeed.ops.program.compile import fuse
from fastfeed.ops.program.layers import choose, layers
from fastfeed.sampling.rng import uniform
from fastfeed.sources import Arrays, ImageFolder
from fastfeed.spec import ENCODED, PIXELS, Spec

IMAGES = np.stack([picture(i) for i in range(8)])
SOURCE = Arrays(IMAGES, np.arange(8) % 3, classes=["a", "b", "c"])
GEOMETRY = [op for op in ALL if op.kind == "geometry"]
FIXED = Spec((24, 32, 3), "uint8", "HWC")


def draw(op, n):
    return uniform(1, 2, np.arange(n), 3, op.draws)


def same(one, other) -> bool:
    """Arrays, and dicts, tuples and Choices of such."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(same, one, other))
    if dataclasses.is_dataclass(one):
        return all(
            same(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one)
        )
    return np.array_equal(one, other)


def files_of(op):
    """A list in which the op may stand, for files."""
    ops = [Resize((40, 56)), op]
    return [*ops, Resize((20, 20))] if op.kind == "geometry" and not op.out(FIXED).fixed else ops


def listed_names(kinds) -> str:
    return ", ".join(sorted(kind.__name__ for kind in kinds))


def test_every_op_has_examples():
    missing = {
        kind
        for kind in OPS
        if len(EXAMPLES.get(kind, ())) < min(2, 1 + len(dataclasses.fields(kind)))
    }
    assert not missing, (
        f"{listed_names(missing)}: two or more, if it has arguments, in EXAMPLES of helpers/op_examples, please"
    )
    assert not set(EXAMPLES) - set(OPS), (
        f"{listed_names(set(EXAMPLES) - set(OPS))}: not in `__all__` of its module"
    )


@pytest.mark.parametrize("kind", OPS, ids=lambda kind: kind.__name__)
def test_every_op_is_public(kind):
    assert getattr(fastfeed, kind.__name__, None) is kind, (
        f"{kind.__name__} is missing in `__all__` of its module"
    )


def test_every_simple_change_of_pixels_has_a_kernel():
    tables = (kernels.TABLES, kernels.MEASURED, kernels.KERNELS, kernels.NESTED)
    missing = {type(op) for op in SIMPLE if not any(type(op) in table for table in tables)}
    assert not missing, f"{listed_names(missing)}: a kernel is missing in helpers/opencv_ops"


def test_every_simple_change_of_pixels_has_a_meaning():
    missing = {type(op) for op in SIMPLE} ^ set(MEANING)
    assert not missing, (
        f"{listed_names(missing)}: a Meaning is missing in MEANING of helpers/op_examples, or too"
        " many"
    )


@pytest.mark.parametrize("op", ALL, ids=repr)
def test_is_a_value(op):
    assert dataclasses.is_dataclass(op)
    again = pickle.loads(pickle.dumps(op))
    assert again == op and hash(again) == hash(op) and repr(again) == repr(op)
    if not any(name in repr(op) for name in ("Function(", "Map(")):  # functions are no expressions
        assert eval(repr(op), vars(every)) == op
    with pytest.raises((dataclasses.FrozenInstanceError, AttributeError, TypeError)):
        op.anything = 1
    if fields := dataclasses.fields(op):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(op, fields[0].name, 1)


@pytest.mark.parametrize("op", one_of_each(op for op in ALL if op.kind != "decode"), ids=repr)
def test_out_is_what_comes_out_of_arrays(op):
    ops = listed(op)
    spec = SOURCE.spec
    for each in ops:
        spec = each.out(spec)
    with Feed(SOURCE, ops, batch=4, threads=2) as feed:
        for batch in feed:
            views = (FeedSession.of(feed).program.views,) if op.kind == "views" else ()
            assert (batch.images.shape[1:], str(batch.images.dtype)) == (
                (*views, *spec.shape),
                spec.dtype,
            )
            assert len(batch.labels) == 4 and (batch.labels.ndim == 2) == (
                op.kind in ("label", "mix")
            )
        assert not feed.stats().bad


@pytest.mark.parametrize("op", one_of_each(ALL), ids=repr)
def test_out_is_what_comes_out_of_files(op, files):
    ops = [op, Resize((20, 20))] if isinstance(op, Decode) else [Decode(), *files_of(op)]
    spec = files.spec
    for each in ops:
        spec = each.out(spec)
    with Feed(files, ops, batch=3, threads=2) as feed:
        for batch in feed:
            assert (batch.images.shape[-3:], str(batch.images.dtype)) == (spec.shape, spec.dtype)
        assert not feed.stats().bad


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return ImageFolder(folder(tmp_path_factory.mktemp("photos"), {"a": 3, "b": 3}))


@pytest.mark.parametrize("op", GEOMETRY, ids=repr)
def test_geometry_agrees_with_out(op):
    sizes = np.tile(np.array([[40, 56]]), (4, 1))
    want = op.out(Spec((40, 56, 3), "uint8", "HWC")).size
    if None not in want:
        assert op.params(draw(op, 4), sizes)["size"].tolist() == [list(want)] * 4


@pytest.mark.parametrize("op", [*CHANGES, *GEOMETRY], ids=repr)
def test_what_is_taken_depends_on_its_row_only(op):
    n, sizes = 6, np.tile(np.array([[40, 56]]), (6, 1))
    u = draw(op, n)
    every_row = choose(op, u, sizes)
    assert len(every_row) == len(layers(op))
    for layer, one in zip(layers(op), every_row, strict=True):
        assert len(one.values) == len(layer.ops) and one.choice.shape == (n,)
        assert one.choice.min() >= -1 and one.choice.max() < len(layer.ops)
    for row in range(n):
        alone = choose(op, u[row : row + 1], sizes[row : row + 1])
        assert same(alone, [one[row : row + 1] for one in every_row])


@pytest.mark.parametrize("op", [op for op in ALL if op.kind == "mix"], ids=repr)
def test_how_samples_are_mixed_depends_on_their_row_only(op):
    u = draw(op, 9)
    found = op.mix_plan(u, (30, 40))
    np.testing.assert_allclose(found.shares.sum(axis=1), 1, atol=1e-12)
    assert found.shares.shape == (9, op.group)
    assert all(
        same(op.mix_plan(u[row : row + 1], (30, 40)), found[row : row + 1]) for row in range(9)
    )


def _used(op) -> int:
    """Columns that change something for any of 400 samples."""
    sizes = np.tile(np.array([[300, 900]]), (400, 1))
    u = draw(op, 400)

    def found(u):
        return op.mix_plan(u, (300, 900)) if op.kind == "mix" else choose(op, u, sizes)

    before, used = found(u), 0
    for column in range(op.draws):
        other = u.copy()
        other[:, column] = 1 - other[:, column]
        used += not same(found(other), before)
    return used + isinstance(getattr(op, "filter", ""), tuple)  # the program draws one of them


@pytest.mark.parametrize(
    "op", [op for op in ALL if op.kind in ("geometry", "change", "mix")], ids=repr
)
def test_declares_no_more_draws_than_it_may_use(op):
    """Fewer would be an index error.

    Of some examples a number has nothing to decide, so the kind's best counts.
    """
    kind = type(op)
    best = max(_used(other) / max(1, other.draws) for other in EXAMPLES[kind])
    # the last attempts of a random box come up in few samples; a flip that is one of many ops uses
    # one of two
    rare = kind.__name__ in ("RandomResizedCrop", "RandomErasing", "Maybe", "OneOf", "Sequential")
    assert best > (0.5 if rare else 0.9) or not any(other.draws for other in EXAMPLES[kind])


def test_geometry_is_done_to_its_share_of_samples():
    """A window or a change: which of them an op becomes does not change how often it is done."""
    sizes, flip = np.tile([[40, 56]], (20_000, 1)), RandomFlip(1.0)
    for op in (every.Maybe(flip, 0.3), every.OneOf([flip, RandomFlip(0.0)], [3, 7])):
        assert op.params(draw(op, 20_000), sizes)["flip"][:, 1].mean() == pytest.approx(
            0.3, abs=0.01
        )
        (one,) = choose(op, draw(op, 20_000), sizes)
        assert (one.choice == 0).mean() == pytest.approx(0.3, abs=0.01)


@pytest.mark.parametrize("op", ALL, ids=repr)
def test_fuses(op):
    ops = [op, Resize((24, 24))] if isinstance(op, Decode) else [Decode(), *files_of(op)]
    program = fuse(ops, ImageFolder.spec, classes=3)
    assert [step.op for step in program.steps] == ops


@pytest.mark.parametrize("op", CHANGES, ids=repr)
@pytest.mark.parametrize(
    "before",
    [ENCODED, PIXELS, Spec((3, 24, 32), "uint8", "CHW")],
)
def test_changes_of_pixels_refuse_what_they_cannot_follow(op, before):
    with pytest.raises(SpecError, match="put") as error:
        op.out(before)
    assert str(before) in str(error.value)


@pytest.mark.parametrize("op", CHANGES, ids=repr)
def test_changes_of_pixels_cannot_follow_a_conversion(op):
    """Those that only move pixels may follow a Decode to floats."""
    with pytest.raises(SpecError, match="put it before ToFloat") as error:
        fuse([every.ToFloat(), op], FIXED)
    assert "got HWC float32[24, 32, 3]" in str(error.value)


def test_the_window_takes_geometry_and_the_chain_the_rest():
    ops = [
        Resize(40),
        RandomResizedCrop((24, 32)),
        every.Invert(),
        RandomFlip(),
        every.CenterCrop(20),
        every.Invert(),
    ]
    program = fuse(ops, PIXELS)
    assert [s.op for s in program.window] == ops[:2]
    assert [[s.op for s in link.steps] for link in program.chain] == [ops[2:3], ops[3:5], ops[5:]]
    assert program.pixels == FIXED and program.augmented.size == (20, 20)
