"""One rank of a launched run: pins a GPU, walks two epochs and writes down what it got, in a file
of its own.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np

import fastfeed as ff

SAMPLES, GLOBAL_BATCH, EPOCHS = 60, 12, 2


def walk() -> dict:
    """Which rank this is, which GPU it pinned, and the ids of each step: epochs, steps, samples."""
    gpu = ff.pin_gpu()  # the list that it takes one of is made up
    source = ff.Arrays(np.zeros((SAMPLES, 4, 4, 3), np.uint8))
    with ff.Feed(
        source, [], global_batch=GLOBAL_BATCH, seed=3, threads=1
    ) as feed:  # no world: found, not told
        ids = [[batch.ids.tolist() for batch in feed] for _ in range(EPOCHS)]
        world = feed.plan.world
    place = [world.rank, world.size, world.local_rank, world.local_size]
    return {
        "world": place,
        "gpu": gpu,
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "found_by": world.found_by,
        "ids": ids,
    }


if __name__ == "__main__":
    if "--gloo" in sys.argv:  # what the framework says must be what the feed finds
        import torch.distributed as dist

        dist.init_process_group("gloo")
        told = [dist.get_rank(), dist.get_world_size()]
        found = ff.World.detect()
        # by gloo: PyTorch has not looked for GPUs, so one can still be pinned
        dist.destroy_process_group()
        if [found.rank, found.size] != told:
            sys.exit(f"torch.distributed says {told}, the feed finds {found}")
    Path(sys.argv[1], f"{os.getpid()}.json").write_text(json.dumps(walk()))
