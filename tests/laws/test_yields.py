"""Laws of `yields` over every adapter and every kind of fields.

JAX, which forks badly, follows them in adapters/jax_checks.py, and Keras in adapters/keras_session.py.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest
from helpers.field_feeds import (
    CAPTIONS,
    FEEDS,
    IMAGES,
    LABELS,
    Dated,
    Described,
    N,
    Read,
    assert_holds,
    check_yields,
    default_of,
    feed,
    structures,
)
from helpers.needs import needs
from helpers.source_examples import SOURCES, small_feed

import fastfeed as ff
from fastfeed.adapters.batch_tuples import BatchTuples
from fastfeed.errors import ConfigError
from fastfeed.feed.session import FeedSession

ADAPTERS = {
    "torch": lambda made, yields: made.to_torch("cpu", yields=yields),
    "torch, converted by PyTorch": lambda made, yields: made.to_torch("cpu", "device", yields),
    "tfdata": lambda made, yields: made.to_tfdata(yields=yields),
}
EACH = [
    pytest.param(name, marks=needs("tensorflow" if name == "tfdata" else "torch"))
    for name in ADAPTERS
]


@pytest.mark.parametrize("kind", FEEDS)
@pytest.mark.parametrize("adapter", EACH)
def test_items_have_the_structure_that_yields_says(adapter, kind, tmp_path):
    with feed(kind, tmp_path, tail="pad") as made:
        loaders = [(made.batches(0), ADAPTERS[adapter](made, None), default_of(made, False))]
        # TensorFlow traces each: dicts and lists of all fields, and every one where that is quick
        skipped = 4 if adapter == "tfdata" and kind != "plain" else 0
        for epoch, yields in enumerate(structures(made)[skipped:], 1):
            loaders.append((made.batches(epoch), ADAPTERS[adapter](made, yields), yields))
        for batches, loader, structure in loaders:
            for batch, item in zip(batches, loader, strict=True):
                rows = slice(0, N % 4 if batch.step == 2 else 4)
                cut = {name: batch[name][rows] for name in batch.keys()}  # noqa: SIM118
                assert_holds(item, structure, cut, listed=adapter != "tfdata")


@pytest.mark.parametrize("name", SOURCES)
def test_batches_of_every_source_have_the_stated_fields(name, tmp_path):
    with small_feed(name, tmp_path) as made:
        batch = next(iter(made))
        assert [*made.fields] == [*batch.keys()]
        for field in made.fields.values():
            values = batch[field.name]
            if field.is_array:
                assert (values.shape[1:], str(values.dtype)) == (field.shape, field.dtype)
            else:
                assert field.dtype == "str" and {*map(type, values)} == {str}


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize(
    "adapter",
    [EACH[0], pytest.param("tfdata", marks=[needs("tensorflow"), pytest.mark.slow])],
)
def test_adapters_yield_every_source(adapter, name, tmp_path):
    with small_feed(name, tmp_path) as made:
        chosen = structures(made) if adapter != "tfdata" else [structures(made)[-1]]
        check_yields(made, ADAPTERS[adapter], chosen, listed=adapter != "tfdata")


def tuples_of(source: Any, yields: Any, how: dict[str, Any], **options: Any) -> BatchTuples:
    """The tuples of a feed with padding."""
    settings: dict[str, Any] = {"batch": 4, "tail": "pad", "shuffle": False, "threads": 1}
    return BatchTuples.of(FeedSession.of(ff.Feed(source, [], **settings | options)), yields, **how)


NO_WEIGHTS = ("image", "label")
TORCH, KERAS, JAX = {}, {"weighted": True}, {"weighted": True, "padded": True}
MASKED = 'on_bad="mask" makes a bad sample black, with weight 0, and yields has no weights'
PADDED = 'tail="pad" fills the last batch with samples of weight 0, and yields has no weights'


@pytest.mark.parametrize(
    ("how", "options", "words"),
    [
        (TORCH, {}, ""),
        (TORCH, {"world": ff.World(1, 2)}, ""),
        (KERAS, {}, ""),
        (KERAS, {"world": ff.World(1, 2)}, PADDED),
        (JAX, {}, PADDED),
        (JAX, {"batch": 5}, ""),
        (JAX, {"tail": "drop"}, ""),
        *((how, {"on_bad": "mask", "tail": "drop"}, MASKED) for how in (TORCH, KERAS, JAX)),
    ],
)
def test_weights_that_are_needed_must_be_named(how, options, words):
    """Padding is cut off where no weights mask it, or refused where it cannot be cut off."""
    source = ff.Arrays(IMAGES, LABELS)
    if words:
        with pytest.raises(ConfigError, match=words):
            tuples_of(source, NO_WEIGHTS, how, **options)
    else:
        tuples = tuples_of(source, NO_WEIGHTS, how, **options)
        assert tuples.names == NO_WEIGHTS and tuples.loose == (tuples.last >= 0)
    named = tuples_of(source, (*NO_WEIGHTS, "weight"), how, **options)
    default = tuples_of(source, None, how, **options)
    if default.names == named.names:
        assert (named.last, named.loose) == (default.last, default.loose)


def test_weights_of_the_source_may_be_left_out_and_padding_is_cut_off_then():
    class Weighed(ff.Arrays):
        def weights(self, ids):
            return np.ones(len(ids), np.float32)

    source, two = Weighed(IMAGES, LABELS), {"world": ff.World(0, 2), "batch": 3}
    assert tuples_of(source, None, TORCH, **two).names == ("image", "label", "weight")
    assert not tuples_of(source, None, TORCH, **two).loose
    assert tuples_of(source, NO_WEIGHTS, TORCH, **two).loose


ACCEPTED = "the fields are image, label, weight, id, caption, score, tokens"
SHAPES = "yields must be a field's name, or a tuple, list or dict of names, got"


@pytest.mark.parametrize(
    ("yields", "words"),
    [
        ("captoin", f"this feed has no field 'captoin'; {ACCEPTED}"),
        (("image", {"x": ["masks"]}), f"this feed has no field 'masks'; {ACCEPTED}"),
        ((), f"{SHAPES} ()"),
        (("image", {}), f"{SHAPES} {{}}"),
        (("image", 1), f"{SHAPES} 1; for example"),
        ({"image", "label"}, SHAPES),
        (
            ("image", "tokens"),
            "yields cannot hold the field 'tokens' here: its int64 values differ in shape between"
            " samples; leave it out, or make another field of it with ff.Map",
        ),
    ],
)
def test_wrong_choices_are_refused_at_the_call(yields, words):
    with pytest.raises(ConfigError) as error:
        tuples_of(Read(IMAGES, LABELS), yields, TORCH)
    assert words in str(error.value)


@pytest.mark.parametrize("adapter", [EACH[0], EACH[2]])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("taken", "has no tensors of datetime64[D]"),
        ("notes", "are Python objects other than texts"),
    ],
)
def test_a_dtype_that_a_framework_lacks_is_refused_by_name(adapter, name, words):
    with ff.Feed(Dated(IMAGES, LABELS), [], batch=4) as made:
        with pytest.raises(ConfigError) as error:
            ADAPTERS[adapter](made, ("image", name))
        assert f"the field {name!r} here: " in str(error.value) and words in str(error.value)


def test_class_weights_need_the_label_and_the_weight():
    factors, source = np.array([1, 2, 3], np.float32), Described(IMAGES, LABELS)
    how = KERAS | {"factors": factors}
    tuples = tuples_of(source, ("image", {"year": "year", "kind": "label"}, "weight"), how)
    with ff.Feed(source, [], batch=4, shuffle=False) as made:
        _, year, labels, weights = tuples(next(iter(made)))
    assert weights.tolist() == factors[labels].tolist() and year.tolist() == [
        2000,
        2001,
        2002,
        2003,
    ]
    with pytest.raises(ConfigError, match='class_weight is part of the field "weight"; name "wei'):
        tuples_of(source, ("image", "label"), how)
    with pytest.raises(ConfigError, match='is by the field "label" of an image, and this feed yie'):
        tuples_of(source, ("image", "year", "weight"), how)
    halves = ff.Feed(source, [ff.Map(lambda label: label / 2, "label", out="label")], batch=4)
    with halves, pytest.raises(ConfigError, match="needs class numbers as labels, got float64"):
        BatchTuples.of(FeedSession.of(halves), **how)


@pytest.mark.parametrize(
    ("late", "words"),
    [
        (None, ""),  # NaN is a float32
        (np.float64(0.1), "to be float32 of shape () in every batch, got float64 of shape ()"),
        (np.ones(2), "in every batch, got object of shape ()"),
    ],
)
def test_a_column_keeps_its_type_in_every_batch(late, words):
    class Changing(Read):
        """The last score is another one once the type of scores is known."""

        last: Any = np.float32(1)

        def column_values(self, ids):
            return [{"score": self.last if i == N - 1 else np.float32(1)} for i in ids]

    source = Changing(IMAGES, LABELS)
    with ff.Feed(source, [], batch=5, shuffle=False) as made:
        tuples = BatchTuples.of(FeedSession.of(made), ("id", "score"))
        source.last = late
        first, second = made
    assert tuples(first)[1].dtype == np.float32
    if words:
        with pytest.raises(ConfigError, match=re.escape(words)):
            tuples(second)
    else:
        assert np.isnan(tuples(second)[1][-1])


def test_a_choice_is_not_changed_by_its_list():
    names = ["image", "label"]
    with ff.Feed(ff.Arrays(IMAGES, LABELS), [], batch=4) as made:
        tuples = BatchTuples.of(FeedSession.of(made), names)
        names.append("id")
        assert tuples.nested([1, 2]) == [1, 2]


@pytest.mark.parametrize("sizes", [(1, 2), (2, 1)])
def test_captions_stay_with_their_images_at_another_world_size(sizes):
    """Resumed inside an epoch, the ranks together have the rest of it."""
    pytest.importorskip("torch", reason="needs PyTorch: pip install torch")
    before, after = sizes
    source, seen = Described(IMAGES, LABELS), []
    state: dict[str, Any] = {}
    for size, resumes in ((before, False), (after, True)):
        for rank in range(size):
            with ff.Feed(
                source, [], global_batch=4, seed=1, tail="pad", world=ff.World(rank, size)
            ) as made:
                loader = made.to_torch("cpu", yields={"x": ("image", "caption"), "id": "id"})
                if resumes:
                    loader.load_state_dict(state)
                for item in itertools.islice(loader, None if resumes else 1):
                    images, captions = item["x"]
                    for image, caption, i in zip(images, captions, item["id"], strict=True):
                        assert caption == CAPTIONS[i]
                        np.testing.assert_array_equal(image, IMAGES[i])
                        seen.append(int(i))
                if not resumes and rank == size - 1:
                    state = loader.state_dict()
    assert sorted(seen) == list(range(N))
