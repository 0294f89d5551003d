"""Keras layers give the bits of the transform, on every backend that is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.needs import needs

pytestmark = needs("keras")


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("tensorflow", marks=needs("tensorflow")),
        *(
            pytest.param(name, marks=[needs(name), pytest.mark.nightly])
            for name in ("jax", "torch")
        ),
    ],
)
def test_bits_are_those_of_the_transform(backend: str, tmp_path: Path):
    program = Path(__file__).with_name("keras_layer_session.py")
    done = subprocess.run(
        [sys.executable, program, tmp_path],
        env=os.environ | {"KERAS_BACKEND": backend, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.splitlines()[-1])
    assert results["backend"] == backend
    assert all(all(equal) for equal in results["cases"].values()), results["cases"]
    assert sum(map(len, results["cases"].values())) == len(results["cases"]) + 4
    assert "takes uint8 (n, 16, 16, 3), got float32 (1, 16, 16, 3)" in results["floats"]
    assert "takes uint8 (n, 16, 16, 3), got uint8 (1, 8, 16, 3)" in results["other size"]
    assert "PixelLayer has meaning 1 of fastfeed" in results["other version"]
