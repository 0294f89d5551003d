"""`Transform.tf`: the pixels of a call, shapes that are known before, and bad items."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.needs import LazyModule, needs
from helpers.op_examples import ALL, listed
from helpers.photos import jpeg
from PIL import Image

import fastfeed as ff
from fastfeed.errors import ConfigError, FeedClosed

pytestmark = needs("tensorflow")
tf: Any = LazyModule("tensorflow")
FILES = [jpeg(i, (40, 48 + 8 * i)) for i in range(7)]
BROKEN = [*FILES[:5], FILES[5][:300], FILES[6]]
LABELS = np.array([2, 0, 1, 1, 0, 2, 1], np.int32)
RANDOM = [ff.RandomResizedCrop(24), ff.RandomFlip(), ff.OneHot(3), ff.LabelSmoothing(0.1)]
PLAIN = [ff.Resize((24, 24))]


def dataset(*columns: Any, batch: int = 3, drop: bool = False) -> Any:
    columns = columns if len(columns) > 1 else columns[0]
    return tf.data.Dataset.from_tensor_slices(columns).batch(batch, drop_remainder=drop)


def test_random_ops_by_ids_in_a_dataset():
    ids = np.array([5, 3, 9, 0, 4, 4, 2])

    def step(ids, files, labels, epoch):
        fields = {"x": "image", "y": ("label", "id")}
        return transform.tf(files, labels, ids=ids, epoch=epoch, yields=fields)

    with ff.Transform(RANDOM, seed=3, threads=2) as transform:
        for epoch in range(2):
            data = dataset(ids, FILES, LABELS).map(
                lambda *rows, epoch=epoch: step(*rows, tf.constant(epoch)),
                tf.data.AUTOTUNE,
            )
            spec = data.element_spec
            assert spec["x"] == tf.TensorSpec((None, 24, 24, 3), tf.uint8)
            assert spec["y"][0] == tf.TensorSpec((None, 3), tf.float32)
            rows = list(data.unbatch().as_numpy_iterator())
            wanted = transform(FILES, ids=ids, epoch=epoch, fields={"label": LABELS})
            assert [row["y"][1] for row in rows] == ids.tolist()
            for row, image, label in zip(rows, wanted.images, wanted.labels, strict=True):
                np.testing.assert_array_equal(row["x"], image)
                np.testing.assert_array_equal(row["y"][0], label)


def test_it_is_a_step_of_a_dataset_by_itself(recwarn):
    with ff.Transform(PLAIN, threads=2) as transform:
        wanted = transform(FILES)
        data = dataset(FILES, LABELS, batch=7, drop=True).map(transform.tf, tf.data.AUTOTUNE)
        images = tf.TensorSpec((7, 24, 24, 3), tf.uint8)
        assert data.element_spec == (images, tf.TensorSpec((7,), tf.int64))
        ((made, labels),) = data
        np.testing.assert_array_equal(made, wanted.images)
        assert labels.numpy().tolist() == LABELS.tolist()
        ((alone),) = dataset(FILES, batch=7).map(transform.tf)
        np.testing.assert_array_equal(alone, wanted.images)
        compiled = tf.function(transform.tf)
        np.testing.assert_array_equal(compiled(tf.constant(FILES)), wanted.images)
        pixels = wanted.images[:, :, :16].copy()
        np.testing.assert_array_equal(transform.tf(pixels), transform(list(pixels)).images)
    assert not [str(w.message) for w in recwarn if "AutoGraph" in str(w.message)]


# a Map says its shapes; UNKNOWN below does not
ONE_BY_ONE = [op for op in ALL if op.kind != "mix" and None not in getattr(op, "shapes", ())]


@pytest.mark.slow
@pytest.mark.parametrize("op", ONE_BY_ONE, ids=repr)
def test_all_fields_of_all_ops_have_their_shapes_before(op):
    resize = ff.Resize((40, 56))
    ops = [op, resize] if op.kind == "decode" else [resize, *listed(op, (40, 56))]
    ids = np.arange(7)
    with ff.Transform(ops, seed=3, threads=1, classes=3) as transform:
        wanted = transform(FILES, ids=ids, epoch=1, fields={"label": LABELS})
        names = tuple(wanted.keys())
        step = tf.function(lambda x: transform.tf(x, LABELS, ids=ids, epoch=1, yields=names))
        specs = step.get_concrete_function(tf.TensorSpec((7,), tf.string)).structured_outputs
        for name, spec, value in zip(names, specs, step(tf.constant(FILES)), strict=True):
            assert (spec.shape, spec.dtype) == (wanted[name].shape, wanted[name].dtype), name
            np.testing.assert_array_equal(value, wanted[name], name)


def test_python_is_called_once_per_batch(monkeypatch):
    counts = []
    call = ff.Transform.__call__

    def counted(self, items, **more):
        counts.append(len(items))
        return call(self, items, **more)

    monkeypatch.setattr(ff.Transform, "__call__", counted)
    with ff.Transform(PLAIN, threads=1) as transform:
        data = dataset(FILES).map(transform.tf)
        counts.clear()  # of the check when the step was built
        list(data)
    assert counts == [3, 3, 1]


def test_bad_items_are_black_with_weight_0_or_an_error():
    with ff.Transform(PLAIN, threads=1) as transform:
        fields = ("image", "label", "weight")
        step = dataset(BROKEN, LABELS).map(lambda *rows: transform.tf(*rows, yields=fields))
        images, labels, weights = map(np.concatenate, zip(*step.as_numpy_iterator(), strict=True))
        assert weights.tolist() == [1, 1, 1, 1, 1, 0, 1] and labels.tolist() == LABELS.tolist()
        assert not images[5].any()
        np.testing.assert_array_equal(
            np.delete(images, 5, 0), transform(np.delete(FILES, 5)).images
        )
        unmarked = iter(dataset(BROKEN).map(transform.tf))
        next(unmarked)
        words = r"items\[2\]: truncated .*, and yields has no weights, so that its black image"
        with pytest.raises(tf.errors.UnknownError, match=words):
            next(unmarked)


def test_paths_in_place_of_files_are_refused(tmp_path: Path):
    path = tmp_path / "a.jpg"
    path.write_bytes(FILES[0])
    with ff.Transform(PLAIN, threads=1) as transform:
        step = dataset([str(path)]).map(lambda x: transform.tf(x, yields=("image", "weight")))
        words = re.escape("a.jpg; put .map(tf.io.read_file) before .batch(n)")
        with pytest.raises(tf.errors.InvalidArgumentError, match=words):
            list(step)


def test_columns_masks_and_maps():
    mask = io.BytesIO()
    Image.fromarray(np.full((40, 48), 3, np.uint8)).save(mask, "PNG")
    double = ff.Map(lambda score: score * 2, "score", out="double", shape=(2,), dtype="float32")
    scores = np.arange(4, dtype=np.float32).reshape(2, 2)
    given = {"masks": [mask.getvalue()] * 2, "score": scores, "epoch": ["a", "b"]}
    names = ("masks", "score", "double", "epoch")
    with ff.Transform([ff.Resize((24, 24)), double], threads=1) as transform:
        step = tf.function(lambda files: transform.tf(files, given, yields=names))
        spec = step.get_concrete_function(tf.TensorSpec((2,), tf.string)).structured_outputs
        assert [each.shape for each in spec] == [(2, 24, 24), (2, 2), (2, 2), (2,)]
        masks, score, doubled, texts = step(tf.constant(FILES[:1] * 2))
    assert np.unique(masks).tolist() == [3] and score.numpy().tolist() == scores.tolist()
    assert doubled.numpy().tolist() == (2 * scores).tolist() and texts.numpy().tolist() == [
        b"a",
        b"b",
    ]


UNKNOWN = ff.Map(lambda label: label * 2, "label", out="double")


@pytest.mark.parametrize(
    ("ops", "call", "words"),
    [
        (
            PLAIN,
            lambda t: dataset(FILES).unbatch().map(t.tf),
            "got string (); put .batch(n) before",
        ),
        (PLAIN, lambda t: t.tf(np.zeros((2, 4, 4, 3))), "got float64 (2, 4, 4, 3)"),
        (RANDOM, lambda t: dataset(FILES).map(t.tf), "these ops draw random numbers: pass ids="),
        (
            PLAIN,
            lambda t: t.tf(FILES, yields=("image", "lable")),
            "no field 'lable'; the fields are",
        ),
        (PLAIN, lambda t: t.tf(FILES, LABELS[:2]), "fields['label'] must be a list, got 2 for 7"),
        (
            PLAIN,
            lambda t: t.tf(FILES, {"tokens": tf.ragged.constant([[1], [2, 3]])}),
            "fields['tokens'] has another length for each item",
        ),
        ([*PLAIN, UNKNOWN], lambda t: t.tf(FILES, LABELS, yields="double"), "Map(shape=, dtype=)"),
    ],
)
def test_wrong_calls_are_refused_before_a_batch_is_made(ops, call, words):
    with ff.Transform(ops, threads=1) as transform:
        with pytest.raises(ConfigError, match=re.escape(words)):
            call(transform)


def test_a_closed_transform():
    transform = ff.Transform(PLAIN)
    transform.close()
    with pytest.raises(FeedClosed):
        transform.tf(FILES)
