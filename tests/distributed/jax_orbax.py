"""One process of those that train by JAX and save by Orbax, with the feed's position inside.

Takes some steps from the last checkpoint on, saves the next one, and prints one JSON object.
"""

from __future__ import annotations

import json
import os
import sys
from itertools import chain, islice, repeat
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"

import grain
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import ranks_at_work as at_work
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import fastfeed as ff


def loss(parameters: Any, images: Any, labels: Any) -> Any:
    logits = images.reshape(len(images), -1) @ parameters[0] + parameters[1]
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()


@jax.jit
def step(parameters: Any, speeds: Any, images: Any, labels: Any) -> Any:
    slopes = jax.grad(loss)(parameters, images, labels)
    speeds = jax.tree.map(lambda v, g: at_work.MOMENTUM * v - at_work.RATE * g, speeds, slopes)
    return jax.tree.map(jnp.add, parameters, speeds), speeds


def train(folder: str, steps: int) -> dict[str, Any]:
    mesh = Mesh(jax.devices(), ("data",))
    rows, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("data",), ()))
    parameters = jax.device_put(at_work.start(), whole)
    state = parameters, jax.tree.map(jnp.zeros_like, parameters)
    world = ff.World.of_mesh(mesh, "data")
    args = ocp.args
    with ocp.CheckpointManager(folder) as manager, at_work.feed(12, world=world) as data:
        last = manager.latest_step()
        if last is not None:
            wanted = {"state": args.StandardRestore(state), "feed": args.JsonRestore()}
            saved = manager.restore(last, args=args.Composite(**wanted))
            state = saved["state"]
            data.restore(saved["feed"])
        loader = data.to_jax(rows)
        for batch in islice(chain.from_iterable(repeat(loader)), steps):
            state = step(*state, *batch)
        kept = {"state": args.StandardSave(state), "feed": args.JsonSave(data.state())}
        kept["loader"] = grain.checkpoint.CheckpointSave(loader)
        now = (last or 0) + steps
        manager.save(now, args=args.Composite(**kept))
        manager.wait_until_finished()
        position = data.state()
        if jax.process_count() == 1:  # the same by its newer functions
            ocp.v1.save_checkpointables(f"{folder}-v1", {"feed": position})
            assert ocp.v1.load_checkpointables(f"{folder}-v1")["feed"] == position
        data.seek(5)
        again = iter(loader)
        of_grain = {"loader": grain.checkpoint.CheckpointRestore(again)}
        manager.restore(now, args=args.Composite(**of_grain))
        assert data.state() == position
        ids = np.asarray(next(again)[1].addressable_data(0)).tolist()
        refused = ""
        if last is not None:
            with at_work.feed(24, world=world) as other:
                try:
                    other.restore(saved["feed"])
                except ff.errors.StateError as error:
                    refused = str(error)
    kernel, bias = (np.asarray(parameter).tolist() for parameter in state[0])
    told = {"kernel": kernel, "bias": bias, "world": str(world), "refused": refused}
    return told | {"position": [position["epoch"], position["step"]], "next": ids}


def main(rank: int, size: int, address: str, folder: str, steps: int) -> dict[str, Any]:
    if size > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(address, num_processes=size, process_id=rank)
    return train(folder, steps)


if __name__ == "__main__":
    rank, size, address, folder, steps = sys.argv[1:]
    print(json.dumps(main(int(rank), int(size), address, folder, int(steps))))
