"""Users' functions on fields of whole batches: what they get, what they give, what fails."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import field_feeds
from helpers.feeds import NUMBERS
from helpers.helper_feeds import side

import fastfeed as ff
from fastfeed.adapters.batch_tuples import BatchTuples
from fastfeed.errors import ConfigError, SampleError, TooManyFailures
from fastfeed.faults import FaultPolicy
from fastfeed.feed.session import FeedSession

N = 24
WORDS = np.array([f"number {i}" for i in range(N)], object)


class Captioned(ff.Arrays):
    """Texts, and numbers, next to images whose pixels are all the sample's id."""

    def columns(self, ids):
        return {"caption": WORDS[ids], "price": np.asarray(ids, np.float32) / 2}


SOURCE = Captioned(NUMBERS[:N], np.arange(N) % 3 + 1)


def batches(*maps, ops=(), epoch=0, **more):
    options = {"batch": 6, "shuffle": False, "threads": 2} | more
    with ff.Feed(SOURCE, [*ops, *maps], **options) as feed:
        return list(feed.batches(epoch)), feed.stats().bad


def below_zero(label):
    return label - 1


def lengths(captions):
    assert all(type(caption) is str for caption in captions) and type(captions) is list
    return [len(caption) for caption in captions]


def heads(label):
    return {"one_hot": np.eye(4, dtype=np.float32)[label], "odd": label % 2 == 1, "more": None}


def test_labels_columns_texts_and_several_outputs():
    made, _ = batches(
        ff.Map(below_zero, "label", out="label"),
        ff.Map(lengths, "caption", out="length", dtype="int32"),
        ff.Map(heads, "label", out=("odd", "one_hot")),
        ff.Map(
            lambda price, length: (price + length, ["é"] * len(price)),
            "price",
            "length",
            out=("s", "t"),
        ),
    )
    for batch in made:
        ids = batch.ids
        np.testing.assert_array_equal(batch.labels, ids % 3)
        np.testing.assert_array_equal(batch["one_hot"].argmax(1), ids % 3)
        assert batch["label"] is batch.labels and batch["odd"].dtype == bool
        assert batch["length"].dtype == np.int32
        np.testing.assert_array_equal(batch["length"], [len(f"number {i}") for i in ids])
        np.testing.assert_array_equal(batch["s"], ids / 2 + batch["length"])
        assert batch["t"].dtype == object and batch["t"].tolist() == ["é"] * 6
        assert "more" not in batch


def test_a_map_sees_what_the_trainer_sees_wherever_it_stands():
    mean = ff.Map(
        lambda image, label: (image.mean((1, 2, 3)), label.sum(1)), "image", "label", out=("m", "s")
    )
    ops = [mean, ff.Invert(), ff.OneHot(4), ff.MixUp(), ff.ToFloat(), ff.ToLayout("CHW")]
    made, _ = batches(ops=ops)
    for batch in made:
        assert batch.images.dtype == np.float32 and batch["m"].dtype == np.float32
        np.testing.assert_allclose(batch["m"], batch.images.mean((1, 2, 3)), rtol=1e-6)
        np.testing.assert_allclose(batch["s"], 1, rtol=1e-6)
    without, _ = batches(ops=ops[1:])
    for batch, same in zip(made, without, strict=True):
        np.testing.assert_array_equal(batch.images, same.images)


def test_views_and_masks():
    source = ff.Objects(SOURCE, masks=[np.full((8, 8), i % 5, np.uint8) for i in range(N)])
    classes = np.array([0, 7, 7, 9, 9])
    with ff.Feed(
        source, [ff.Map(lambda masks: classes[masks], "masks", out="masks")], batch=6
    ) as feed:
        batch = next(iter(feed))
        assert batch["masks"] is batch.masks and batch.masks.dtype == np.int64
        np.testing.assert_array_equal(batch.masks[:, 0, 0], classes[batch.ids % 5])
        assert feed.fields["masks"] == ff.Field("masks", (8, 8), "int64")
    made, _ = batches(
        ff.Map(lambda a, b: a[:, 0, 0, 0] - b[:, 0, 0, 0], "view_0", "view_4", out="d"),
        ops=[ff.FiveCrop(4)],
    )
    assert not made[0]["d"].any()


