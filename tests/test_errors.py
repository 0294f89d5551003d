"""The error family: each member is also what a caller would try first."""

from __future__ import annotations

import pickle

import pytest

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
