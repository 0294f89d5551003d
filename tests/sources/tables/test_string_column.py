"""Texts packed into one blob, and texts that stand for numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.sources.tables.string_column import StringColumn, numbers


@given(st.lists(st.text(max_size=8), max_size=20), st.data())
def test_strings(texts, data):
    packed = StringColumn.of(texts)
    assert (len(packed), packed.tolist(), [packed[i] for i in range(len(texts))]) == (
        len(texts),
        texts,
        texts,
    )
    ids = data.draw(st.lists(st.integers(0, max(len(texts) - 1, 0)), max_size=5 * bool(texts)))
    assert packed.take(np.array(ids, np.int64)).tolist() == [texts[i] for i in ids]
    assert packed.lengths().tolist() == [len(text.encode()) for text in texts]
    hashes = packed.hashes().tolist()
    assert (len(hashes), len(set(hashes))) == (len(texts), len(set(texts)))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_numerals_of_integers(values):
    texts = [str(value) for value in values]
    (found,) = numbers([StringColumn.of(texts)]) or ()
    assert (found.dtype, found.tolist()) == (np.int64, values)


@given(st.lists(st.floats(allow_nan=False), min_size=1))
def test_numerals_of_fractions(values):
    (found,) = numbers([StringColumn.of(["0.5", *map(repr, values)])]) or ()
    assert (found.dtype, found.tolist()) == (np.float64, [0.5, *values])


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "1_0",
        "0x10",
        "1,5",
        "- 1",
        "yes",
        "1e",
        "truE",
        "007",
        "1E5",
        "+1",
        " 1",
        "1.0.0",
        "9" * 19,
        "١",
    ],
)
def test_texts_that_are_no_numbers(text):
    assert numbers([StringColumn.of(["1", text])]) is None
