"""The feed over bad files, and what it reads at a time."""

from __future__ import annotations

import json
import re
import threading

import numpy as np
import pytest
from helpers.feeds import NUMBERS, equal, feed, joined
from helpers.photos import folder

from fastfeed.distributed.world import World
from fastfeed.errors import (
    ConfigError,
    FeedClosed,
    SampleError,
    StorageError,
    TooManyFailures,
)
from fastfeed.faults import FaultPolicy
from fastfeed.feed.batch import loader as loading
from fastfeed.feed.batch import task_sizes
from fastfeed.feed.feed import Feed
from fastfeed.feed.session import FeedSession
from fastfeed.ops import Normalize, RandomResizedCrop, Resize, ToLayout
from fastfeed.sampling import Buckets, ClassBatches
from fastfeed.sampling.plan import Plan
from fastfeed.sources import Arrays, ImageFolder

# -- bad samples


def test_broken_files_are_replaced_and_listed_once(damaged, tmp_path):
    source, bad = damaged
    path = tmp_path / "bad.jsonl"
    with feed(source, batch=8, quarantine=path) as data:
        epochs = [list(data) for _ in range(3)]
        stats = data.stats()
    for epoch, batches in enumerate(epochs):
        assert [(b.epoch, b.step, b.images.shape) for b in batches] == [
            (epoch, s, (8, 16, 16, 3)) for s in range(10)
        ]
        ids = np.concatenate([b.ids for b in batches])
        assert not set(ids) & set(bad)
        assert set(range(80)) - set(bad) == set(ids)
        for batch in batches:
            np.testing.assert_array_equal(batch.labels, source.label(batch.ids))
            assert np.all(batch.weights == 1)
    assert {f.id: f.reason for f in stats.bad} == bad and len(stats.bad) == len(bad)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted((row["id"], row["reason"], row["uri"]) for row in rows) == [
        (id, reason, source.uri(id)) for id, reason in bad.items()
    ]
    with feed(source, batch=8, quarantine=path, threads=3) as again:
        assert equal(list(again), epochs[0]), "known beforehand or not, the batches are the same"
        assert {f.id: f.reason for f in again.stats().bad} == bad, (
            "what was listed is shown once it is met"
        )


@pytest.mark.parametrize("on_bad", ["substitute", "mask"])
def test_a_run_tells_of_its_first_bad_sample_and_counts_the_others_after_each_epoch(
    damaged, caplog, on_bad
):
    source, bad = damaged
    with feed(source, batch=8, on_bad=on_bad, prefetch=0) as data:
        for _ in data:
            pass
        after_one = [record.getMessage() for record in caplog.records]
        list(data)
    how = {"substitute": "replaced", "mask": "masked"}[on_bad]
    assert re.match(
        rf"sample \d+ is bad and was {how}: .*; others are counted at the end of each epoch",
        after_one[0],
    )
    assert re.match(
        rf"{len(bad)} of 80 samples have been bad so far \(.*\); all are in feed.stats\(\).bad",
        after_one[1],
    )
    assert [record.getMessage() for record in caplog.records] == after_one, (
        "nothing new, nothing said"
    )
    assert {record.name for record in caplog.records} == {"fastfeed"}


def test_substitutes_do_not_depend_on_batches_and_ranks(damaged):
    source, _ = damaged
    with feed(source, global_batch=8) as one:
        alone = [list(one)]
    ranks = []
    for rank in range(2):
        with feed(source, global_batch=8, world=World(rank, 2)) as data:
            ranks.append(list(data))
    assert joined(ranks) == joined(alone)


@pytest.mark.parametrize("kind", [Buckets, ClassBatches])
def test_a_substitute_is_of_the_same_bucket_or_class_at_every_world_size(damaged, kind):
    source, bad = damaged
    labels = source.label(np.arange(80))
    order = Buckets(labels, 4) if kind is Buckets else ClassBatches(2, 2)
    with feed(source, global_batch=4, shuffle=order) as one:
        alone = list(one)
        planned = [one.plan.ids(0, batch.step) for batch in alone]
    for batch, ids in zip(alone, planned, strict=True):
        assert batch.labels.tolist() == source.label(ids).tolist()
    assert set(np.concatenate(planned)) & set(bad)
    ranks = []
    for rank in range(2):
        with feed(source, global_batch=4, shuffle=order, world=World(rank, 2)) as data:
            ranks.append(list(data))
    assert joined(ranks) == joined([alone])


def test_substitutes_are_any_others_of_the_class():
    order = ClassBatches(2, 1).bind(Arrays(NUMBERS[:50], np.arange(50) % 5))
    plan = Plan(50, 2, shuffle=order)
    drawn = plan.substitutes(0, 13, 13, 400)
    assert set(drawn.tolist()) == {*range(3, 50, 5)} - {13}
    assert drawn[:16].tolist() == plan.substitutes(0, 13, 13, 16).tolist()


def test_a_bad_sample_without_others_in_its_bucket_ends_the_run(damaged):
    source, bad = damaged
    buckets = np.zeros(80, int)
    buckets[min(bad)] = 1
    with feed(source, batch=1, shuffle=Buckets(buckets, 1)) as data:
        with pytest.raises(
            TooManyFailures,
            match=f"sample {min(bad)} is bad, and the order has no other of its class or bucket .*;"
            ' check the data, or pass on_bad="mask"',
        ):
            list(data)


def test_every_epoch_has_other_substitutes(damaged):
    """Also where its order is that of the one before."""
    source, bad = damaged
    with feed(source, batch=8, shuffle=False) as data:
        one, two = (np.concatenate([batch.ids for batch in data]) for _ in range(2))
    assert np.flatnonzero(one != np.arange(80)).tolist() == sorted(bad)
    assert (one != two).sum() > len(bad) / 2


