"""Check that the framework that trains and a feed agree on this process's rank.

Imports no framework.
"""

from __future__ import annotations

import sys
from typing import Any

from fastfeed.distributed.world import World
from fastfeed.errors import ConfigError


def check_ranks(world: World, framework: str, rank: int, size: int) -> None:
    """Raise ConfigError if the framework and the feed disagree on this process's rank.

    A world that was passed on purpose is believed: a feed may be for one rank alone, as when rank 0
    evaluates. So is the order in which another launcher numbers the same number of processes.
    """
    launcher, _, what = world.found_by.partition(": ")
    if not what or (
        world.size == size and (launcher not in ("default", framework) or world.rank == rank)
    ):
        return
    if world.size == 1:
        alike = "every process would train on the same samples"
    else:
        alike = "several would train on the same"
    raise ConfigError(
        f"the feed reads as rank {world.rank} of {world.size} ({what}), but {framework} runs this"
        f" process as {rank} of {size}:"
        f" {alike if size > world.size else 'samples would be left out'}; pass"
        f" Feed(world=ff.World({rank}, {size}, local_rank, local_size)), or world=ff.World() if"
        " this is meant",
        field="world",
    )


def check_process_groups(world: World) -> None:
    """Check ranks with each framework that runs several processes now."""
    torch: Any = sys.modules.get("torch.distributed")
    if torch is not None and torch.is_available() and torch.is_initialized():
        check_ranks(world, "torch.distributed", torch.get_rank(), torch.get_world_size())
    for name in ("horovod.torch", "horovod.tensorflow"):
        # elastic Horovod numbers its processes again, and Python's os.environ keeps the old numbers
        horovod: Any = sys.modules.get(name)
        if horovod is not None and horovod.is_initialized():
            check_ranks(world, "Horovod", horovod.rank(), horovod.size())
    # JAX's own functions would start its backends, which waits for the other processes
    jax = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    if getattr(jax, "client", None) is not None:
        check_ranks(world, "JAX", jax.process_id, jax.num_processes)  # type: ignore[union-attr]
