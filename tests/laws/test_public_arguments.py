"""Laws of every public class and function: unknown and mistyped arguments are refused, with what is
allowed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.hugging_face import table, write_parquet
from helpers.mosaic import mds_folder, raw_folder
from helpers.photos import folder
from helpers.records import record_folder
from helpers.shards import shard_folder

import fastfeed as ff
from fastfeed.errors import ConfigError, FastfeedError
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
PUBLIC |= {f"keras.{name}": getattr(ff.keras, name) for name in ff.keras.__all__}
PUBLIC["scaling.plan_batch"] = ff.scaling.plan_batch
PUBLIC["timm.create_loader"] = ff.timm.create_loader
PUBLIC |= {
    call.__qualname__: call
    for call in (
        ff.Arrays.mnist,
        ff.Arrays.cifar,
        ff.Objects.coco,
        ff.Plan.make,
        ff.World.detect,
        ff.World.of_mesh,
    )
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
    "Sequence[str | int]": [7, "jpg"],
    "Sequence[str | int] | None": [7, "jpg"],
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
FLIP = ff.RandomFlip()
REQUIRED: dict[str, Any] = {  # arguments without a default, by name; files are those of `here`
    "amount": 0.1,
    "base_batch": 4,
    "base_lr": 0.1,
    "bits": 2,
    "count": 2,
    "data": "t.parquet",
    "dataset": [(np.zeros((4, 4, 3), np.uint8), 1)],
    "degrees": 3,
    "folder": "cache",
    "function": lambda image, numbers: image,
    "gamma": 1.0,
    "global_batch": 2,
    "ids": [0],
    "images": np.zeros((4, 4, 4, 3), np.uint8),
    "layout": "CHW",
    "left": 0,
    "mean": (1, 1, 1),
    "op": FLIP,
    "ops": [FLIP],
    "out": "x",
    "padding": 2,
    "paths": ["photos/a/0000.jpg"],
    "path": "state.json",
    "root": "photos",
    "samples": 8,
    "shape": (4, 4, 3),
    "size": 4,
    "source": IMAGES,
    "sources": {"a": IMAGES, "b": IMAGES},
    "state": {},
    "std": (1, 1, 1),
    "table": np.arange(256),
    "times": 2,
    "top": 0,
    "views": (ff.View(4),),
    "directory": "photos",
    "dataframe": {"filename": ["photos/a/0000.jpg"], "class": ["a"]},
    "dtype": "uint8",
    "annotations": "instances.json",
}
OWN_REQUIRED = {  # where a name means something else
    "MDSShards": {"shards": "mds"},
    "Map": {"function": len, "inputs": "caption"},
    "Objects": {"boxes": [[]] * 4},
    "Objects.coco": {"images": IMAGES},
    "RandomChoice": {"ops": [ff.MixUp()]},
    "RawShards": {"shards": "raw"},
    "Spec": {"layout": "HWC"},
    "StepWatch": {"data": ff.watched([1])},
    "TFRecords": {"shards": "records"},
    "Table": {"table": "t.parquet", "image": "image"},
    "TarShards": {"shards": "tar"},
    "watched": {"data": [1]},
}
OF_ANY_KIND = [object(), [object()], {5: object()}, np.zeros((2, 2)), "", 10**30]
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


@pytest.fixture(scope="module")
def here(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("arguments")
    folder(root / "photos", {"a": 1})
    shard_folder(root / "tar", (1,))
    record_folder(root / "records", (1,))
    mds_folder(root / "mds", (1,))
    raw_folder(root / "raw", (1,))
    write_parquet(root / "t.parquet", table([0]))
    return root


# the first starts threads that are not ended, the others load frameworks
@pytest.mark.parametrize("public", sorted(PUBLIC.keys() - {"prove", "Watch", "prefetch_to_device"}))
def test_a_value_of_another_kind_raises_no_other_error(public, here, monkeypatch):
    """Whatever its annotation, Any and protocols included: it is accepted, or refused by us."""
    monkeypatch.chdir(here)
    call = PUBLIC[public]
    parameters = inspect.signature(call).parameters.values()
    needed = {p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL}
    valid = {name: REQUIRED.get(name) for name in needed if name != "shards"}
    valid |= ALONGSIDE.get(public, {}) | OWN_REQUIRED.get(public, {})
    for parameter in parameters:
        for value in OF_ANY_KIND:
            options = {**valid, parameter.name: value}
            by_position = []
            if parameter.kind is parameter.VAR_POSITIONAL:
                by_position = [options.pop(parameter.name)]
            try:
                made = call(*by_position, **options)
            except FastfeedError:
                continue
            getattr(made, "close", lambda: None)()


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
