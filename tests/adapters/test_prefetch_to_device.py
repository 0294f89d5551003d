"""`prefetch_to_device`: batches of any iterable, on a device ahead of time, as they were when they
were yielded.
"""

import collections
import dataclasses
import gc
import itertools
import threading

import numpy as np
import pytest
from helpers.needs import LazyModule, needs

import fastfeed as ff
from fastfeed.errors import ConfigError, FeedClosed
from fastfeed.runtime.placement import flatten

torch = LazyModule("torch")
pytestmark = needs("torch")

Pair = collections.namedtuple("Pair", "x y")


@dataclasses.dataclass(frozen=True)
class Item:
    x: np.ndarray
    name: str


def ours() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("fastfeed-device")]


def test_items_come_in_order_with_their_arrays_as_tensors():
    items = [
        np.arange(3),
        (np.arange(4), 5, "text", None),
        [np.zeros((2, 2)), {"a": np.ones(1), "b": [np.full(2, 7)]}],
        Pair(np.arange(2), "y"),
        Item(np.arange(5), "five"),
    ]
    one, two, three, four, five = ff.prefetch_to_device(items, "cpu")
    assert isinstance(one, torch.Tensor) and one.tolist() == [0, 1, 2]
    assert two[0].tolist() == [0, 1, 2, 3] and two[1:] == (5, "text", None)
    assert three[1]["b"][0].tolist() == [7, 7] and isinstance(three, list)
    assert isinstance(four, Pair) and four.x.tolist() == [0, 1] and four.y == "y"
    assert isinstance(five, Item) and five.x.tolist() == list(range(5)) and five.name == "five"


def test_a_generator_may_fill_the_same_array_again():
    buffer = np.zeros((100, 100), np.float32)

    def batches():
        for i in range(30):
            buffer[:] = i
            yield buffer

    kept = list(ff.prefetch_to_device(batches(), "torch:cpu", depth=4))
    assert [tensor.unique().tolist() for tensor in kept] == [[i] for i in range(30)]


def test_it_works_ahead_by_depth_and_no_further():
    drawn, more = [], threading.Semaphore(0)

    def batches():
        for i in itertools.count():
            drawn.append(i)
            more.release()
            yield np.array([i])

    items = ff.prefetch_to_device(batches(), "cpu", depth=3)
    assert not drawn, "nothing before the first is asked for"
    for i in range(5):
        assert next(items).tolist() == [i]
        for _ in range(4 if i == 0 else 1):
            assert more.acquire(timeout=10)
        assert len(drawn) == i + 4
    items.close()


def test_an_error_comes_at_its_items_turn_and_ends_it():
    def batches():
        yield np.zeros(1)
        yield np.ones(1)
        raise KeyError("the user's own")

    items = ff.prefetch_to_device(batches(), "cpu", depth=5)
    assert [next(items).item(), next(items).item()] == [0, 1]
    with pytest.raises(KeyError, match="the user's own"):
        next(items)
    with pytest.raises(FeedClosed):
        next(items)
    assert not ours()


def test_threads_end_with_the_items_with_close_and_with_the_iterator():
    assert len(list(ff.prefetch_to_device([np.zeros(1)] * 3, "cpu"))) == 3
    assert not ours()
    items = ff.prefetch_to_device(itertools.repeat(np.zeros(1)), "cpu")
    next(items)
    assert ours()
    items.close()
    assert not ours()
    items = ff.prefetch_to_device(itertools.repeat(np.zeros(1)), "cpu")
    next(items)
    del items
    gc.collect()
    assert not ours()


def test_arrays_that_a_framework_does_not_take_as_they_are():
    locked = np.arange(4)
    locked.flags.writeable = False
    items = [
        locked,
        np.arange(4)[::-1],
        np.arange(12).reshape(3, 4).T,
        np.array(5),
        np.empty((0, 3)),
    ]
    for tensor, item in zip(ff.prefetch_to_device(items, "cpu"), items, strict=True):
        np.testing.assert_array_equal(tensor.numpy(), item)


