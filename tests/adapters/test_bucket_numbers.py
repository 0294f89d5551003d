"""Feeds whose batches differ in their number of images, in every framework."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.needs import needs

FRAMEWORKS = [
    pytest.param("torch", marks=needs("torch")),
    pytest.param("jax", marks=[needs("jax"), pytest.mark.slow]),
    pytest.param("tfdata", marks=[needs("tensorflow"), pytest.mark.slow]),
    pytest.param("keras-jax", marks=[needs("keras", "jax"), pytest.mark.slow]),
    pytest.param("keras-tensorflow", marks=[needs("keras", "tensorflow"), pytest.mark.nightly]),
]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_batch_has_the_images_of_its_bucket(framework):
    program = Path(__file__).with_name("bucket_numbers_session.py")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program), framework],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    shapes = [[1, 16, 16, 3], [8, 6, 8, 3], [8, 8, 6, 3]]
    assert (result.pop("steps"), result.pop("shapes")) == (9, shapes)
    assert result.pop("counts") == [1] * 6 + [8] * 3
    refused = result.pop("refused", None)
    assert (refused is not None) == (framework == "jax")
    assert refused is None or "got 1 samples for 2 devices; change multiple of Buckets" in refused
    assert all(result.values()), result
