"""Laws of transforms: the same bytes as the feed's, for every op, however the transform is made."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.op_examples import ALL, listed, one_of_each
from helpers.photos import jpeg, picture

import fastfeed as ff
from fastfeed.errors import SpecError
from fastfeed.runtime.batch import Batch

N, SEED, EPOCH = 6, 7, 2
SIZE = (40, 56)
PICTURES = [picture(i, SIZE) for i in range(N)]
FILES = [jpeg(i, SIZE) for i in range(N)]
LABELS = np.arange(N) % 3
ONE_BY_ONE = [op for op in ALL if op.kind != "mix"]
MIXING = [op for op in ALL if op.kind == "mix"]


def ops_of(op: Any) -> list[Any]:
    last = [ff.Resize((24, 32))]
    if op.kind == "decode":
        return [op, *last]
    ops = [ff.Resize(SIZE), op]
    is_fixed = op.kind != "geometry" or op.out(ff.Spec((*SIZE, 3), "uint8", "HWC")).fixed
    return ops if is_fixed else [*ops, *last]


def same(one: Batch, other: Batch) -> bool:
    names = [*one.keys()]
    return names == [*other.keys()] and all(
        np.array_equal(one[name], other[name]) for name in names
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    root = tmp_path_factory.mktemp("photos")
    for i, file in enumerate(FILES):
        (root / f"{i}.jpg").write_bytes(file)
    return [str(root / f"{i}.jpg") for i in range(N)]


def loaded(transform: ff.Transform, folder: Path) -> ff.Transform:
    """The transform after a file."""
    transform.save(folder / "preprocessing.json")
    return ff.Transform.load(folder / "preprocessing.json", threads=1, allow_functions=True)


def first_batch(source: Any, ops: list[Any]) -> tuple[Batch, ff.Transform]:
    """A batch of a feed, and its transform."""
    with ff.Feed(source, ops, batch=N, seed=SEED, threads=2) as feed:
        (batch,) = feed.batches(epoch=EPOCH)
        assert not feed.stats().bad
        return batch, ff.Transform.of(feed)


@pytest.mark.parametrize("op", one_of_each(ONE_BY_ONE), ids=repr)
def test_files_as_in_a_feed(op: Any, folder: list[str], tmp_path: Path) -> None:
    ops = ops_of(op)
    source = ff.Files(folder, LABELS, classes=["a", "b", "c"])
    batch, transform = first_batch(source, ops)
    order = batch.ids
    fields = {"label": LABELS[order]}
    made = ff.Transform(ops, seed=SEED, threads=2, classes=3)
    for own in (transform, made, pickle.loads(pickle.dumps(made)), loaded(made, tmp_path)):
        with own:
            files = own([FILES[i] for i in order], ids=order, epoch=EPOCH, fields=fields)
            paths = own([folder[i] for i in order], ids=order, epoch=EPOCH, fields=fields)
            single = own.one(FILES[order[1]], id=order[1], epoch=EPOCH)
        assert not files.bad and np.array_equal(files.ids, order)
        assert same(files, batch) and same(paths, batch)
        assert np.array_equal(single, batch.images[1]) and own.spec.dtype == single.dtype


@pytest.mark.parametrize(
    "op", one_of_each(op for op in ONE_BY_ONE if op.kind != "decode"), ids=repr
)
def test_arrays_as_in_a_feed(op: Any, tmp_path: Path) -> None:
    ops = listed(op)
    source = ff.Arrays(np.stack(PICTURES), LABELS, classes=["a", "b", "c"])
    batch, transform = first_batch(source, ops)
    order, fields = batch.ids, {"label": LABELS[batch.ids]}
    made = ff.Transform(ops, seed=SEED, threads=1, classes=3, input_spec=source.spec)
    for own in (transform, made, loaded(made, tmp_path)):
        with own:
            got = own([PICTURES[i] for i in order], ids=order, epoch=EPOCH, fields=fields)
        assert same(got, batch) and not got.bad


@pytest.mark.parametrize("op", MIXING, ids=repr)
def test_ops_that_mix_samples_are_refused_by_name(op: Any) -> None:
    name = type(op).__name__
    with pytest.raises(SpecError, match=f"{name} mixes samples of a batch, and a Transform"):
        ff.Transform([ff.Resize(8), ff.CenterCrop(8), op], classes=3)
