"""Map as data: its names, shapes and dtypes, and what it refuses."""

from __future__ import annotations

import functools
import pickle

import numpy as np
import pytest

from fastfeed.errors import ConfigError
from fastfeed.ops import Map


def tokens(texts, length=3):
    return np.array([[len(text)] * length for text in texts])


def test_it_prints_pickles_and_compares_as_a_value():
    op = Map(tokens, "caption", out="tokens", shape=(3,), dtype=np.int32)
    assert repr(op) == "Map(tokens, 'caption', out='tokens', shape=(3,), dtype='int32')"
    assert (
        pickle.loads(pickle.dumps(op))
        == op
        == Map(tokens, "caption", out=["tokens"], shape={"tokens": [3]}, dtype={"tokens": "int32"})
    )


def test_names_of_functions_are_the_same_in_every_process():
    """They are part of a saved state; the `repr` of a partial holds an address."""
    assert repr(Map(tokens, out="b", draws=2)) == "Map(tokens, out='b', draws=2)"
    assert (
        repr(Map(functools.partial(tokens, length=4), "a", out="b")) == "Map(tokens, 'a', out='b')"
    )
    assert repr(Map(functools.partial, "a", out=("b", "c"))) == "Map(partial, 'a', out=('b', 'c'))"


@pytest.mark.parametrize(
    ("inputs", "options", "text"),
    [
        (
            (),
            {"out": "x"},
            r'must be names of fields, one or more, got \(\); write Map\(function, "cap',
        ),
        (
            ("a", 3),
            {"out": "x"},
            r"Map inputs must be names of fields, one or more, got \('a', 3\)",
        ),
        (("a",), {"out": ()}, r"Map out must be names of fields, one or more, got \(\)"),
        (("a",), {"out": ("x", "x")}, r"Map out must be names, each once, got \('x', 'x'\)"),
        (
            ("a",),
            {"out": "image"},
            "cannot replace 'image'; it can replace label, weight, masks and",
        ),
        (("a",), {"out": "view_3"}, "cannot replace 'view_3'"),
        (("a",), {"out": "boxes"}, "use another name, such as out='boxes_mapped'"),
        (("a",), {"out": "x", "shape": (-1,)}, r"Map shape must be the shape of one sample"),
        (
            ("a",),
            {"out": "x", "shape": {"y": ()}},
            r"Map shape names \['y'\], the outputs are \('x',\)",
        ),
        (
            ("a",),
            {"out": "x", "dtype": "complex64"},
            r"Map dtype must be \"str\", bool, int8, .*, float64, got 'complex64'",
        ),
        (("a",), {"out": "x", "dtype": "words"}, "got 'words'"),
        (
            ("a",),
            {"out": "x", "draws": -1},
            r"Map draws must be an integer in \[0, 65536\], got -1",
        ),
        (("a",), {"out": "x", "draws": True}, "Map draws must be an integer"),
    ],
)
def test_refusals(inputs, options, text):
    with pytest.raises(ConfigError, match=text):
        Map(tokens, *inputs, **options)


def test_a_function_is_needed():
    with pytest.raises(ConfigError, match="Map needs a function of whole batches, got 'tokens'"):
        Map("tokens", "caption", out="tokens")