def test_of_a_feed_it_gives_batches():
    images = np.random.default_rng(0).integers(0, 256, (20, 6, 6, 3), dtype=np.uint8)
    with ff.Feed(ff.Arrays(images, np.arange(20)), [ff.ToFloat()], batch=8) as feed:
        for placed, batch in zip(
            ff.prefetch_to_device(feed, torch.device("cpu")), feed.batches(0), strict=True
        ):
            assert isinstance(placed, ff.Batch) and isinstance(placed.images, torch.Tensor)
            np.testing.assert_array_equal(placed.images.numpy(), batch.images)
            assert placed.labels.tolist() == batch.labels.tolist() == placed.ids.tolist()
            assert (placed.epoch, placed.step, len(placed)) == (batch.epoch, batch.step, 8)
        assert feed.state()["epoch"] == 1
        assert feed.stats().batches == 4, "two of the walk, two of batches()"


def test_a_feeds_weights_come_too_and_its_position_is_the_trainers():
    images = np.zeros((26, 6, 6, 3), np.uint8)
    with ff.Feed(
        ff.Arrays(images), [], batch=8, tail="pad", shuffle=False, world=ff.World(1, 2, 1, 2)
    ) as feed:
        walk = ff.prefetch_to_device(feed, "cpu")
        assert next(walk).weights.tolist() == [1.0] * 8
        state = feed.state()
        assert (state["epoch"], state["step"]) == (0, 1)
        assert next(walk).weights.tolist() == [1.0] * 5 + [0.0] * 3
    with ff.Feed(
        ff.Arrays(images), [], batch=8, tail="pad", shuffle=False, world=ff.World(1, 2, 1, 2)
    ) as feed:
        feed.restore(state)
        assert [batch.step for batch in ff.prefetch_to_device(feed, "cpu")] == [1]


def test_kept_outside_of_the_epoch_loop_it_yields_every_epoch():
    with ff.Feed(ff.Arrays(np.zeros((16, 6, 6, 3), np.uint8)), [], batch=4) as feed:
        loader = ff.prefetch_to_device(feed, "cpu")
        assert len(loader) == 4
        assert [[(b.epoch, b.step) for b in loader] for _ in range(3)] == [
            [(e, s) for s in range(4)] for e in range(3)
        ]
        for _ in loader:  # left inside an epoch, as a feed is
            break
        assert [b.epoch for b in loader] == [4] * 4
        assert next(loader).step == 0 and [b.step for b in loader] == [1, 2, 3]
        assert next(loader).epoch == 6


def test_whatever_can_be_iterated_again_is():
    items = [np.full(1, i) for i in range(3)]
    loader = ff.prefetch_to_device(items, "cpu", depth=1)
    assert len(loader) == 3
    assert [[int(item) for item in loader] for _ in range(3)] == [[0, 1, 2]] * 3
    assert next(loader).item() == 0
    loader.close()
    once = ff.prefetch_to_device(iter(items), "cpu")
    assert [int(item) for item in once] == [0, 1, 2]
    assert not ours()


@pytest.mark.parametrize(
    ("device", "depth", "words"),
    [
        (
            object(),
            2,
            "device must be a torch.device, a jax.Device, a jax Sharding, or a name such as",
        ),
        (None, 2, "device must be a torch.device"),
        ("nowhere", 2, "device must be one that this PyTorch computes on, got 'nowhere'"),
        ("cpu", 0, "depth must be an integer >= 1, got 0"),
        ("cpu", True, "depth must be an integer >= 1, got True"),
    ],
)
def test_words_for_wrong_arguments(device, depth, words):
    with pytest.raises(ConfigError) as caught:
        ff.prefetch_to_device([np.zeros(1)], device, depth=depth)
    assert words in str(caught.value)
    with pytest.raises(ConfigError, match="prefetch_to_device needs an iterable of batches, got 5"):
        ff.prefetch_to_device(5, "cpu")


def test_flatten_leaves_what_it_does_not_know():
    arrays, rebuild = flatten({"a": {1, 2}, "b": (np.arange(2), object)})
    assert len(arrays) == 1
    assert rebuild(iter(["x"])) == {"a": {1, 2}, "b": ("x", object)}