def test_weights_of_padding_stay_zero():
    with ff.Feed(
        SOURCE,
        [ff.Map(lambda price: price + 1, "price", out="weight")],
        batch=9,
        tail="pad",
        shuffle=False,
    ) as feed:
        last = list(feed)[-1]
        assert FeedSession.of(feed).weighted
    assert last.weights.dtype == np.float32
    np.testing.assert_array_equal(last.weights, [10, 10.5, 11, 11.5, 12, 12.5, 0, 0, 0])


@pytest.mark.parametrize("on_bad", ["raise", "substitute"])
def test_named_rows_follow_the_policy_for_bad_samples(on_bad):
    def none_is_good(label):
        raise SampleError("never", rows=range(len(label)))

    error, words = (
        (SampleError, "never") if on_bad == "raise" else (TooManyFailures, "too many bad samples")
    )
    with pytest.raises(error, match=words):
        batches(ff.Map(none_is_good, "label", out="x"), on_bad=on_bad, threads=1)


def test_the_limit_counts_a_sample_once_however_often_its_batch_is_made():
    def most_are_bad(ids):
        if (bad := np.flatnonzero(ids % 5 < 3)).size:
            raise SampleError("no", rows=bad.tolist())
        return ids

    source = ff.Arrays(np.zeros((80, 4, 4, 3), np.uint8))
    ops = [ff.Map(most_are_bad, "id", out="x")]
    with ff.Feed(source, ops, batch=16, shuffle=False, threads=1, prefetch=0) as feed:
        with pytest.raises(TooManyFailures, match="of 64 samples are bad, the limit is 25%"):
            list(feed)


def test_inputs_cannot_be_changed_and_outputs_can():
    def changes(label):
        label += 1
        return label

    with pytest.raises(SampleError, match="read-only"):
        batches(ff.Map(changes, "label", out="x"))
    made, _ = batches(ff.Map(lambda label: label, "label", out="x"))
    made[0]["x"][:] = 0
    assert made[0].labels.all()


def fails_at_seven(captions):
    if "number 7" in captions:
        raise ValueError("seven")
    return [len(caption) for caption in captions]


def names_seven(captions):
    if "number 7" in captions:
        raise SampleError("no such number", rows=[captions.index("number 7")])
    return [len(caption) for caption in captions]


def test_an_error_is_raised_with_its_sample_and_its_cause():
    with pytest.raises(SampleError) as raised:
        batches(ff.Map(fails_at_seven, "caption", out="x"))
    text = str(raised.value)
    assert (
        "sample 7, array[7]: Map(fails_at_seven, 'caption', out='x') raised ValueError: seven"
        in text
    )
    assert "(test_feed_maps.py, line " in text and 'or pass Feed(on_error="bad")' in text
    assert isinstance(raised.value.__cause__, ValueError)


@pytest.mark.parametrize(
    ("function", "more", "detail"),
    [
        (fails_at_seven, {"on_error": "bad"}, "raised ValueError: seven"),
        (names_seven, {}, "Map(names_seven, 'caption', out='x'): no such number"),
    ],
)
def test_bad_samples_are_replaced_alike_on_any_number_of_ranks(function, more, detail):
    op = ff.Map(function, "caption", out="x")
    made, bad = batches(op, **more)
    assert [(f.id, f.stage, f.reason) for f in bad] == [(7, "augment", "op_failed")]
    assert detail in bad[0].detail
    ids = np.concatenate([batch.ids for batch in made])
    assert ids[7] != 7 and (np.delete(ids, 7) == np.delete(np.arange(N), 7)).all()
    np.testing.assert_array_equal(made[1]["x"], [len(f"number {i}") for i in made[1].ids])
    np.testing.assert_array_equal(made[1].images[:, 0, 0, 0], made[1].ids)
    ranks = [
        batches(op, batch=None, global_batch=6, world=ff.World(rank, 3), **more)[0]
        for rank in range(3)
    ]
    for step, batch in enumerate(made):
        parts = [rank[step] for rank in ranks]
        for name in ("id", "x", "label", "image"):
            np.testing.assert_array_equal(
                np.concatenate([part[name] for part in parts]), batch[name]
            )


