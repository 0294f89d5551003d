"""Keras's `fit` under `fastfeed prove`, with data that is no feed, on each backend."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.needs import needs, require

pytestmark = needs("keras")
SESSION = Path(__file__).with_name("keras_fit_session.py")
BACKENDS = (
    "jax",
    *(pytest.param(name, marks=pytest.mark.nightly) for name in ("tensorflow", "torch")),
)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_data_of_fit_is_measured(backend: str):
    require(backend)
    done = subprocess.run(
        [sys.executable, SESSION, backend], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("named") is None  # --feed names a Feed
    assert {name: (one["source"], one["batch"]) for name, one in found.items()} == {
        "slow": ("generator", 4),
        "fast": ("generator", 4),
        "arrays": ("ndarray", 4),
        "rows": ("Rows", 4),
        "epochs": ("generator", 4),
        "watched": ("WatchedAdapter", 4),
    }
    assert (found["arrays"]["steps"], found["rows"]["steps"]) == (5, 6)
    assert found["epochs"]["block"] < 18
    for name in ("arrays", "rows"):  # six batches and fewer, again and again: the epoch never ends
        assert any("began again" in note for note in found[name]["notes"])
    if backend == "tensorflow":
        return  # its threads make batches, and spend time, ahead of the trainer
    costs = {"slow": 30.0, "fast": 0.0, "arrays": 0.0, "rows": 0.0, "epochs": 30.0, "watched": 0.0}
    assert {name: one["parts"]["loading"] for name, one in found.items()} == costs
    assert {one["resident"] for one in found.values()} == {10.0}
