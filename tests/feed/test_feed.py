"""The feed: batches and epochs, memory, what it says of itself."""

from __future__ import annotations

import json
import os
import sys

import numpy as np
import pytest
from helpers.feeds import NUMBERS, equal, feed, numbers

from fastfeed.distributed.world import World
from fastfeed.errors import (
    ConfigError,
)
from fastfeed.ops import Normalize, RandomFlip, ToLayout
from fastfeed.runtime.batch import Batch
from fastfeed.sampling import Blocks
from fastfeed.sources import Arrays

# -- batches and epochs


def test_a_batch(photos):
    with feed(photos, batch=8) as data:
        assert len(data) == 3
        batches = list(data)
    for step, batch in enumerate(batches):
        assert (batch.images.shape, batch.images.dtype) == ((8, 16, 16, 3), np.float32)
        assert (batch.labels.tolist(), batch.labels.dtype) == (
            photos.label(batch.ids).tolist(),
            np.int64,
        )
        assert (batch.weights.tolist(), batch.weights.dtype) == ([1] * 8, np.float32)
        assert (batch.ids.dtype, len(batch), batch.epoch, batch.step) == (np.int64, 8, 0, step)
    assert repr(batches[1]) == "Batch(epoch 0, step 1: float32[8, 16, 16, 3])"
    seen = np.concatenate([batch.ids for batch in batches])
    assert len(np.unique(seen)) == 24


def test_images_belong_to_their_ids():
    for batch in numbers():
        np.testing.assert_array_equal(batch.images, NUMBERS[batch.ids])
        np.testing.assert_array_equal(batch.labels, batch.ids)


def test_gray_images_and_channels_first():
    source = Arrays(NUMBERS[..., 0])
    with feed(
        source, [RandomFlip(), Normalize((0.5,), (0.25,)), ToLayout("CHW")], batch=10
    ) as data:
        for batch in data:
            assert batch.images.shape == (10, 1, 8, 8)
            np.testing.assert_allclose(
                batch.images[:, 0, 0, 0], (batch.ids / 255 - 0.5) / 0.25, rtol=1e-5
            )


def test_iterating_again_is_the_next_epoch():
    data = numbers()
    epochs = [np.concatenate([batch.ids for batch in data]) for _ in range(3)]
    assert all(sorted(ids) == list(range(50)) for ids in epochs)
    assert len({tuple(ids) for ids in epochs}) == 3
    again = numbers()
    assert [b.ids.tolist() for b in again.batches(0, epochs=3)] == np.concatenate(epochs).reshape(
        15, 10
    ).tolist()


def test_a_new_epoch_crops_differently(photos):
    with feed(photos, batch=30, shuffle=False) as data:
        first, second = next(data.batches(0)), next(data.batches(1))
    assert first.ids.tolist() == second.ids.tolist()
    assert np.all(np.abs(first.images - second.images).max(axis=(1, 2, 3)) > 0)


def test_unshuffled_is_the_order_of_the_source():
    data = numbers(shuffle=False)
    for _ in range(2):
        assert np.concatenate([b.ids for b in data]).tolist() == list(range(50))


def test_interrupted_epochs_are_not_resumed():
    data = numbers()
    for batch in data:
        assert (batch.epoch, batch.step) == (0, 0)
        break
    assert [(b.epoch, b.step) for b in data] == [(1, step) for step in range(5)]


def test_padding_is_masked(photos):
    with feed(photos, batch=8, tail="pad") as data:
        batches = list(data)
    assert [len(b) for b in batches] == [8] * 4
    assert batches[-1].weights.tolist() == [1] * 6 + [0] * 2
    seen = np.concatenate([b.ids[b.weights == 1] for b in batches])
    assert sorted(seen) == list(range(30))