def test_masked_samples_get_the_values_of_another():
    policy = FaultPolicy("mask", max_share=1, on_error="bad")
    made, bad = batches(ff.Map(fails_at_seven, "caption", out="x"), on_bad=policy)
    assert [failure.id for failure in bad] == [7]
    assert made[1].weights.tolist() == [1, 0, 1, 1, 1, 1] and not made[1].images[1].any()
    assert made[1]["x"].shape == (6,)


def test_errors_that_are_of_no_sample_are_raised_whatever_the_policy():
    def small(label):
        if len(label) > 1:
            raise ValueError("too long")
        return label

    with pytest.raises(SampleError, match="for 6 samples, but for none of them alone"):
        batches(ff.Map(small, "label", out="x"), on_error="bad")
    with pytest.raises(SampleError, match=r"sample 7.*a row of mixed samples is none of a bad one"):
        batches(
            ff.Map(fails_at_seven, "caption", out="x"),
            ops=[ff.OneHot(4), ff.MixUp()],
            on_error="bad",
            shuffle="none",
        )
    out = ff.Map(lambda label: (_ for _ in ()).throw(SampleError("?", rows=[6])), "label", out="x")
    with pytest.raises(SampleError, match=r"its rows must be integers in \[0, 6\), got \[6\]"):
        batches(out)

    def hungry(label):
        raise MemoryError("64 GB")

    with pytest.raises(MemoryError, match="64 GB"):
        batches(ff.Map(hungry, "label", out="x"), on_error="bad")


@pytest.mark.parametrize(
    ("function", "options", "text"),
    [
        (lambda y: y[1:], {}, "'x' must have 6 rows, as the batch has, got 5"),
        (lambda y: 3, {}, "'x' must have 6 rows, as the batch has, got one value"),
        (lambda y: [object()] * len(y), {}, "'x' must be numbers, texts or arrays, got object"),
        (lambda y: {"z": y}, {}, r"returned \['z'\], without \['x'\]"),
        (lambda y: y / 3, {"dtype": "int64"}, "'x' has values that int64 cannot hold, got float64"),
        (lambda y: y + 300, {"dtype": "uint8"}, "'x' has values that uint8 cannot hold, got int64"),
        (lambda y: np.ones((6, 2)), {"out": "weight"}, r"samples of shape \(\), got \(2,\)"),
        (lambda y: y, {"dtype": "str"}, "'x' must be str, got int64"),
        (lambda y: ["a"] * len(y), {"dtype": "int64"}, "'x' must be int64, got texts"),
        (lambda y: y, {"shape": (2,)}, r"'x' must have samples of shape \(2,\), got \(\)"),
        (lambda y: [range(k) for k in y], {"shape": (1,)}, r"samples of shape \(1,\), got \(2,\)"),
        (
            lambda y: y,
            {"out": ("x", "y")},
            "must return a tuple of 2 outputs, or a mapping of them",
        ),
        (lambda y: (y,), {"out": ("x", "y")}, "must return a tuple of 2 outputs.* returned 1"),
    ],
)
def test_wrong_outputs_end_the_run(function, options, text):
    with pytest.raises(SampleError, match=text):
        batches(ff.Map(function, "label", **({"out": "x"} | options)), on_error="bad")


