"""Laws of every op. A new op without a row in EXAMPLES fails by name."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest
from photos import folder, picture

import fastfeed
from fastfeed.draws import uniform
from fastfeed.feed import Feed
from fastfeed.ops import (
    OPS,
    CenterCrop,
    Decode,
    Normalize,
    RandomFlip,
    RandomResizedCrop,
    Resize,
    ToFloat,
    ToLayout,
)
from fastfeed.ops.fuse import fuse
from fastfeed.sources import Arrays, ImageFolder
from fastfeed.spec import Spec

EXAMPLES = {
    Decode: [Decode(), Decode(matte=(0, 0, 0), max_pixels=10_000)],
    Resize: [Resize(24), Resize((30, 17), filter="lanczos"), Resize(90), Resize([9, 8])],
    CenterCrop: [CenterCrop(24), CenterCrop((50, 20)), CenterCrop([9, 8])],
    RandomResizedCrop: [
        RandomResizedCrop(24),
        RandomResizedCrop((9, 8), scale=[0.5, 0.9], ratio=[1, 2], filter="box"),
    ],
    RandomFlip: [RandomFlip(), RandomFlip(1.0, "both")],
    ToFloat: [ToFloat(), ToFloat("float16")],
    Normalize: [Normalize.imagenet(), Normalize([0.5, 0.5, 0.5], np.array([0.5, 0.25, 0.125]))],
    ToLayout: [ToLayout("CHW"), ToLayout("HWC")],
}
ALL = [op for kind in OPS for op in EXAMPLES.get(kind, ())]
ON_PIXELS = [op for op in ALL if not isinstance(op, Decode)]
IMAGES = np.stack([picture(i) for i in range(6)])
NAMES = {kind.__name__: kind for kind in OPS}


def test_every_op_has_examples_and_is_public():
    assert {kind.__name__ for kind in OPS} == {kind.__name__ for kind in EXAMPLES}
    assert all(getattr(fastfeed, kind.__name__) is kind for kind in OPS)


@pytest.mark.parametrize("op", ALL, ids=repr)
def test_is_a_value(op):
    assert dataclasses.is_dataclass(op)
    again = pickle.loads(pickle.dumps(op))
    assert again == op and hash(again) == hash(op) and repr(again) == repr(op)
    assert eval(repr(op), dict(NAMES)) == op
    with pytest.raises((dataclasses.FrozenInstanceError, AttributeError, TypeError)):
        op.anything = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(op, dataclasses.fields(op)[0].name, 1)


@pytest.mark.parametrize("op", ON_PIXELS, ids=repr)
def test_out_is_what_comes_out_of_arrays(op):
    source = Arrays(IMAGES)
    with Feed(source, [op], batch=3, threads=2) as feed:
        for batch in feed:
            assert Spec(batch.images.shape[1:], str(batch.images.dtype), op.out(source.spec).layout) == op.out(
                source.spec
            )


@pytest.mark.parametrize("op", ALL, ids=repr)
def test_out_is_what_comes_out_of_files(op, tmp_path):
    source = ImageFolder(folder(tmp_path, {"a": 3, "b": 3}))
    ops = [op, Resize((20, 20))] if isinstance(op, Decode) else [Decode(), Resize((25, 26)), op]
    spec = source.spec
    for each in ops:
        spec = each.out(spec)
    with Feed(source, ops, batch=3, threads=2) as feed:
        for batch in feed:
            assert (batch.images.shape[1:], str(batch.images.dtype)) == (spec.shape, spec.dtype)
        assert not feed.stats().bad


@pytest.mark.parametrize("op", ON_PIXELS, ids=repr)
def test_params_agree_with_out_and_depend_on_their_row_only(op):
    ids, sizes = np.arange(4), np.tile(np.array([[40, 56]]), (4, 1))
    u = uniform(1, 2, ids, 3, op.draws)
    got = op.params(u, sizes)
    if "size" in got:
        assert got["size"].tolist() == [list(op.out(Spec((40, 56, 3), "uint8", "HWC")).size)] * 4
    for row in range(4):
        alone = op.params(u[row : row + 1], sizes[row : row + 1])
        for name, values in got.items():
            np.testing.assert_array_equal(alone[name][0], values[row])


@pytest.mark.parametrize("op", ON_PIXELS, ids=repr)
def test_declares_as_many_draws_as_it_uses(op):
    """Fewer would be an index error here; a number that changes nothing for any of 400 samples is not used."""
    sizes = np.tile(np.array([[300, 900]]), (400, 1))
    u = uniform(1, 2, np.arange(400), 3, op.draws)
    before = op.params(u, sizes)
    used = 0
    for column in range(op.draws):
        other = u.copy()
        other[:, column] = 1 - other[:, column]
        after = op.params(other, sizes)
        used += any(not np.array_equal(after[name], before[name]) for name in before)
    horizontal = isinstance(op, RandomFlip) and op.direction != "both"
    certain = isinstance(op, RandomFlip) and op.p in (0, 1)
    tries = isinstance(op, RandomResizedCrop)  # its last attempts come up in few samples
    assert used == (0 if certain else 1 if horizontal else op.draws) or (tries and used >= 14)


@pytest.mark.parametrize("op", ALL, ids=repr)
def test_fuses(op):
    ops = [op, Resize((8, 8))] if isinstance(op, Decode) else [Decode(), Resize((8, 8)), op]
    program = fuse(ops, ImageFolder.spec)
    assert [step.op for step in program.steps] == ops
