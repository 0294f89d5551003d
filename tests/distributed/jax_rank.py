"""One process of two that train by JAX on the processor, two devices each. Prints one JSON object.

Argument "environment": who this is stands in JAX_PROCESS_ID and JAX_NUM_PROCESSES. Argument
"arguments": it is passed to jax.distributed.initialize alone, and the feed has to be told.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
# XLA\'s threads: one that waits in an all-reduce holds its, and two may not be enough
os.environ["NPROC"] = "8"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["KERAS_BACKEND"] = "jax"

import jax
import jax.numpy as jnp
import numpy as np
import ranks_at_work as at_work
from helpers import field_feeds
from helpers.gpu_arrays import GpuArray
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import fastfeed as ff


def refused(call: Any) -> str:
    try:
        call()
    except ff.errors.ConfigError as error:
        return str(error)
    return "nothing was refused"


def loss(parameters: Any, images: Any, labels: Any) -> Any:
    logits = images.reshape(len(images), -1) @ parameters[0] + parameters[1]
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()


@jax.jit
def step(parameters: Any, speeds: Any, images: Any, labels: Any) -> Any:
    slopes = jax.grad(loss)(parameters, images, labels)
    speeds = jax.tree.map(lambda v, g: at_work.MOMENTUM * v - at_work.RATE * g, speeds, slopes)
    return jax.tree.map(jnp.add, parameters, speeds), speeds


def train() -> dict[str, Any]:
    """Global arrays over four devices; what they hold is looked at by gathering them everywhere."""
    mesh = Mesh(np.array(jax.devices()), ("batch",))
    sharding, whole = (
        NamedSharding(mesh, PartitionSpec("batch")),
        NamedSharding(mesh, PartitionSpec()),
    )
    everywhere = jax.jit(lambda array: array, out_shardings=whole)
    parameters = jax.device_put(at_work.start(), whole)
    speeds = jax.tree.map(jnp.zeros_like, parameters)
    seen, sums, here = [], [], []
    with at_work.feed() as data:
        loader = data.to_jax(sharding)
        for _ in range(at_work.EPOCHS):
            for images, labels in loader:
                parameters, speeds = step(parameters, speeds, images, labels)
                seen.append(np.asarray(everywhere(labels)).tolist())
                sums.append(np.asarray(everywhere(images)).sum((1, 2, 3)).tolist())
                here.append(
                    [int(i) for shard in labels.addressable_shards for i in np.asarray(shard.data)]
                )
        text = str(loader)
    of_gpu = batches_of_a_gpu(sharding, everywhere)
    kernel, bias = (np.asarray(everywhere(parameter)).tolist() for parameter in parameters)
    told = {
        "of a GPU": of_gpu,
        "kernel": kernel,
        "bias": bias,
        "seen": seen,
        "sums": sums,
        "here": here,
        "text": text,
    }
    with at_work.feed(6) as data:
        told["wrong batch"] = refused(lambda: data.to_jax(sharding))
    with at_work.feed() as data:
        told["copies"] = refused(lambda: data.to_jax(whole))
    told["shared"] = train_on_shared_rows()
    described = field_feeds.Described(field_feeds.IMAGES)
    with ff.Feed(described, [], batch=4) as data:
        item = next(iter(data.to_jax(sharding, yields={"text": "caption", "year": "year"})))
    own = [np.asarray(shard.data) for shard in item["year"].addressable_shards]
    told["years"] = [item["year"].shape[0], np.concatenate(own).tolist()]
    told["texts"] = item["text"].tolist()
    return told


def train_on_shared_rows() -> dict[str, Any]:
    """A mesh whose first axis lies within each process, and whose second one is between them."""
    devices = np.array(jax.devices()).reshape(2, 2).T
    assert [device.process_index for device in devices[0]] == [0, 1]
    mesh = Mesh(devices, ("data", "model"))
    rows = NamedSharding(mesh, PartitionSpec("data"))
    tiles = NamedSharding(mesh, PartitionSpec("data", "model"))
    everywhere = jax.jit(lambda a: a, out_shardings=NamedSharding(mesh, PartitionSpec()))
    world = ff.World.of_mesh(mesh, "data")
    with at_work.feed(world=world) as data:
        images, labels = next(iter(data.to_jax(tiles)))
        own = [shard.data.shape for shard in images.addressable_shards]
        told = {"images": np.asarray(everywhere(images)).tolist(), "own": own}
        told["labels"] = np.asarray(everywhere(labels)).tolist()
    with at_work.feed() as data:
        told["refused"] = refused(lambda: data.to_jax(rows))
    with at_work.feed(world=world) as data:
        columns = NamedSharding(mesh, PartitionSpec("model"))
        told["refused again"] = refused(lambda: data.to_jax(columns))
    return told | {"world": str(world)}


def batches_of_a_gpu(sharding: Any, everywhere: Any) -> list[Any]:
    """What lies in a GPU's memory, as with decode="gpu": this process's share of a global array."""
    from fastfeed.adapters.jax import JaxPlacement

    placement = JaxPlacement(sharding)
    placement.accelerator = True
    own = np.arange(4, dtype=np.float32).reshape(4, 1) + 10 * jax.process_index()
    (images,) = placement.take(placement.put((GpuArray(own, dlpack=True),)))
    return np.asarray(everywhere(images)).tolist()


def keras_fit() -> dict[str, Any]:
    """`fit` under DataParallel over the devices of both processes."""
    import keras

    keras.utils.set_random_seed(0)  # the same weights everywhere, or Keras refuses to lay them out
    keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
    net = keras.Sequential(
        [keras.layers.Flatten(), keras.layers.Dense(at_work.SAMPLES, name="dense")]
    )
    net.compile(
        keras.optimizers.SGD(at_work.RATE, at_work.MOMENTUM),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    net.build((None, 4, 4, 3))
    net.get_layer("dense").set_weights(at_work.start())
    with at_work.feed() as data, at_work.feed(9) as odd:
        history = net.fit(data.to_keras(), epochs=at_work.EPOCHS, verbose=0)
        state = data.state()
        kernel, bias = (
            np.asarray(array).tolist() for array in net.get_layer("dense").get_weights()
        )
        told = {"wrong batch": refused(lambda: net.fit(odd.to_keras(), verbose=0))}
    losses = history.history["loss"]
    return told | {
        "kernel": kernel,
        "bias": bias,
        "loss": losses,
        "state": [state["epoch"], state["step"]],
    }


def main(how: str, rank: int, address: str) -> dict[str, Any]:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, num_processes=2, process_id=rank)
    if how == "environment":
        return train() | {"keras": keras_fit()}
    with at_work.feed() as data:
        found = refused(data.to_jax)
    with at_work.feed(world=ff.World(rank, 2, rank, 2)) as data:
        first = next(iter(data.to_jax()))
    return {"refused": found, "labels": np.asarray(first[1]).tolist()}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
