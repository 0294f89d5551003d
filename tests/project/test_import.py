"""Importing has no effects, and every public name is really there."""

from __future__ import annotations

import pytest

import fastfeed

HEAVY = ["tensorflow", "keras", "torch", "jax", "nvidia", "ray", "cv2", "PIL", "numpy", "rich", "typer", "nvtx"]


def test_import_loads_nothing_and_starts_nothing(python):
    done = python(
        "import sys, threading, logging\n"
        "before = set(sys.modules)\n"
        "import fastfeed\n"
        f"loaded = [m for m in {HEAVY} if m in sys.modules]\n"
        "assert not loaded, loaded\n"
        "ours = {m for m in set(sys.modules) - before if m.startswith('fastfeed')}\n"
        "assert ours == {'fastfeed', 'fastfeed.version'}, ours\n"
        "assert threading.active_count() == 1\n"
        "assert not logging.getLogger().handlers\n"
    )
    assert done.returncode == 0, done.stderr


def test_a_feed_loads_no_framework(python):
    done = python(
        "import sys\n"
        "import numpy as np, fastfeed as ff\n"
        "feed = ff.Feed(ff.Arrays(np.zeros((8, 8, 8, 3), 'uint8')), [ff.Normalize.imagenet()], batch=4)\n"
        "assert len(list(feed)) == 2\n"
        "loaded = [m for m in ['tensorflow', 'keras', 'torch', 'jax', 'nvidia', 'ray'] if m in sys.modules]\n"
        "assert not loaded, loaded\n"
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", fastfeed.__all__)
def test_public_name(name):
    assert getattr(fastfeed, name) is getattr(fastfeed, name)
    assert name in dir(fastfeed)


def test_unknown_name():
    with pytest.raises(AttributeError) as error:
        fastfeed.Dataset  # noqa: B018
    assert str(error.value) == "module 'fastfeed' has no attribute 'Dataset'"