@pytest.mark.parametrize(
    "how", [{"threads": 1}, {"threads": 5}, {"prefetch": 0}, {"prefetch": 7}], ids=str
)
def test_threads_and_prefetch_change_nothing(photos, how):
    with feed(photos, batch=7) as one, feed(photos, batch=7, **how) as other:
        assert equal(list(one.batches(2)), list(other.batches(2)))


def test_seeds_differ(photos):
    with (
        feed(photos, batch=30, shuffle=False) as one,
        feed(photos, batch=30, shuffle=False, seed=1) as other,
    ):
        assert not np.array_equal(next(iter(one)).images, next(iter(other)).images)


def test_batches_leaves_the_feed_where_it_is():
    data = numbers()
    walk = iter(data)
    first = next(walk)
    aside = list(data.batches(7, start=3))
    assert [(b.epoch, b.step) for b in aside] == [(7, 3), (7, 4)]
    assert equal(list(data.batches(7, start=3)), aside)
    rest = list(walk)
    assert [(b.epoch, b.step) for b in [first, *rest]] == [(0, step) for step in range(5)]


def test_an_order_of_blocks():
    data = numbers(shuffle=Blocks(5, 2, lanes=1))
    ids = np.concatenate([b.ids for b in data])
    assert sorted(ids) == list(range(50))
    assert all(len(np.unique(window // 5)) == 2 for window in ids.reshape(5, 10))


# -- memory


def address(batch: Batch) -> int:
    return batch.images.__array_interface__["data"][0]


def test_memory_is_used_again_when_dropped_and_never_while_held():
    data = numbers(prefetch=1)
    seen = {address(batch) for epoch in range(8) for batch in data}
    # without the interpreter's lock, what another thread has dropped may wait for the thread that
    # made it
    late = not getattr(sys, "_is_gil_enabled", lambda: True)()
    assert len(seen) <= 3 + late, "one in use, one ahead, one being made"
    held = [batch for epoch in range(4) for batch in data]
    assert len({address(batch) for batch in held}) == len(held) == 20
    for batch in held:
        np.testing.assert_array_equal(batch.images, NUMBERS[batch.ids])


def test_a_held_view_keeps_its_pixels():
    data = numbers(prefetch=1)
    kept = [(batch.images[3], int(batch.ids[3])) for epoch in range(4) for batch in data]
    assert all(np.all(image == id) for image, id in kept)


# -- evidence


def test_stats(damaged):
    source, _ = damaged
    with feed(source, batch=8) as data:
        assert data.stats().images_per_second == data.stats().wait_share == 0
        list(data)
        stats = data.stats()
    assert (stats.images, stats.batches, stats.threads, len(stats.bad)) == (80, 10, 2, 4)
    assert {"read", "decode", "convert"} == set(stats.stage_ms)
    assert 0 < stats.wait_seconds <= stats.seconds
    assert 0 <= stats.wait_share <= 1


@pytest.mark.parametrize(
    ("world", "name"),
    [(World(), "t.jsonl"), (World(0, 2), "t.rank0.jsonl"), (World(1, 2), "t.rank1.jsonl")],
)
def test_timeline_file(tmp_path, monkeypatch, world, name):
    monkeypatch.setenv("FASTFEED_TIMELINE", str(tmp_path / "t.jsonl"))
    with numbers(world=world, batch=10, name="train") as data:
        steps = len(list(data))
    assert os.listdir(tmp_path) == [name]
    head, *rows = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
    assert (head["rank"], head["name"], head["fastfeed_timeline"]) == (world.rank, "train", 1)
    for stage in ("read", "decode", "wait"):
        batches = {row[3] for row in rows if row[1] == "span" and row[2] == stage}
        assert batches >= set(range(steps)), stage


def test_timeline_that_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTFEED_TIMELINE", str(tmp_path / "gone" / "t.jsonl"))
    with pytest.raises(ConfigError) as error:
        numbers()
    assert (
        str(error.value)
        == f"cannot write the timeline {tmp_path}/gone/t.jsonl: No such file or directory; correct"
        " FASTFEED_TIMELINE"
    )
