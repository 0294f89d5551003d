"""Importing has no effects, and every public name is really there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fastfeed
import fastfeed.ops

FOLDER = Path(fastfeed.__file__).parent

HEAVY = [
    "tensorflow",
    "keras",
    "torch",
    "jax",
    "nvidia",
    "ray",
    "cv2",
    "PIL",
    "numpy",
    "rich",
    "typer",
    "nvtx",
]


def test_import_loads_nothing_and_starts_nothing(python):
    done = python(
        "import sys, threading, logging\n"
        "before = set(sys.modules)\n"
        "import fastfeed\n"
        f"loaded = [m for m in {HEAVY} if m in sys.modules]\n"
        "assert not loaded, loaded\n"
        "ours = {m for m in set(sys.modules) - before if m.startswith('fastfeed')}\n"
        "assert ours == {'fastfeed'}, ours\n"
        "assert threading.active_count() == 1\n"
        "assert not logging.getLogger().handlers\n"
    )
    assert done.returncode == 0, done.stderr


def test_a_feed_loads_no_framework(python):
    done = python(
        "import sys\nimport numpy as np, fastfeed as ff\nfeed = ff.Feed(ff.Arrays(np.zeros((8, 8,"
        " 8, 3), 'uint8')), [ff.Normalize.imagenet()], batch=4)\nassert len(list(feed)) =="
        " 2\nloaded = [m for m in ['tensorflow', 'keras', 'torch', 'jax', 'nvidia', 'ray'] if m in"
        " sys.modules]\nassert not loaded, loaded\n"
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_every_module_can_be_imported(python):
    """Also those that only another process imports, by each Python that is supported; or the extra
    is named.
    """
    done = python(
        "import importlib, pkgutil, sys\nimport fastfeed\nfailed = []\nfor module in"
        " pkgutil.walk_packages(fastfeed.__path__, 'fastfeed.', onerror=lambda name: None):\n    if"
        " module.name.startswith(('fastfeed.adapters', 'fastfeed.backends.dali')) or '__main__' in"
        " module.name:\n        continue\n    try:\n        importlib.import_module(module.name)\n "
        "   except ModuleNotFoundError as error:\n        if (error.name or"
        " '').startswith('fastfeed') and '_native' not in error.name: raise\n    except"
        " fastfeed.errors.MissingExtra:\n        continue\n    except ImportError as error:\n      "
        "  failed.append((module.name, str(error)))\nassert not failed, failed\n"
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", fastfeed.__all__)
def test_public_name(name):
    assert getattr(fastfeed, name) is getattr(fastfeed, name)
    assert name in dir(fastfeed)


def test_type_checkers_see_what_is_there_at_run_time():
    stub = ast.parse((FOLDER / "__init__.pyi").read_text()).body[1:]
    assert all(isinstance(node, ast.ImportFrom) and node.level == 1 for node in stub)
    aliases = [alias for node in stub if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert all(alias.asname == alias.name for alias in aliases if alias.name != "*")  # re-exports
    (star,) = (
        node.module
        for node in stub
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
    )
    assert star == "ops"
    assert (
        fastfeed.__all__
        == [alias.name for alias in aliases if alias.name != "*"] + fastfeed.ops.__all__
    )
    assert len(set(fastfeed.__all__)) == len(fastfeed.__all__)
    assert (FOLDER / "py.typed").is_file()


def test_all_names_come_with_a_star(python):
    done = python("from fastfeed import *; print(Feed.__name__, Hue.__name__, errors.__name__)")
    assert (done.stdout, done.stderr) == ("Feed Hue fastfeed.errors\n", "")


def test_unknown_name():
    with pytest.raises(AttributeError) as error:
        fastfeed.Zebra  # noqa: B018
    assert str(error.value) == "module 'fastfeed' has no attribute 'Zebra'"
