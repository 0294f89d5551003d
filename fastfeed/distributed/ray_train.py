"""The rank of this process among the workers of Ray Train. Imports no Ray."""

from __future__ import annotations

import sys
from typing import NamedTuple


class RayWorker(NamedTuple):
    """The numbers of a worker, as `ray.train.get_context()` has them."""

    rank: int
    size: int
    local_rank: int
    local_size: int


def ray_worker() -> RayWorker | None:
    """The worker that this process is; None outside of a training function of Ray Train.

    Ray Train sets variables for PyTorch and TensorFlow alone, and its workers inherit those of the
    step that has started Ray, as `srun ray start` does.
    """
    train = sys.modules.get("ray.train")
    if train is None:
        return None
    try:
        context = train.get_context()
        numbers = [
            context.get_world_rank(),
            context.get_world_size(),
            context.get_local_rank(),
            context.get_local_world_size(),
        ]
    except (RuntimeError, AttributeError, Warning):  # a driver, Ray Tune; differs by Ray's version
        return None
    return None if None in numbers else RayWorker(*numbers)