def test_rows_of_different_lengths():
    made, _ = batches(
        ff.Map(lambda label: [range(k) for k in label], "label", out="r", shape=(None,))
    )
    assert made[0]["r"].dtype == object and made[0]["r"][1].tolist() == [0, 1]
    made, _ = batches(ff.Map(lambda label: [np.ones((2, k)) for k in label], "label", out="r"))
    assert made[0]["r"][1].shape == (2, 2)
    ragged = ff.Map(lambda label: [range(k) for k in label], "label", out="r", dtype="float32")
    assert batches(ragged)[0][0]["r"][1].dtype == np.float32
    with ff.Feed(SOURCE, [ragged], batch=1) as feed:
        assert feed.fields["r"].shape == (None,), "more than the first sample is tried"


def test_fields_are_known_before_a_batch():
    calls = []

    def counted(caption, image, label):
        calls.append(len(caption))
        assert caption[0] == "number 0" and image.shape == (16, 8, 8, 3) and label[0] == 1
        return caption, image[..., 0]

    ops = [
        ff.Map(counted, "caption", "image", "label", out=("text", "gray")),
        ff.Map(lengths, "text", out="length"),
        ff.Map(lengths, "text", out="stated", shape=(), dtype="float32"),
    ]
    with ff.Feed(SOURCE, ops, batch=6) as feed:
        text = str(feed)
        assert not calls and "stated float32[6]" in text
        assert "counted, 'caption', 'image', 'label', out=('text', 'gray')), yours, in Py" in text
        fields = feed.fields
        assert feed.fields is fields and calls == [16]
    found = {name: (field.shape, field.dtype) for name, field in fields.items()}
    assert found["text"] == ((), "str") and found["gray"] == ((8, 8), "uint8")
    assert found["length"] == ((), "int64") and found["stated"] == ((), "float32")
    with ff.Feed(SOURCE, [ff.Map(lambda y: y[0], "label", out="x")], batch=6) as feed:
        with pytest.raises(ConfigError, match=r"shape of an output is not known.*pass its shape="):
            _ = feed.fields


@pytest.mark.parametrize(
    ("op", "more", "text"),
    [
        (
            ff.Map(len, "captoin", out="x"),
            {},
            "no field 'captoin'; the fields are image, label, weight, id, caption",
        ),
        (ff.Map(len, "x", out="x"), {}, "no field 'x'"),
        (
            ff.Map(len, "image", out="x"),
            {"backend": "dali"},
            'backend="dali" keeps images on the GPU',
        ),
    ],
)
def test_refusals_at_construction(op, more, text):
    with pytest.raises(ConfigError, match=text):
        ff.Feed(SOURCE, [op], batch=6, **more)


def test_devices_do_not_convert_what_a_map_has_to_see():
    takes = {"image": True, "label": False}
    for name, is_image in takes.items():
        op = ff.Map(lambda value: value, name, out="x")
        with ff.Feed(SOURCE, [ff.ToFloat(), op], batch=6) as feed:
            assert FeedSession.of(feed).converts is not is_image
            if is_image:
                with pytest.raises(
                    ConfigError, match="raw=True yields images that are not finished"
                ):
                    feed.batches(raw=True)
            else:
                assert next(feed.batches(raw=True))["x"].shape == (6,)


def test_a_saved_state_knows_the_maps():
    def state(*maps):
        with ff.Feed(SOURCE, [ff.Invert(), *maps], batch=6) as feed:
            return feed.state()

    saved = state(ff.Map(below_zero, "label", out="label"))
    assert saved["ops"] == ["Invert()", "Map(below_zero, 'label', out='label')"]
    with (
        ff.Feed(SOURCE, [ff.Invert()], batch=6) as feed,
        pytest.warns(RuntimeWarning, match="the ops were Map"),
    ):
        feed.restore(saved)


