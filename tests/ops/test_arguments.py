"""Wrong arguments of every op: one sentence when it is made; and what is taken is a value."""

import ast
import math
from dataclasses import fields
from inspect import signature
from typing import Any

import numpy as np
import pytest
from helpers.op_examples import ALL

import fastfeed
from fastfeed.errors import ConfigError, FastfeedError
from fastfeed.ops import (
    AugMix,
    Decode,
    Function,
    Map,
    Normalize,
    OneOf,
    RandomFlip,
    Resize,
    TenCrop,
    View,
)

NAN, INF = math.nan, math.inf


class Several:
    """Compares like a tensor of several numbers."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Any:
        return NotImplemented if isinstance(other, (str, type(None))) else self

    def __bool__(self) -> bool:
        raise RuntimeError("the truth of several numbers is ambiguous")


JUNK = [
    *(
        None,
        "x",
        "12",
        b"x",
        True,
        -1,
        0,
        0.5,
        1.5,
        10**30,
        NAN,
        INF,
        -INF,
        1j,
        object(),
        int,
        {},
        {1, 2},
        range(2),
    ),
    *(
        (),
        (1,),
        (2, 1),
        (NAN, 1),
        (-INF, INF),
        ("a", "b"),
        (True, False),
        (1.5, 2.5),
        (0, 256, 0),
        (1, 2, 3, 4, 5),
    ),
    *(
        [1, 2],
        [[1, 2], [3, 4]],
        np.float32(0.5),
        np.int64(3),
        np.bool_(True),
        np.array(3),
        np.array([1, 2]),
    ),
    *(np.array([[1, 2]]), np.array([0.25, 0.5], np.float32), Several()),
]
FIRST = {type(op): op for op in reversed(ALL)} | {View: View(8)}
CASES = [
    (kind, name) for kind in FIRST for name in signature(kind).parameters if name != "inputs"
]  # Map's inputs have no name to pass them by


@pytest.mark.parametrize(
    ("kind", "field"), CASES, ids=[f"{kind.__name__}-{field}" for kind, field in CASES]
)
def test_any_argument_is_refused_in_one_sentence_or_becomes_a_value(kind, field):
    given = {each.name: getattr(FIRST[kind], each.name) for each in fields(kind)}
    if kind is Map:
        given = {"function": FIRST[kind].function, "out": "x"}
    for junk in JUNK:
        try:
            more = given | {field: junk}
            op = Map(more.pop("function"), "label", **more) if kind is Map else kind(**more)
        except FastfeedError as error:
            text = str(error)
            assert kind.__name__ in text
            assert "\n" not in text
            assert "got " in text
        else:
            hash(op)
            if kind not in (Function, Map):
                assert eval(repr(op), vars(fastfeed) | fastfeed_names()) == op
                assert not {
                    node.id for node in ast.walk(ast.parse(repr(op))) if isinstance(node, ast.Name)
                } & {"np"}


def fastfeed_names():
    return {name: getattr(fastfeed, name) for name in fastfeed.__all__}


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Resize("12"), "Resize size must be an int or (height, width), got '12'"),
        (
            lambda: Resize((224.5, 224)),
            "Resize size must be an int or (height, width), got (224.5, 224)",
        ),
        (lambda: RandomFlip(None), "RandomFlip p must be in [0, 1], got None"),
        (lambda: RandomFlip(True), "RandomFlip p must be in [0, 1], got True"),
        (lambda: TenCrop(8, "yes"), "TenCrop vertical must be True or False, got 'yes'"),
        (lambda: AugMix(all_ops=1), "AugMix all_ops must be True or False, got 1"),
        (lambda: Decode(max_pixels=True), "Decode max_pixels must be an integer >= 1, got True"),
        (
            lambda: OneOf([RandomFlip()], {1}),
            "OneOf weights must be 1 numbers >= 0, one per op and not all 0, got {1}",
        ),
        (lambda: View(8, ops=3), "View ops must be a list of ops such as [RandomFlip()], got 3"),
        (
            lambda: View(8, ops=[Normalize.imagenet()]),
            "View ops[0] must be an op that moves or changes pixels, such as RandomFlip(), got "
            f"{Normalize.imagenet()}; put ops for all views after MultiCrop",
        ),
    ],
)
def test_says_what_is_wrong(make, text):
    with pytest.raises(ConfigError) as error:
        make()
    assert str(error.value) == text
