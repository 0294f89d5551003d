"""The feed, end to end: order, resuming, bad files, and how it ends."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import environment
from photos import BROKEN, broken, folder

from fastfeed import assemble
from fastfeed.batch import Batch
from fastfeed.errors import (
    ConfigError,
    FastfeedError,
    FeedClosed,
    SampleError,
    SourceError,
    SpecError,
    StateError,
    TooManyFailures,
)
from fastfeed.faults import FaultPolicy
from fastfeed.feed import Feed
from fastfeed.ops import Decode, Normalize, RandomFlip, RandomResizedCrop, Resize, ToLayout
from fastfeed.plan import Blocks
from fastfeed.sources import Arrays, ImageFolder
from fastfeed.spec import Spec
from fastfeed.world import World

OPS = [RandomResizedCrop(16), RandomFlip(), Normalize.imagenet()]
NUMBERS = np.broadcast_to(np.arange(50, dtype=np.uint8)[:, None, None, None], (50, 8, 8, 3))  # image i is all i


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> ImageFolder:
    return ImageFolder(folder(tmp_path_factory.mktemp("photos"), {"a": 11, "b": 9, "c": 10}))


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[ImageFolder, dict[int, str]]:
    """80 files, 5 % of them broken: the source, and id -> reason."""
    root = folder(tmp_path_factory.mktemp("damaged"), {"a": 40, "b": 40})
    source = ImageFolder(root)
    bad = dict(zip((0, 17, 41, 79), BROKEN, strict=True))
    for id, reason in bad.items():
        source.path(id).write_bytes(broken(reason))
    return source, bad


def feed(source: Any, ops: Any = OPS, **more: Any) -> Feed:
    return Feed(source, ops, **({"threads": 2} | more))


def numbers(**more: Any) -> Feed:
    return feed(Arrays(NUMBERS, np.arange(50)), [], **({"batch": 10} | more))


def equal(one: list[Batch], other: list[Batch]) -> bool:
    return len(one) == len(other) and all(
        (a.epoch, a.step) == (b.epoch, b.step)
        and all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ("images", "labels", "weights", "ids"))
        for a, b in zip(one, other, strict=True)
    )


def joined(ranks: list[list[Batch]]) -> list[tuple[Any, ...]]:
    """The global batches of several ranks."""
    return [
        tuple(np.concatenate([getattr(b, name) for b in step]).tobytes() for name in ("ids", "images", "labels"))
        for step in zip(*ranks, strict=True)
    ]


# -- batches and epochs


def test_a_batch(photos):
    with feed(photos, batch=8) as data:
        assert len(data) == 3
        batches = list(data)
    for step, batch in enumerate(batches):
        assert (batch.images.shape, batch.images.dtype) == ((8, 16, 16, 3), np.float32)
        assert (batch.labels.tolist(), batch.labels.dtype) == (photos.label(batch.ids).tolist(), np.int64)
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
    with feed(source, [RandomFlip(), Normalize((0.5,), (0.25,)), ToLayout("CHW")], batch=10) as data:
        for batch in data:
            assert batch.images.shape == (10, 1, 8, 8)
            np.testing.assert_allclose(batch.images[:, 0, 0, 0], (batch.ids / 255 - 0.5) / 0.25, rtol=1e-5)


def test_iterating_again_is_the_next_epoch():
    data = numbers()
    epochs = [np.concatenate([batch.ids for batch in data]) for _ in range(3)]
    assert all(sorted(ids) == list(range(50)) for ids in epochs)
    assert len({tuple(ids) for ids in epochs}) == 3
    again = numbers()
    assert [b.ids.tolist() for b in again.batches(0, epochs=3)] == np.concatenate(epochs).reshape(15, 10).tolist()


def test_a_new_epoch_crops_anew(photos):
    with feed(photos, batch=30, shuffle=False) as data:
        first, second = next(data.batches(0)), next(data.batches(1))
    assert first.ids.tolist() == second.ids.tolist()
    assert np.all(np.abs(first.images - second.images).max(axis=(1, 2, 3)) > 0)


def test_unshuffled_is_the_order_of_the_source():
    data = numbers(shuffle=False)
    for _ in range(2):
        assert np.concatenate([b.ids for b in data]).tolist() == list(range(50))


def test_broken_off_epochs_are_not_taken_up_again():
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


@pytest.mark.parametrize("how", [{"threads": 1}, {"threads": 5}, {"prefetch": 0}, {"prefetch": 7}], ids=str)
def test_threads_and_prefetch_change_nothing(photos, how):
    with feed(photos, batch=7) as one, feed(photos, batch=7, **how) as other:
        assert equal(list(one.batches(2)), list(other.batches(2)))


def test_seeds_differ(photos):
    with feed(photos, batch=30, shuffle=False) as one, feed(photos, batch=30, shuffle=False, seed=1) as other:
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
    data = numbers(shuffle=Blocks(5, 2))
    ids = np.concatenate([b.ids for b in data])
    assert sorted(ids) == list(range(50))
    assert all(len(np.unique(window // 5)) == 2 for window in ids.reshape(5, 10))


# -- ranks and resuming


@pytest.mark.parametrize("size", [2, 3, 5])
def test_ranks_share_the_same_global_batches(photos, size):
    with feed(photos, global_batch=10) as one:
        alone = [list(one)]
    ranks = []
    for rank in range(size):
        with feed(photos, global_batch=10, world=World(rank, size)) as data:
            ranks.append(list(data))
    assert joined(ranks) == joined(alone)


RANK = """
import sys, hashlib, json
import fastfeed as ff
feed = ff.Feed(ff.ImageFolder(sys.argv[1]), [ff.RandomResizedCrop(16), ff.RandomFlip()], global_batch=6, threads=1)
for batch in feed:
    print(json.dumps([feed.plan.world.rank, batch.ids.tolist(), [hashlib.md5(i).hexdigest() for i in batch.images]]))