def test_a_helper_process_runs_maps():
    op = ff.Map(below_zero, "label", out=("label"))
    with side(SOURCE, [op, ff.Map(lengths, "caption", out="n")], batch=6, shuffle=False) as feed:
        batch = next(iter(feed))
    np.testing.assert_array_equal(batch.labels, batch.ids % 3)
    np.testing.assert_array_equal(batch["n"], [len(f"number {i}") for i in batch.ids])
    with pytest.raises(ConfigError, match=r"hands the op Map\(.*<lambda>"):
        side(SOURCE, [ff.Map(lambda y: y, "label", out="x")], batch=6)


def test_maps_of_several_images():
    pair = ff.Together({"left": SOURCE, "right": ff.Arrays(255 - NUMBERS[:N])})
    total = ff.Map(lambda left, right: left + right, "left", "right", out="sum")
    lists = {"left": [ff.Invert(), total], "right": [ff.Invert()]}
    for ops in ([ff.Invert(), total], lists):
        with ff.Feed(pair, ops, batch=6) as feed:
            assert (next(iter(feed))["sum"] == 255).all()
    with pytest.raises(ConfigError, match="cannot replace 'right', an image"):
        ff.Feed(pair, [ff.Map(len, "left", out="right")], batch=6)
    with pytest.raises(ConfigError, match="put it into the list of 'left'"):
        ff.Feed(pair, {"left": [], "right": [total]}, batch=6)


@pytest.mark.parametrize("sizes", [(1, 3), (2, 1)])
def test_a_run_resumes_with_the_same_values_at_another_world_size(sizes):
    op = ff.Map(fails_at_seven, "caption", out="n")
    rows: list[dict[int, tuple[int, int]]] = []
    state = None
    for size in (1, *sizes):
        found = {}
        for rank in range(size):
            world = ff.World(rank, size)
            with ff.Feed(SOURCE, [op], global_batch=6, seed=5, world=world, on_error="bad") as feed:
                if len(rows) == 2:
                    feed.restore(state)
                for batch in feed:
                    for row, (i, n) in enumerate(zip(batch.ids, batch["n"], strict=True)):
                        position = batch.step * 6 + rank * (6 // size) + row
                        found[position] = int(i), int(n)
                    if len(rows) == 1 and batch.step == 1:
                        state = feed.state()
                        break
        rows.append(found)
    whole, before, after = rows
    assert before | after == whole and len(before) == len(after) == 12
    assert all(i != 7 and n == len(f"number {i}") for i, n in whole.values())


def test_columns_that_are_read_and_labels_that_are_texts(tmp_path):
    source = field_feeds.shards(tmp_path)
    ops = [
        ff.Resize((12, 16)),
        ff.Map(lengths, "txt", out="n"),
        ff.Map(lengths, "txt", out="label"),
    ]
    with ff.Feed(source, ops, batch=5, shuffle=False) as feed:
        assert feed.fields["n"] == ff.Field("n", (), "int64") and "txt" in feed.fields
        batch = next(iter(feed))
    assert (
        batch["n"].tolist() == batch.labels.tolist() == [len(c) for c in field_feeds.CAPTIONS[:5]]
    )

    class Texts(ff.Arrays):
        label_spec = ((), "str")

        def label(self, ids):
            return WORDS[ids]

    with ff.Feed(Texts(NUMBERS[:N]), [ff.Map(lengths, "label", out="label")], batch=6) as feed:
        assert next(iter(feed)).labels.tolist() == [len(WORDS[i]) for i in next(feed.batches()).ids]


def test_class_weights_go_by_the_label_that_a_map_makes():
    how = {"weighted": True, "factors": np.array([1, 2, 4], np.float32)}

    def tuples_of(op):
        with ff.Feed(SOURCE, [op], batch=6, shuffle=False) as feed:
            return BatchTuples.of(FeedSession.of(feed), None, **how)(next(iter(feed)))

    assert tuples_of(ff.Map(below_zero, "label", out="label"))[2].tolist() == [1, 2, 4] * 2
    with pytest.raises(
        ConfigError, match="class_weight needs class numbers as labels, got float64"
    ):
        tuples_of(ff.Map(lambda label: label / 2, "label", out="label"))
