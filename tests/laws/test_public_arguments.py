"""Laws of every public class and function: unknown and mistyped arguments are refused, with what is
allowed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fastfeed as ff
from fastfeed.errors import ConfigError
from fastfeed.familiar import _NAMES, _OPTIONS

# made by fastfeed, not by users
RESULTS = {
    "Batch",
    "Boxes",
    "Failure",
    "FeedStats",
    "Field",
    "GPUStarved",
    "Proof",
    "Watched",
}
METHODS = [
    "batches",
    "keras_backup",
    "restore",
    "seek",
    "state",
    "to_jax",
    "to_keras",
    "to_tfdata",
    "to_torch",
]
PUBLIC: dict[str, Callable[..., Any]] = {
    name: value
    for name in dir(ff)
    if callable(value := getattr(ff, name)) and not inspect.ismodule(value) and name not in RESULTS
}
PUBLIC |= {f"recipes.{name}": getattr(ff.recipes, name) for name in ff.recipes.__all__}
PUBLIC["scaling.plan_batch"] = ff.scaling.plan_batch
PUBLIC |= {
    call.__qualname__: call
    for call in (ff.Arrays.mnist, ff.Arrays.cifar, ff.Objects.coco, ff.Plan.make, ff.World.detect)
}
WRONG: dict[str, list[Any]] = {  # by annotation; an object is wrong wherever there is one
    "bool": ["yes", 1, None, 0.0],
    "bool | None": ["yes", 1],
    "int": ["4", 3.7, True, None],
    "int | None": ["4", 3.7, True],
    "float": ["0.5", True, None],
    "str": [7, True, None],
    "str | None": [7, True],
    "Sequence[str]": [7, "jpg"],
    "Sequence[str] | None": [7, "jpg"],
}
IMAGES = ff.Arrays(np.zeros((4, 4, 4, 3), np.uint8))
ALONGSIDE = {  # without which it has another complaint
    "Plan.make": {"samples": 8, "batch": 2},
    "Feed": {"source": IMAGES, "ops": [], "batch": 2},
    "Map": {"function": len, "out": "x"},
    "take": {"source": IMAGES, "ids": [0]},
    "split": {"source": IMAGES, "shares": {"train": 0.5, "val": 0.5}, "by": "random"},
    "folds": {"source": IMAGES, "count": 2, "by": "random"},
    "where": {"source": IMAGES, "min_side": 2},
}
# checked by the function itself
OPEN = (
    "Any",
    "ndarray",
    "| Source",
    "Shuffle",
    "Paths",
    "TypeVar",
    "T]",
    "DecodeBy",
)


def described(kind: str, parameter: inspect.Parameter) -> bool:
    return not any(word in kind for word in OPEN) and parameter.kind not in (
        parameter.VAR_KEYWORD,
        parameter.VAR_POSITIONAL,
    )


CASES = [
    pytest.param(call, name, wrong, id=f"{public}-{name}-{wrong!r:.12}")
    for public, call in PUBLIC.items()
    for name, parameter in inspect.signature(call).parameters.items()
    if described(str(parameter.annotation), parameter)
    for wrong in [object(), *WRONG.get(str(parameter.annotation), [])]
]


@pytest.mark.parametrize("public", PUBLIC)
def test_an_unknown_argument_is_refused(public):
    with pytest.raises(TypeError, match="has no argument 'no_such_option'; it takes") as raised:
        PUBLIC[public](no_such_option=1)
    assert isinstance(raised.value, ConfigError)


@pytest.mark.parametrize(("call", "name", "wrong"), CASES)
def test_a_mistyped_argument_is_refused(call, name, wrong):
    with pytest.raises(ConfigError) as raised:
        call(**{**ALONGSIDE.get(call.__qualname__, {}), name: wrong})
    assert name in str(raised.value) or "must be" in str(raised.value)


@pytest.mark.parametrize("wrong", [5, None, ff.Arrays, [IMAGES]], ids=str)
@pytest.mark.parametrize(
    "call",
    [
        lambda wrong: ff.Feed(wrong, [], batch=2),
        lambda wrong: ff.Mixture([IMAGES, wrong]),
        lambda wrong: ff.Mixture({"a": wrong}),
        lambda wrong: ff.Objects(wrong, boxes=[[]] * 4),
        lambda wrong: ff.Objects.coco(wrong, "no file"),
        lambda wrong: ff.take(wrong, 1),
        lambda wrong: ff.split(wrong, {"train": 0.5, "val": 0.5}),
        lambda wrong: ff.folds(wrong, 2),
        lambda wrong: ff.where(wrong, min_side=2),
    ],
    ids=["Feed", "Mixture", "named", "Objects", "coco", "take", "split", "folds", "where"],
)
def test_what_is_no_source_is_refused(call, wrong):
    with pytest.raises(ConfigError, match=r"(source|images).* must be a .*ImageFolder.*, got"):
        call(wrong)


def test_the_laws_cover_what_is_public():
    assert len(PUBLIC) > 70
    assert {str(case.values[1]) for case in CASES} >= {
        "labeled",
        "classes",
        "progress",
        "threads",
        "fill",
    }


def test_methods_of_a_feed_are_checked():
    with ff.Feed(ff.Arrays(np.zeros((4, 4, 4, 3), np.uint8)), [], batch=2) as feed:
        for method in METHODS:
            with pytest.raises(TypeError, match=rf"{method}\(\) has no argument 'no_such_option'"):
                getattr(feed, method)(no_such_option=1)
        for call in (
            lambda: feed.seek("3"),
            lambda: feed.batches(raw="yes"),
            lambda: feed.batches(epochs="1"),
            lambda: feed.to_torch(convert=1),
            lambda: feed.restore(feed.state(), strict="no"),
            lambda: feed.to_tfdata(device=0),
        ):
            with pytest.raises(ConfigError, match=r"must be .*, got"):
                call()


def test_what_is_set_within_is_no_option():
    with pytest.raises(ConfigError, match="Balanced: classes must be Classes or None, got 4"):
        ff.Balanced(classes=4)
    with pytest.raises(ConfigError, match="ImageFolder: labeled must be True or False, got 'yes'"):
        ff.ImageFolder("nowhere", labeled="yes")


@pytest.mark.parametrize("name", _NAMES)
def test_a_familiar_name_says_what_to_write_here(name):
    with pytest.raises(AttributeError, match="module 'fastfeed' has no attribute") as raised:
        getattr(ff, name)
    assert f"; write {_NAMES[name]}" in str(raised.value)
    for word in _NAMES[name].replace("(", " ").replace(",", " ").split():
        if word.startswith("ff."):
            assert hasattr(ff, word[3:].partition(".")[0]), word
    assert not hasattr(ff, name)


@pytest.mark.parametrize("option", _OPTIONS)
def test_a_familiar_option_says_what_to_write_here(option):
    source = ff.Arrays(np.zeros((4, 4, 4, 3), np.uint8))
    with pytest.raises(TypeError) as raised:
        ff.Feed(source, [], batch=2, **{option: 8})
    assert str(raised.value) == f"Feed() has no argument {option!r}; write {_OPTIONS[option]}"


def test_a_slip_of_the_pen_is_answered_with_the_name_that_was_meant():
    for wrong, right in (
        ("RandomResizeCrop", "RandomResizedCrop"),
        ("mixup", "MixUp"),
        ("imagefolder", "ImageFolder"),
    ):
        with pytest.raises(AttributeError, match=f"; write ff.{right}"):
            getattr(ff, wrong)
    with pytest.raises(TypeError, match=r"Feed\(\) has no argument 'prefetchs'; write prefetch"):
        ff.Feed(None, [], prefetchs=2)  # type: ignore[call-arg]
    with pytest.raises(AttributeError, match=r"has no attribute 'xyzzy'$"):
        ff.xyzzy  # noqa: B018
    assert not hasattr(ff, "__wrapped__")