"""


def test_two_processes_see_each_sample_once(photos):
    def start(**environ: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", RANK, str(photos.root)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(**environ))

    def end(process: subprocess.Popen[str]) -> list[list[Any]]:
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        return [json.loads(line) for line in out.splitlines()]

    started = [start(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2") for rank in range(2)]
    one, two = (end(process) for process in started)
    (alone,) = (end(process) for process in [start()])
    assert {row[0] for row in one} == {0} and {row[0] for row in two} == {1}
    assert [[a[1] + b[1], a[2] + b[2]] for a, b in zip(one, two, strict=True)] == [row[1:] for row in alone]
    assert sorted(id for row in one + two for id in row[1]) == list(range(30))


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("step", [0, 2, 4, 5])
def test_resuming_is_bit_identical(photos, step, size):
    """Stopped at a step on two ranks, gone on with at any world size."""
    before, states = [], []
    for rank in range(2):
        with feed(photos, global_batch=6, world=World(rank, 2)) as data:
            list(data)  # epoch 0
            walk = iter(data)
            for _ in range(step):
                next(walk)
            states.append(json.dumps(data.state()))
            before.append([*walk, *data])
    assert len(set(states)) == 1, "every rank saves the same state"
    after = []
    for rank in range(size):
        with feed(photos, global_batch=6, world=World(rank, size)) as data:
            data.restore(json.loads(states[0]))
            first = list(data)
            assert (first[0].epoch, first[0].step) == ((1, step) if step < 5 else (2, 0))
            after.append([*first, *data] if step < 5 else first)
    assert joined(after) == joined(before)


def test_a_state_is_a_few_plain_values(photos):
    with feed(photos, batch=6, seed=9) as data:
        next(iter(data))
        assert data.state() == {
            "epoch": 0,
            "step": 1,
            "length": 30,
            "seed": 9,
            "global_batch": 6,
            "shuffle": "full",
            "tail": "drop",
        } | {"fingerprint": photos.fingerprint}


def test_other_data_is_not_resumed(photos):
    with feed(photos, batch=5) as data, numbers(batch=5) as other, pytest.raises(StateError, match="length"):
        other.restore(data.state())


def test_a_repaired_file_does_not_cost_the_checkpoint(tmp_path):
    source = ImageFolder(folder(tmp_path, {"a": 12}))
    with feed(source, batch=4) as data:
        first = list(data)
        saved = data.state()
    source.path(3).write_bytes(source.path(4).read_bytes() + b"\0")
    with feed(ImageFolder(tmp_path), batch=4) as data:
        with pytest.raises(StateError, match=r"fingerprint was .* restore\(state, strict=False\)"):
            data.restore(saved)
        data.restore(saved, strict=False)
        assert next(iter(data)).epoch == 1
    assert len(first) == 3


def test_far_positions_cost_what_near_ones_do():
    images = np.broadcast_to(np.uint8(0), (10**7, 2, 2, 1))
    with feed(Arrays(images), [], batch=4) as data:
        data.seek(10**6, 2_499_999)
        batches = list(data)
    assert [(b.epoch, b.step) for b in batches] == [(10**6, 2_499_999)]


# -- bad samples


def test_broken_files_are_replaced_and_listed_once(damaged, tmp_path):
    source, bad = damaged
    path = tmp_path / "bad.jsonl"
    with feed(source, batch=8, quarantine=path) as data:
        epochs = [list(data) for _ in range(3)]
        stats = data.stats()
    for epoch, batches in enumerate(epochs):
        assert [(b.epoch, b.step, b.images.shape) for b in batches] == [(epoch, s, (8, 16, 16, 3)) for s in range(10)]
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
        assert {f.id: f.reason for f in again.stats().bad} == bad, "what was listed is shown once it is met"


def test_substitutes_do_not_depend_on_batches_and_ranks(damaged):
    source, _ = damaged
    with feed(source, global_batch=8) as one:
        alone = [list(one)]
    ranks = []
    for rank in range(2):
        with feed(source, global_batch=8, world=World(rank, 2)) as data:
            ranks.append(list(data))
    assert joined(ranks) == joined(alone)


def test_masked_samples_are_black_with_weight_zero(damaged):
    source, bad = damaged
    with feed(source, [RandomResizedCrop(16)], batch=8, on_bad="mask") as data:
        batches = list(data)
        assert data.weighted
    ids, weights, images = (np.concatenate([getattr(b, n) for b in batches]) for n in ("ids", "weights", "images"))
    assert sorted(ids) == list(range(80))
    assert {int(i) for i in ids[weights == 0]} == set(bad)
    assert not images[weights == 0].any()
    assert images[weights == 1].any(axis=(1, 2, 3)).all()


def test_masked_samples_are_black_after_normalization(damaged):
    source, _ = damaged
    with feed(source, [Resize((4, 4)), Normalize.imagenet(), ToLayout("CHW")], batch=80, on_bad="mask") as data:
        batch = next(iter(data))
    black = [-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225]
    np.testing.assert_allclose(batch.images[batch.weights == 0].mean(axis=(0, 2, 3)), black, rtol=1e-5)


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
        r"too many bad samples: (\d+ of \d+ samples are bad, the limit is 25%|sample \d+ and the 16 subst)", text
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


# -- ends

LONG = 20  # seconds; a wait that gets this far has failed


class Slow(Arrays):
    """Reads wait until they are let go."""

    def __init__(self) -> None:
        super().__init__(NUMBERS)
        self.asked, self.go = threading.Event(), threading.Event()

    def read(self, ids: Any) -> list[Any]:
        self.asked.set()
        assert self.go.wait(LONG)
        return super().read(ids)


def ours() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("fastfeed")]


@pytest.fixture
def no_garbage() -> Iterator[None]:
    """Without the collector: what is dropped must go by itself."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_dropping_a_feed_ends_its_threads(no_garbage):
    data = numbers()
    for _ in data:
        break
    threads = ours()
    assert len(threads) == 2
    del data
    for thread in threads:
        thread.join(LONG)
    assert not ours()


