"""A framework that is not there is an error that names the pip command."""

import sys
from types import ModuleType

import numpy as np
import pytest
from conftest import ROOT

import fastfeed as ff
from fastfeed.adapters.versions import FRAMEWORKS, framework
from fastfeed.errors import MissingExtra

CALLS = {
    "to_keras": ("keras", "pip install 'fastfeed[keras]'", lambda feed: feed.to_keras()),
    "keras.backup": (
        "keras",
        "pip install 'fastfeed[keras]'",
        lambda feed: ff.keras.backup(feed, "backup"),
    ),
    "to_tfdata": ("tensorflow", "pip install 'fastfeed[tf]'", lambda feed: feed.to_tfdata()),
    "Transform.tf": (
        "tensorflow",
        "tf.data needs TensorFlow: pip install 'fastfeed[tf]'",
        lambda feed: ff.Transform([ff.Resize((4, 4))]).tf([b""]),
    ),
    "Transform.torch": (
        "torch",
        "pip install 'fastfeed[torch]'",
        lambda feed: ff.Transform([ff.Resize((4, 4))]).torch([b""]),
    ),
    "to_jax": ("jax", "pip install 'fastfeed[jax]'", lambda feed: feed.to_jax()),
    "to_torch": ("torch", "pip install 'fastfeed[torch]'", lambda feed: feed.to_torch()),
    "to_keras_layer": (
        "keras",
        "'fastfeed[keras]'",
        lambda feed: ff.Transform.of(feed).to_keras_layer(),
    ),
    "export_onnx": (
        "onnx",
        "'fastfeed[onnx]'",
        lambda feed: ff.Transform.of(feed).export_onnx("x.onnx"),
    ),
    "prefetch_to_device, torch": (
        "torch",
        "'fastfeed[torch]'",
        lambda feed: ff.prefetch_to_device(feed, "cuda:0"),
    ),
    "prefetch_to_device, jax": (
        "jax",
        "'fastfeed[jax]'",
        lambda feed: ff.prefetch_to_device([], "jax:gpu"),
    ),
    "prefetch_to_device, tf": (
        "tensorflow",
        "'fastfeed[tf]'",
        lambda feed: ff.prefetch_to_device([], "/GPU:0"),
    ),
}


OLD = {
    "keras": "to_keras needs Keras 3.3 or newer, got 3.2.1: pip install --upgrade 'keras>=3.3'",
    "tensorflow": "tf.data needs TensorFlow 2.18 or newer, got 2.17.1: pip install",
    "jax": "to_jax needs JAX 0.4.30 or newer, got 0.4.29: pip install --upgrade 'jax>=0.4.30'",
    "torch": "to_torch needs PyTorch 2.4 or newer, got 2.3.1+cpu: pip install",
}


@pytest.mark.parametrize("package", OLD)
def test_frameworks_that_are_too_old(monkeypatch, package):
    text = OLD[package]
    caller, _, version = text.partition(":")[0].partition(" needs ")
    old = ModuleType(package)
    old.__version__ = version.rpartition(" ")[2]
    monkeypatch.setitem(sys.modules, package, old)
    with pytest.raises(MissingExtra) as caught:
        framework(package, caller)
    assert str(caught.value).startswith(text)
    old.__version__ = {"keras": "4.0.0.dev3", "jax": "0.10"}.get(package, "2.100")
    assert framework(package, caller) is old


def test_the_oldest_versions_are_those_of_the_extras():
    extras = (ROOT / "pyproject.toml").read_text()
    for package, (_, oldest, extra) in FRAMEWORKS.items():
        assert f'\n{extra} = ["{package}>={oldest}"]' in extras


@pytest.mark.parametrize("name", CALLS)
def test_missing_frameworks(monkeypatch, name):
    package, command, call = CALLS[name]
    monkeypatch.setitem(sys.modules, package, None)  # import raises, as without it
    for module in [module for module in sys.modules if module.startswith("fastfeed.adapters.")]:
        monkeypatch.delitem(sys.modules, module)
    with ff.Feed(ff.Arrays(np.zeros((4, 8, 8, 3), np.uint8)), [], batch=2) as feed:
        with pytest.raises(MissingExtra, match="needs") as caught:
            call(feed)
    assert command in str(caught.value)
    assert isinstance(caught.value, ImportError)
