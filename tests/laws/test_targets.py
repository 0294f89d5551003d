"""Targets of every source and kind: a batch gives what the data hold, at any world size."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from helpers.targets import (
    COUNT,
    PRICES,
    SOURCES,
    WANTED,
    WITHOUT,
    record_folder,
    table,
    tar_folder,
)

import fastfeed as ff
from fastfeed.distributed.world import World
from fastfeed.errors import StateError
from fastfeed.feed.session import FeedSession
from fastfeed.sources import Source

CASES = [(name, target) for name in SOURCES for target in WANTED if (name, target) not in WITHOUT]


def feed(source, rank=0, size=1, **more):
    ops = [ff.Resize((8, 8))]
    return ff.Feed(source, ops, global_batch=4, world=World(rank, size), threads=1, **more)


def check(batches, wanted):
    """Ids of these batches, whose labels are those of the data."""
    for batch in batches:
        np.testing.assert_array_equal(batch.labels, wanted[batch.ids % COUNT])
        assert batch.labels.dtype == wanted.dtype and batch["label"] is batch.labels
    return [batch.ids.tolist() for batch in batches]


@pytest.mark.parametrize(("name", "target"), CASES)
def test_a_batch_gives_what_the_data_hold(tmp_path, name, target):
    source, wanted = SOURCES[name](tmp_path, target), WANTED[target]
    with feed(source) as alone:
        spec = FeedSession.of(alone).program.label
        assert spec == (wanted.shape[1:], "str" if wanted.dtype == object else "float32")
        assert alone.fields["label"].shape == spec.shape
        ids = check(list(alone), wanted)
        assert sorted(chain(*ids)) == list(range(len(source)))
        again = check(list(alone), wanted)
    with feed(pickle.loads(pickle.dumps(source)), 1, 4) as quarter:
        walk = iter(quarter)
        check([next(walk)], wanted)
        saved = json.loads(json.dumps(quarter.state()))
    ranks = []
    for rank in range(2):
        with feed(source, rank, 2) as other:
            other.restore(saved)
            ranks.append(check([*other, *other], wanted))
    joined = [list(chain(*parts)) for parts in zip(*ranks, strict=True)]
    assert joined == [*ids[1:], *again]


@pytest.mark.parametrize("name", SOURCES)
def test_state_of_other_labels_is_refused(tmp_path, name):
    with feed(SOURCES[name](tmp_path / "a", "number")) as one:
        saved = one.state()
    with feed(SOURCES[name](tmp_path / "a", "numbers")) as other, pytest.raises(StateError):
        other.restore(saved)


LACKING: dict[str, Callable[[Path], Source]] = {
    "Table": lambda root: ff.Table(
        table(root, "jsonl", price=[*PRICES[:5], None, *PRICES[6:]]),
        image="path",
        label="price",
        label_kind="value",
    ),
    "TarShards": lambda root: ff.TarShards(
        tar_folder(root, {5: {"price": b"dear"}}), label="price", label_kind="value"
    ),
    "TFRecords": lambda root: ff.TFRecords(
        record_folder(root, {5: {"price": None}}), label="price", label_kind="value"
    ),
}


@pytest.mark.parametrize("name", LACKING)
def test_a_sample_without_its_target_is_replaced_or_masked(tmp_path, name):
    source, wanted = LACKING[name](tmp_path), WANTED["number"]
    with feed(source) as replaced:
        ids = check(list(replaced), wanted)
        assert 5 not in chain(*ids)
        assert [bad.reason for bad in replaced.stats().bad] == ["label_missing"]
    with feed(source, on_bad="mask") as masked:
        for batch in masked:
            kept = batch.weights > 0
            np.testing.assert_array_equal(batch.ids[~kept], [5] * np.count_nonzero(~kept))
            assert batch.labels[~kept].tolist() == [0] * np.count_nonzero(~kept)
            np.testing.assert_array_equal(batch.labels[kept], wanted[batch.ids[kept]])