def test_a_walk_outlives_its_feed(no_garbage):
    walk = numbers().batches()
    assert len(list(walk)) == 5
    del walk
    assert not ours()


def test_an_exception_in_user_code_leaves_nothing(no_garbage):
    def train() -> None:
        for _ in numbers():
            raise KeyError("user's own")

    with contextlib.suppress(KeyError):
        train()
    assert not ours()


def test_with_ends_threads_whatever_happens():
    with pytest.raises(KeyError), numbers() as data:
        for _ in data:
            raise KeyError
    assert not ours()


def test_a_closed_feed_says_so():
    data = numbers()
    walk, other = iter(data), data.batches()
    next(walk)
    next(other)
    data.close()
    data.close()
    for use in (lambda: next(walk), lambda: next(other), lambda: next(iter(data)), lambda: next(data.batches())):
        with pytest.raises(FeedClosed):
            use()


def test_closing_lets_a_waiting_consumer_go():
    source, errors = Slow(), []
    data = feed(source, [], batch=10)

    def consume() -> None:
        try:
            next(iter(data))
        except FeedClosed as error:
            errors.append(str(error))

    consumer = threading.Thread(target=consume)
    consumer.start()
    assert source.asked.wait(LONG)
    closer = threading.Thread(target=data.close)
    closer.start()
    consumer.join(LONG)
    assert errors == ["the feed was closed while a batch was waited for"]
    source.go.set()
    closer.join(LONG)
    assert not ours()


TWICE = "another iteration of this feed has begun, or seek() moved it; for two at once use feed.batches(epoch)"


@pytest.mark.parametrize("other", [lambda d: next(iter(d)), lambda d: d.seek(0), lambda d: d.seek(5, 2)])
def test_two_iterations_at_once(other):
    data = numbers()
    walk = iter(data)
    next(walk)
    other(data)
    with pytest.raises(FeedClosed) as error:
        next(walk)
    assert str(error.value) == TWICE


