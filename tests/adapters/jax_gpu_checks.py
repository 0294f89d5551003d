"""Run by test_jax.py in a process of its own, with four devices that stand for GPUs: each function
is one test.
"""

import json
import os
import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np
from helpers.gpu_arrays import GpuArray
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import fastfeed as ff
from fastfeed.adapters.jax import JaxPlacement
from fastfeed.errors import DeviceMemory

SHARDED = NamedSharding(Mesh(np.array(jax.devices()), ("batch",)), PartitionSpec("batch"))
FULL = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 38 bytes."


def check_a_batch_of_the_first_gpu_reaches_any_other():
    for where in ("cpu:2", SHARDED):
        placement = JaxPlacement(where)
        placement.accelerator = True
        memory = np.arange(8 * 64, dtype=np.float32).reshape(8, 64)
        want = memory.copy()
        placed = placement.put((GpuArray(memory, dlpack=True), np.arange(8)))
        memory[:] = -1  # the next batch is made in it
        images, labels = placement.take(placed)
        np.testing.assert_array_equal(images, want)
        assert (
            images.devices()
            == labels.devices()
            == ({jax.devices()[2]} if where == "cpu:2" else set(jax.devices()))
        )


def check_no_room_for_the_conversion_says_what_to_lower_and_the_next_batch_comes():
    def full(*_):
        raise jax.errors.JaxRuntimeError(FULL)

    images = np.random.default_rng(0).integers(0, 256, (44, 8, 6, 3), dtype=np.uint8)
    with ff.Feed(ff.Arrays(images, np.arange(44)), [ff.Normalize.imagenet()], batch=8) as data:
        loader = data.to_jax(convert="device")
        good, loader._convert = loader._convert, full
        try:
            next(iter(loader))
        except DeviceMemory as error:
            assert "JAX cpu:0 has no memory left for a batch of" in str(error), error
        else:
            raise AssertionError("no DeviceMemory")
        loader._convert = good
        assert next(iter(loader))[0].shape == (8, 8, 6, 3)


result = {}
for name, check in [pair for pair in globals().items() if pair[0].startswith("check_")]:
    try:
        check()
        result[name] = ""
    except BaseException:
        result[name] = traceback.format_exc()
json.dump(result, sys.stdout)
