"""The error family: each member is also what a caller would try first."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import fastfeed as ff
from fastfeed import errors
from fastfeed.preprocess import Encoding

FAMILY = {
    "ConfigError": (errors.FastfeedError, ValueError),
    "SpecError": (errors.ConfigError,),
    "StateError": (errors.ConfigError,),
    "MissingExtra": (errors.FastfeedError, ImportError),
    "SourceError": (errors.FastfeedError, OSError),
    "StorageError": (errors.FastfeedError, OSError),
    "TargetError": (errors.FastfeedError, OSError),
    "SampleError": (errors.FastfeedError, RuntimeError),
    "TooManyFailures": (errors.FastfeedError, RuntimeError),
    "FeedClosed": (errors.FastfeedError, RuntimeError),
    "DeviceError": (errors.FastfeedError, RuntimeError),
    "DeviceMemory": (errors.FastfeedError, MemoryError),
    "TraceError": (errors.FastfeedError, ValueError),
    "ProofError": (errors.FastfeedError, RuntimeError),
}


def test_the_table_is_complete():
    assert sorted([*FAMILY, "FastfeedError"]) == sorted(errors.__all__)


@pytest.mark.parametrize("name", FAMILY)
def test_family(name):
    kind = getattr(errors, name)
    assert kind.__bases__ == FAMILY[name]
    error = kind("what went wrong")
    assert str(error) == "what went wrong"
    assert isinstance(error, errors.FastfeedError)
    assert name in (errors.__doc__ or ""), "the tree in the docstring lacks it"


@pytest.mark.parametrize("name", FAMILY)
def test_pickles(name):
    """They cross process borders: preprocessing workers, Ray."""
    again = pickle.loads(pickle.dumps(getattr(errors, name)("text")))
    assert (type(again).__name__, str(again)) == (name, "text")


def test_the_link_is_a_note_below_the_text():
    error = pickle.loads(pickle.dumps(errors.StorageError("no answer")))
    assert (str(error), error.help_url) == ("no answer", "docs/failures.md#storage")
    assert error.__notes__ == ["See docs/failures.md#storage"]
    assert not hasattr(errors.ConfigError("no link"), "__notes__")


def test_missing_extra_holds_the_command():
    error = errors.MissingExtra.of("to_jax", "JAX", "jax")
    assert str(error) == "to_jax needs JAX: pip install 'fastfeed[jax]'"


def test_too_many_failures_carries_them():
    assert errors.TooManyFailures("text", ["a", "b"]).failures == ("a", "b")
    assert pickle.loads(pickle.dumps(errors.TooManyFailures("text", ["a", "b"]))).failures == (
        "a",
        "b",
    )


def test_target_error_keeps_the_number():
    error = errors.TargetError("no space", 28)
    again = pickle.loads(pickle.dumps(error))
    assert (str(error), error.errno, str(again), again.errno) == ("no space", 28, "no space", 28)
    assert errors.TargetError("text").errno is None


def test_an_error_carries_the_argument() -> None:
    with pytest.raises(errors.ConfigError) as caught:
        Encoding(quality=0)
    assert caught.value.field == "quality"
    assert pickle.loads(pickle.dumps(caught.value)).field == "quality"
    assert errors.ConfigError("several").field == ""


@pytest.mark.parametrize("name", ["p", "Rotate p", "Objects: p", "Part.p", "Outage(p=...)", "p[3]"])
def test_the_field_is_the_last_name(name):
    error = errors.ConfigError.of(name, "in [0, 1]", "2", "pass 0.5")
    assert str(error) == f"{name} must be in [0, 1], got '2'; pass 0.5"
    assert error.field == "p"
    assert pickle.loads(pickle.dumps(error)).args == error.args


FOUR = ff.World(0, 4, 0, 4)


@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("p", lambda: ff.RandomFlip(1.5)),
        ("draws", lambda: ff.Function(print, draws=-1)),
        ("function", lambda: ff.Function(lambda image: image)),
        ("function", lambda: ff.Function(lambda image, numbers: image, fields=("label",))),
        ("size", lambda: ff.Resize(0)),
        ("images", lambda: ff.Arrays(np.zeros((1, 2, 2, 3)))),
        ("labels", lambda: ff.Arrays(np.zeros((1, 2, 2, 3), np.uint8), ["a"])),
        ("paths", lambda: ff.TarShards("a{0..x}.tar")),
        ("weights", lambda: ff.Weighted([-1])),
        ("engine", lambda: ff.GpuDecode("cuda")),
        ("outage", lambda: ff.FaultPolicy(outage=3)),
        ("in_flight", lambda: ff.sources.Storage(in_flight=0)),
        ("rank", lambda: ff.World(4, 4)),
        ("quarantine", lambda: _feed(quarantine="/")),
        ("batch", lambda: _feed(batch=0)),
        ("depth", lambda: ff.prefetch_to_device([], "cpu", depth=0)),
        ("ops", lambda: _feed(ops=[ff.ToFloat(), ff.Invert()])),
        ("ops", lambda: ff.Transform([ff.Invert()])),
        ("CUDA_VISIBLE_DEVICES", lambda: ff.pin_gpu(FOUR, {"CUDA_VISIBLE_DEVICES": "0,1"})),
        ("FASTFEED_TIMELINE", lambda: _feed(environ={"FASTFEED_TIMELINE": "/"})),
    ],
)
def test_an_error_about_an_argument_names_it(field, make):
    with pytest.raises(errors.ConfigError) as raised:
        make()
    assert raised.value.field == field


def _feed(ops=(), environ=(), **options):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in dict(environ).items():
            patch.setenv(name, value)
        return ff.Feed(ff.Arrays(np.zeros((2, 2, 2, 3), np.uint8)), ops, **({"batch": 1} | options))