def test_an_iteration_that_is_over_may_be_asked_again():
    data = numbers()
    walk = iter(data)
    for _ in range(5):
        next(walk)
    following = iter(data)
    assert next(following).epoch == 1
    assert next(walk, None) is None
    assert next(following).step == 1


def test_an_error_of_the_source_is_raised_in_its_place_and_the_feed_goes_on():
    class Failing(Arrays):
        def read(self, ids: Any) -> list[Any]:
            if 25 in ids:
                raise ZeroDivisionError("in the source")
            return super().read(ids)

    with feed(Failing(NUMBERS), [], batch=10, shuffle=False) as data:
        walk = iter(data)
        assert [next(walk).step, next(walk).step] == [0, 1]
        with pytest.raises(ZeroDivisionError, match="in the source"):
            next(walk)
        assert data.state()["step"] == 2
        data.seek(0, 3)
        assert [b.step for b in data] == [3, 4]


def test_a_source_that_gives_too_little():
    class Short(Arrays):
        def read(self, ids: Any) -> list[Any]:
            return super().read(ids)[1:]

    with (
        feed(Short(NUMBERS), [], batch=10) as data,
        pytest.raises(TypeError, match=r"Short.read\(\d+ ids\) gave \d+ ent"),
    ):
        next(iter(data))


EXIT = """
import sys
import fastfeed as ff
feed = ff.Feed(ff.ImageFolder(sys.argv[1]), [ff.RandomResizedCrop(16)], batch=4, prefetch=4)
walk, aside = iter(feed), feed.batches(3)
next(walk), next(aside)
print("first batch", flush=True)
{}
"""


@pytest.mark.parametrize(
    ("how", "code"), [("", 0), ("sys.exit(3)", 3), ("raise KeyError('user')", 1), ("del feed; del walk", 0)]
)
def test_the_interpreter_may_end_in_the_middle(photos, python, how, code):
    done = python(EXIT.format(how), photos.root)
    assert (done.returncode, done.stdout) == (code, "first batch\n"), done.stderr
    assert done.stderr == "" or (code == 1 and done.stderr.rstrip().endswith("KeyError: 'user'"))


INTERRUPT = """
import threading
import numpy as np, fastfeed as ff
go = threading.Event()
class Slow(ff.Arrays):
    def read(self, ids):
        print("reading", flush=True)
        go.wait()
        return super().read(ids)
feed = ff.Feed(Slow(np.zeros((8, 8, 8, 3), "uint8")), [], batch=8, threads=1)
try:
    next(iter(feed))
except KeyboardInterrupt:
    go.set()
    feed.close()
    print("left", [t.name for t in threading.enumerate() if t.name.startswith("fastfeed")])
"""


def test_ctrl_c_while_waiting_for_a_slow_source():
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "reading\n"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out, err) == (0, "left []\n", "")


# -- memory


def address(batch: Batch) -> int:
    return batch.images.__array_interface__["data"][0]


def test_memory_is_used_again_when_dropped_and_never_while_held():
    data = numbers(prefetch=1)
    seen = {address(batch) for epoch in range(8) for batch in data}
    assert len(seen) <= 3, "one in use, one ahead, one being made"
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
    ("world", "name"), [(World(), "t.jsonl"), (World(0, 2), "t.rank0.jsonl"), (World(1, 2), "t.rank1.jsonl")]
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
    assert str(error.value) == (
        f"cannot write the timeline {tmp_path}/gone/t.jsonl: No such file or directory; correct FASTFEED_TIMELINE"
    )


# -- refusals

