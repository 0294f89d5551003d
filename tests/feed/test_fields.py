"""Fields of a batch by name, and their shapes and dtypes before it is made."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.field_feeds import FEEDS, IMAGES, LABELS, Described, Read, annotated, feed

import fastfeed as ff
from fastfeed.adapters.batch_tuples import BatchTuples
from fastfeed.errors import ConfigError
from fastfeed.feed.session import FeedSession
from fastfeed.runtime.batch import Batch


@pytest.mark.parametrize("kind", FEEDS)
def test_batches_have_the_fields_of_their_feed(kind, tmp_path):
    with feed(kind, tmp_path) as made:
        batch = next(iter(made))
        assert list(batch.keys()) == list(made.fields) == list(dict(batch))
        for name, field in made.fields.items():
            array = batch[name]
            assert field.name == name and len(array) == len(batch)
            if field.is_array:
                assert field.fits(array.shape[1:]) and str(array.dtype) == field.dtype
            else:
                assert array.dtype == object and array.shape == (len(batch),)
            if field.dtype == "str":
                assert all(isinstance(text, str) for text in array)


def test_fields_are_the_arrays_of_the_batch(tmp_path):
    with feed("boxes and masks", tmp_path) as made:
        batch = next(iter(made))
    assert batch["image"] is batch.images and batch["label"] is batch.labels
    assert batch["weight"] is batch.weights and batch["id"] is batch.ids
    assert batch.objects is not None and batch["masks"] is batch.masks
    assert batch["boxes"] is batch.objects.boxes and batch["box_labels"] is batch.objects.labels
    assert batch["box_counts"] is batch.objects.counts
    assert batch["caption"] is batch.columns["caption"]
    assert batch["column:id"] is batch.columns["id"], "a column called as a field of ours"
    assert "masks" in batch and "image_1" not in batch and "view_0" not in batch


def test_single_views_are_counted_over_all_sizes(tmp_path):
    with feed("views", tmp_path) as made:
        batch = next(iter(made))
    assert batch["image"] is batch.views[0] and batch["image_1"] is batch.views[1]
    for name, view in {"view_0": batch.views[0][:, 0], "view_1": batch.views[0][:, 1]}.items():
        np.testing.assert_array_equal(batch[name], view)
    np.testing.assert_array_equal(batch["view_2"], batch.views[1][:, 0])
    assert "view_3" not in batch


def test_an_unknown_field_is_refused_with_those_there_are():
    batch = Batch(IMAGES, LABELS, np.ones(10), np.arange(10), 0, 0)
    for kind in (ConfigError, KeyError):
        with pytest.raises(kind) as error:
            batch["captoin"]
    assert (
        str(error.value)
        == "a batch has no field 'captoin'; the fields are image, label, weight, id"
    )


def test_columns_that_are_read_are_read_once_and_only_if_somebody_asks(monkeypatch):
    calls = []
    read = Read.column_values
    monkeypatch.setattr(
        Read, "column_values", lambda self, ids: calls.extend(ids) or read(self, ids)
    )
    with ff.Feed(Read(IMAGES, LABELS), [], batch=4) as made:
        assert "tokens of the type and size that is read" in str(made)
        assert BatchTuples.of(FeedSession.of(made)).names == ("image", "label")
        assert not calls
        fields = made.fields
        assert made.fields is fields and calls == list(range(10))
    assert fields["caption"] == ff.Field("caption", (), "str")
    assert fields["score"] == ff.Field("score", (), "float32")
    assert fields["tokens"] == ff.Field("tokens", (None,), "int64"), "their number differs"


def test_the_type_of_a_column_needs_no_sample_that_cannot_be_read():
    class Partly(Described):
        def columns(self, ids):
            if 0 in ids:
                raise ValueError("sample 0 is broken")
            return super().columns(ids)

    with ff.Feed(Partly(IMAGES, LABELS), [], batch=4) as made:
        assert made.fields["caption"] == ff.Field("caption", (), "str")


def test_print_names_the_fields(tmp_path):
    with feed("views", tmp_path) as made:
        assert (
            "  its fields: image float32[4, 2, 3, 8, 8], image_1 float32[4, 1, 3, 6, 6], label int64[4],"
            " weight float32[4],\n    id int64[4], view_0, view_1 float32[4, 3, 8, 8], view_2"
            " float32[4, 3, 6, 6], caption str[4], year int32[4],\n    place float32[4, 2],"
            " column:id int64[4]" in str(made)
        )


def test_a_helper_process_sends_all_fields():
    source = annotated(Described(IMAGES, LABELS))
    with (
        ff.Feed(source, [], batch=4) as plain,
        ff.Feed(source, [], batch=4, side_process=True) as made,
    ):
        want, got = next(iter(plain)), next(iter(made))
        assert list(got.keys()) == list(want.keys())
        for name in dict(want):
            np.testing.assert_array_equal(got[name], want[name])


def test_the_session_has_the_fields_of_the_feed(tmp_path):
    with feed("columns", tmp_path) as made:
        assert FeedSession.of(made).fields is made.fields
