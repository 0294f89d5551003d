"""What trainers are given of a batch, before any framework: labels and their weights."""

import numpy as np
import pytest

import fastfeed as ff
from fastfeed.adapters.batch_tuples import BatchTuples
from fastfeed.adapters.keras.epochs import Epochs
from fastfeed.errors import ConfigError
from fastfeed.feed.session import FeedSession

IMAGES, LABELS = np.zeros((20, 6, 4, 3), np.uint8), np.arange(20) % 5 - 1  # -1: without a label
FACTORS = np.array([1, 4, 1, 0.5], np.float32)
HOW = {"torch": {}, "keras": {"weighted": True}, "jax": {"weighted": True, "padded": True}}
SOFT = [ff.OneHot(4), ff.MixUp(1.0)]


def feed(ops, **options):
    return ff.Feed(ff.Arrays(IMAGES, LABELS), ops, **{"batch": 8, "seed": 2, **options})


def test_zeros_look_as_batches_do():
    for ops in ([], [ff.OneHot(4)], [*SOFT, ff.ToFloat("float16"), ff.ToLayout("CHW")]):
        for factors in (None, FACTORS):
            with feed(ops) as data:
                epochs = Epochs(FeedSession.of(data), factors=factors)
                found = next(epochs.walk())
                assert [(z.shape, z.dtype) for z in epochs.zeros()] == [
                    (f.shape, f.dtype) for f in found
                ]


def test_integer_labels_weigh_what_their_class_weighs():
    with feed([]) as data:
        # classes beyond weigh 1, and so does no label
        tuples = BatchTuples.of(FeedSession.of(data), factors=FACTORS[:3])
        for batch in data.batches(0):
            _, labels, weights = tuples(batch)
            assert weights.tolist() == [
                {-1: 1, 0: 1, 1: 4, 2: 1, 3: 1}[label] for label in labels.tolist()
            ]


def test_class_weights_need_labels():
    with ff.Feed(ff.Arrays(IMAGES), [], batch=8) as data:
        with pytest.raises(ConfigError, match=r"class_weight needs a source with labels, got .*"):
            BatchTuples.of(FeedSession.of(data), factors=FACTORS)
    numbered = ff.Map(lambda ids: ids % 4, "id", out="label", shape=(), dtype="int64")
    with ff.Feed(ff.Arrays(IMAGES), [numbered], batch=8, shuffle=False) as data:
        _, _, weights = BatchTuples.of(FeedSession.of(data), factors=FACTORS)(next(iter(data)))
        assert weights.tolist() == [*FACTORS, *FACTORS]


def test_soft_labels_weigh_the_mean_of_their_classes_by_share():
    table = {-1: 1, 0: 1, 1: 4, 2: 1, 3: 0.5}
    with feed([ff.OneHot(4)]) as data, feed([]) as plain:
        for batch, same in zip(data.batches(0), plain.batches(0), strict=True):
            weights = BatchTuples.of(FeedSession.of(data), factors=FACTORS)(batch)[2]
            assert weights.dtype == np.float32
            assert weights.tolist() == [table[label] for label in same.labels.tolist()]
    with feed(SOFT) as data:
        mixed = [batch.labels for batch in data.batches(0)]
        assert any(0.1 < share < 0.9 for labels in mixed for share in labels.ravel())
        for factors in (
            FACTORS,
            np.append(FACTORS, [9, 9]),
            FACTORS[:3],
        ):  # more than there are, and fewer
            known = np.append(factors, [1])[:4]
            for batch in data.batches(0):
                weights = BatchTuples.of(FeedSession.of(data), factors=factors.astype(np.float32))(
                    batch
                )[2]
                rest = 1 - batch.labels.sum(axis=1)  # of a partner without a label
                np.testing.assert_allclose(weights, batch.labels @ known + rest, rtol=1e-6)


def test_padding_of_soft_labels_is_cut_off():
    with feed([ff.OneHot(4)], tail="pad", shuffle=False) as data:
        tuples = BatchTuples.of(FeedSession.of(data))
        assert [tuples(batch)[1].shape for batch in data.batches(0)] == [(8, 4), (8, 4), (4, 4)]


@pytest.mark.parametrize("samples", [44, 48, 56])
@pytest.mark.parametrize("options", [{}, {"on_bad": "mask"}], ids=str)
@pytest.mark.parametrize("how", HOW.values(), ids=HOW)
def test_the_number_of_items_does_not_depend_on_the_number_of_ranks(samples, options, how):
    """And each sample comes once, by the weights where there are any."""
    arities = set()
    for size in (1, 2, 3, 8):
        seen, shapes = [], set()
        for rank in range(size):
            source = ff.Arrays(np.zeros((samples, 4, 4, 3), np.uint8), np.arange(samples))
            world = ff.World(rank, size)
            with ff.Feed(
                source, [], batch=8, shuffle=False, tail="pad", world=world, **options
            ) as data:
                tuples = BatchTuples.of(FeedSession.of(data), **how)
                for batch in data.batches(0):
                    images, labels, *weights = tuples(batch)
                    arities.add(len(weights))
                    shapes.add(len(images))
                    assert len(images) > 0
                    counted = weights[0] > 0 if weights else slice(None)
                    seen += labels[counted].tolist()
        assert sorted(seen) == list(range(samples))
        if how.get("padded") or (size > 1 and (how or options)):
            assert shapes == {8}, "one shape on all ranks"
    assert len(arities) == 1


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_an_empty_batch_of_a_rank_is_refused_on_all(rank):
    """Where fewer samples are left than there are ranks."""
    world = ff.World(rank, 3)
    with ff.Feed(ff.Arrays(IMAGES, LABELS), [], batch=3, tail="pad", world=world) as data:
        with pytest.raises(ConfigError) as error:
            BatchTuples.of(FeedSession.of(data))
        assert (
            str(error.value)
            == 'tail="pad" leaves 2 of 20 samples to the last batch of 3 ranks, which would be'
            ' empty on some, and the mean of its losses NaN; use tail="drop", another batch'
            ' size, or on_bad="mask", which gives every rank a full batch and weights, 0 for'
            " padding: divide by their sum over all ranks"
        )
    for options in ({"on_bad": "mask"}, {"tail": "drop"}, {"batch": 4}):
        with feed([], world=world, **{"batch": 3, "tail": "pad", **options}) as data:
            assert all(
                len(BatchTuples.of(FeedSession.of(data))(batch)[0]) for batch in data.batches(0)
            )
    with feed([], world=world, batch=3, tail="pad", on_bad="mask") as data:
        *_, (_, _, weights) = map(BatchTuples.of(FeedSession.of(data)), data.batches(0))
        assert weights.tolist() == [rank < 2, 0, 0]  # the last rank has padding alone