REFUSED: list[tuple[dict[str, Any], type[FastfeedError], str]] = [
    (
        {"batch": None},
        ConfigError,
        "give batch (per rank) or global_batch, one of them; got batch=None, global_batch=None",
    ),
    (
        {"global_batch": 8},
        ConfigError,
        "give batch (per rank) or global_batch, one of them; got batch=8, global_batch=8",
    ),
    ({"batch": 0}, ConfigError, "batch must be an integer >= 1, got 0"),
    (
        {"batch": 31},
        ConfigError,
        "the global batch must not exceed the data: got 31 samples per step and 30 samples in the source; "
        'lower batch, or use tail="pad"',
    ),
    ({"seed": -1}, ConfigError, "seed must be an integer in [0, 2**64), got -1"),
    ({"shuffle": "blocks"}, ConfigError, 'shuffle must be "full", "none" or Blocks(...), got \'blocks\''),
    ({"tail": "keep"}, ConfigError, 'tail must be "drop" or "pad", got \'keep\''),
    ({"threads": 0}, ConfigError, "threads must be an integer >= 1, got 0"),
    ({"threads": 2.5}, ConfigError, "threads must be an integer >= 1, got 2.5"),
    ({"prefetch": -1}, ConfigError, "prefetch must be an integer >= 0, got -1"),
    ({"decode": "opencv"}, ConfigError, "decode must be one of auto, pillow, got 'opencv'"),
    ({"backend": "gpu"}, ConfigError, "backend must be one of cpu, dali, got 'gpu'"),
    ({"on_bad": "skip"}, ConfigError, 'on_bad must be "substitute", "mask" or "raise", got \'skip\''),
    ({"quarantine": "/nowhere/bad.jsonl"}, ConfigError, "quarantine: no folder /nowhere; create it first"),
    (
        {"ops": [Resize]},
        ConfigError,
        "ops[0] must be an op such as Resize(224), got the class Resize; write Resize(...)",
    ),
    (
        {"ops": [Resize(16), Decode()]},
        SpecError,
        "Resize needs HWC pixels, got encoded bytes; put Decode() before it",
    ),
    (
        {"ops": []},
        SpecError,
        "a batch needs samples of one size, got HWC uint8[?, ?, 3] at the end of the list; "
        "add Resize((height, width)), CenterCrop(size) or RandomResizedCrop(size)",
    ),
]


@pytest.mark.parametrize(("how", "kind", "text"), REFUSED, ids=lambda value: str(value)[:40])
def test_refuses(photos, how, kind, text):
    with pytest.raises(ConfigError) as error:
        feed(photos, **({"batch": 8, "ops": OPS} | how))
    assert (type(error.value), str(error.value)) == (kind, text)


def test_refuses_a_missing_folder():
    with pytest.raises(SourceError, match="ImageFolder: /nowhere/train does not exist; pass the folder that holds"):
        feed(ImageFolder("/nowhere/train"), batch=8)


def test_refuses_a_rank_outside_the_world(photos, monkeypatch):
    monkeypatch.setenv("RANK", "4")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ConfigError, match=r"rank must be in \[0, 4\), got 4; pass the global rank, not the local one"):
        feed(photos, batch=8)


@pytest.mark.parametrize(("epoch", "start"), [(-1, 0), (0, -1), (0, 5)])
def test_refuses_positions_outside(epoch, start):
    data = numbers()
    for use in (data.batches, data.seek):
        with pytest.raises(ConfigError) as error:
            use(epoch, start)
        assert str(error.value) == (
            f"start must be in [0, 5) and epoch >= 0, got start={start}, epoch={epoch}; this feed has 5 steps per epoch"
        )


def test_nothing_starts_before_the_first_batch(photos):
    data = feed(photos, batch=8)
    assert str(data) and repr(data) and len(data) and data.stats() and data.state()
    assert not ours()


def test_default_threads_are_shared_by_the_ranks_of_a_machine(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    source = Arrays(NUMBERS)
    got = [Feed(source, [], batch=1, world=World(0, size, 0, size)).threads for size in (1, 4, 32)]
    assert got == [16, 4, 1]


def test_real_photographs(data: Path):
    source = ImageFolder(data / "flowers5" / "val")
    with feed(source, [RandomResizedCrop(64)], batch=8) as photographs:
        batch = next(iter(photographs))
    assert Spec(batch.images.shape[1:], str(batch.images.dtype), "HWC") == Spec((64, 64, 3), "uint8", "HWC")
    assert len({image.tobytes() for image in batch.images}) == 8


# -- reading a few at a time


def test_large_files_are_decoded_as_they_come(photos, monkeypatch):
    """However few encoded bytes a task may hold, the batches are the same."""
    with feed(photos, batch=10, threads=1) as data:
        whole = list(data)
    monkeypatch.setattr(assemble, "_READ_BYTES", 1)
    monkeypatch.setattr(assemble, "_READ_AT_ONCE", 3)
    with feed(photos, batch=10, threads=1) as data:
        assert equal(list(data), whole)


def test_a_stop_is_seen_between_reads():
    reading, go, reads = threading.Event(), threading.Event(), []

    class Slow(Arrays):
        def read(self, ids):
            reads.append(len(ids))
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
    assert sum(reads) <= 4, "one small read, not the whole task's"


def test_an_error_before_the_first_batch_does_not_cost_an_epoch():
    class Once(Arrays):
        broken = True

        def read(self, ids):
            if self.broken:
                raise ConnectionError("storage is away")
            return super().read(ids)

    source = Once(NUMBERS)
    with Feed(source, [], batch=5) as data:
        for _ in range(2):
            with pytest.raises(ConnectionError):
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
