"""Targets of every source and kind: a batch gives what the data hold, at any world size."""

from __future__ import annotations

import json
import pickle
from itertools import chain

import numpy as np
import pytest
from helpers.targets import COUNT, SOURCES, WANTED, WITHOUT

import fastfeed as ff
from fastfeed.distributed.world import World
from fastfeed.errors import StateError
from fastfeed.feed.session import FeedSession

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
    with feed(pickle.loads(pickle.dumps(source)), 1, 2) as half:
        walk = iter(half)
        check([next(walk)], wanted)
        saved = json.loads(json.dumps(half.state()))
    ranks = []
    for rank in range(4):
        with feed(source, rank, 4) as other:
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