def test_masked_samples_are_black_with_weight_zero(damaged):
    source, bad = damaged
    with feed(source, [RandomResizedCrop(16)], batch=8, on_bad="mask") as data:
        batches = list(data)
        assert FeedSession.of(data).weighted
    ids, weights, images = (
        np.concatenate([getattr(b, n) for b in batches]) for n in ("ids", "weights", "images")
    )
    assert sorted(ids) == list(range(80))
    assert {int(i) for i in ids[weights == 0]} == set(bad)
    assert not images[weights == 0].any()
    assert images[weights == 1].any(axis=(1, 2, 3)).all()


def test_masked_samples_are_black_after_normalization(damaged):
    source, _ = damaged
    with feed(
        source, [Resize((4, 4)), Normalize.imagenet(), ToLayout("CHW")], batch=80, on_bad="mask"
    ) as data:
        batch = next(iter(data))
    black = [-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225]
    np.testing.assert_allclose(
        batch.images[batch.weights == 0].mean(axis=(0, 2, 3)), black, rtol=1e-5
    )


def test_raise_ends_the_run_at_the_first(damaged):
    source, _ = damaged
    with feed(source, batch=8, shuffle=False, on_bad="raise") as data:
        text = re.escape(f"sample 0 is bad in stage read: {source.uri(0)}: empty (zero bytes)")
        for _ in range(2):  # and does so again
            data.seek(0)
            with pytest.raises(SampleError, match=text):
                list(data)


def test_an_error_keeps_its_place(damaged):
    source, _ = damaged
    with feed(source, batch=8, shuffle=False, on_bad="raise", prefetch=5) as data:
        data.seek(0, 1)
        walk = iter(data)
        assert next(walk).step == 1  # step 2 holds sample 17
        with pytest.raises(SampleError, match="sample 17"):
            next(walk)


def test_all_broken_stops_and_says_so(tmp_path):
    for i in range(100):
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / f"a/{i:03}.jpg").write_bytes(b"<html>404</html>")
    path = tmp_path / "bad.jsonl"
    with feed(ImageFolder(tmp_path), batch=10, quarantine=path) as data:
        with pytest.raises(TooManyFailures) as error:
            list(data)
    text = str(error.value)
    assert re.match(
        r"too many bad samples: (\d+ of \d+ samples are bad, the limit is 25%|sample \d+ and the 16"
        r" subst)",
        text,
    )
    assert f"not_image); all are in {path}; check the data, or raise the limit" in text
    assert len(error.value.failures) >= 16
    assert "a/0" in text.splitlines()[1]


def test_limits_can_be_switched_off(tmp_path):
    root = folder(tmp_path, {"a": 60})
    source = ImageFolder(root)
    for id in range(40):
        source.path(id).write_bytes(b"")
    with feed(source, batch=10, on_bad=FaultPolicy(max_share=1, attempts=100)) as data:
        assert set(np.concatenate([b.ids for b in data]).tolist()) <= set(range(40, 60))
    with feed(source, batch=10) as data, pytest.raises(TooManyFailures):
        list(data)


# -- reading a few at a time


def test_large_files_are_decoded_as_they_come(photos, monkeypatch):
    """However few encoded bytes a task may hold, the batches are the same."""
    with feed(photos, batch=10, threads=1) as data:
        whole = list(data)
    monkeypatch.setattr(task_sizes, "_READ_BYTES", 1)
    monkeypatch.setattr(task_sizes, "_READ_BYTES_THREAD", 1)
    monkeypatch.setattr(loading, "_READ_AT_ONCE", 3)
    with feed(photos, batch=10, threads=1) as data:
        assert equal(list(data), whole)


def test_a_stop_is_seen_between_reads():
    reading, go, reads = threading.Event(), threading.Event(), []

    class Slow(Arrays):
        def read(self, ids):
            reads.append((threading.get_ident(), len(ids)))
            reading.set()
            go.wait(20)
            return super().read(ids)

    data = Feed(Slow(NUMBERS), [], batch=16, threads=1)
    walk = data.batches(0)

    def ask():
        with pytest.raises(FeedClosed):
            next(walk)

    asking = threading.Thread(target=ask)
    asking.start()
    assert reading.wait(20)
    walk.close()
    go.set()
    asking.join(20)
    data.close()
    assert {size for _, size in reads} == {4}
    assert len({thread for thread, _ in reads}) == len(reads), (
        "one small read per thread, not the whole task's"
    )


def test_an_error_before_the_first_batch_does_not_cost_an_epoch():
    class Once(Arrays):
        broken = True

        def read(self, ids):
            if self.broken:
                raise StorageError("storage is away")
            return super().read(ids)

    source = Once(NUMBERS)
    with Feed(source, [], batch=5) as data:
        for _ in range(2):
            with pytest.raises(StorageError):
                next(iter(data))
        source.broken = False
        assert next(iter(data)).epoch == 0


@pytest.mark.parametrize("threads", [0, True, 1.5])
def test_threads_are_a_count(threads):
    with pytest.raises(ConfigError, match=f"threads must be an integer >= 1, got {threads}"):
        Feed(Arrays(NUMBERS), [], batch=5, threads=threads)


def test_batches_of_no_epoch_and_of_less():
    with Feed(Arrays(NUMBERS), [], batch=5) as data:
        assert list(data.batches(epochs=0)) == []
        with pytest.raises(ConfigError, match="epochs must be >= 0, or None for no end, got -1"):
            data.batches(epochs=-1)
