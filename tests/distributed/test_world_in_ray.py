"""The rank of a worker of Ray Train, whatever variables it has inherited."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from fastfeed.distributed.world import World

# of `srun ray start`, which workers inherit
SRUN = {
    "SLURM_STEP_NUM_TASKS": 2,
    "SLURM_PROCID": 0,
    "SLURM_LOCALID": 0,
    "SLURM_NODEID": 0,
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
}


class RayContext:
    """What `ray.train.get_context()` tells worker 2 of 3."""

    def get_world_rank(self) -> int:
        return 2

    def get_world_size(self) -> int:
        return 3

    def get_local_rank(self) -> int:
        return 1

    def get_local_world_size(self) -> int:
        return 2


def test_a_worker_of_ray_train_has_its_rank_from_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SRUN.items():
        monkeypatch.setenv(name, str(value))
    told: dict[str, Any] = {"get_context": RayContext}
    monkeypatch.setitem(sys.modules, "ray.train", SimpleNamespace(**told))
    found = World.detect()
    assert found == World(2, 3, 1, 2)
    assert found.found_by == "Ray Train: ray.train.get_context()"
    assert World.detect({"RANK": "1", "WORLD_SIZE": "2"}) == World(1, 2)
    for error in (RuntimeError, DeprecationWarning, UserWarning):  # the driver, Ray Tune

        def refuse(error: type[Exception] = error) -> None:
            raise error("get_context cannot be used outside of a training function")

        monkeypatch.setitem(sys.modules, "ray.train", SimpleNamespace(get_context=refuse))
        assert World.detect().found_by.startswith("Slurm: ")
    monkeypatch.setattr(RayContext, "get_world_size", lambda self: None)  # the first Ray Train
    monkeypatch.setitem(sys.modules, "ray.train", SimpleNamespace(**told))
    assert World.detect().found_by.startswith("Slurm: ")
