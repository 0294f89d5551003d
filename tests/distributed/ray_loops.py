"""Training functions for workers of Ray Train, and the driver of a run: python ray_loops.py CONFIG.

CONFIG is JSON: the cluster's address, the framework, the folder, the number of workers, their CPUs,
and for attempts that begin at some position another one at which they "fail" or "pause". Folder:
seen-<process>.jsonl, what a worker of an attempt was given, and at the end weights-<rank>.json.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import ranks_at_work as at_work

# fewer processes: each that Ray starts takes a second of a processor
os.environ["RAY_TRAIN_ENABLE_PREEMPTION_WATCHER"] = "0"
os.environ["RAY_TRAIN_METRICS_ENABLED"] = "0"
os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = "10"  # for room, then with fewer

import ray.train
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig

import fastfeed as ff


class Torch:
    """DistributedDataParallel over gloo."""

    def __init__(self, data: ff.Feed) -> None:
        import ray.train.torch
        import torch

        linear = torch.nn.Linear(at_work.PIXELS, at_work.SAMPLES)
        for parameter, value in zip(linear.parameters(), at_work.start(), strict=True):
            parameter.data.copy_(torch.from_numpy(value.T))
        self.net = ray.train.torch.prepare_model(linear)
        self.data = data
        self.linear, self.share = linear, data.plan.world.size / data.plan.global_batch
        self.optimizer = torch.optim.SGD(self.net.parameters(), at_work.RATE, at_work.MOMENTUM)
        self.batches = data.to_torch("cpu")
        self.torch = torch
        try:
            ray.train.torch.prepare_data_loader(self.batches)
        except ff.errors.ConfigError as error:
            self.refused = str(error)

    def step(self, images: Any, labels: Any) -> list[int]:
        logits = self.net(images.flatten(1))
        # the sum over all ranks, though DDP divides by their number
        entropy = self.torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
        self.optimizer.zero_grad()
        (entropy * self.share).backward()
        self.optimizer.step()
        return labels.tolist()

    def save(self, folder: Path) -> None:
        parts = {"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict()}
        self.torch.save(parts | {"data": self.batches.state_dict()}, folder / "state.pt")

    def load(self, folder: Path) -> None:
        saved = self.torch.load(folder / "state.pt", weights_only=True)
        self.net.load_state_dict(saved["net"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.batches.load_state_dict(saved["data"])

    def position(self) -> list[int]:
        return position(self.data)

    def weights(self) -> list[Any]:
        return [self.linear.weight.T.tolist(), self.linear.bias.tolist()]


class Arrays:
    """Weights, speeds and the position as files."""

    data: ff.Feed
    arrays: list[Any]  # kernel, bias, and their speeds

    def save(self, folder: Path) -> None:
        np.savez(folder / "arrays.npz", *self.arrays)
        (folder / "data.json").write_text(json.dumps(self.position()))

    def load(self, folder: Path) -> None:
        with np.load(folder / "arrays.npz") as saved:
            self.put(list(saved.values()))
        self.data.seek(*json.loads((folder / "data.json").read_text()))

    def position(self) -> list[int]:
        return position(self.data)

    def put(self, arrays: list[Any]) -> None:
        self.arrays = arrays

    def weights(self) -> list[Any]:
        return [np.asarray(array).tolist() for array in self.arrays[:2]]


class TensorFlow(Arrays):
    """MultiWorkerMirroredStrategy: it takes batches ahead of time, so that steps are counted here."""

    def __init__(self, data: ff.Feed) -> None:
        import tensorflow as tf
        import tf_rank

        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        self.data, self.strategy = data, strategy
        self.own = tf_rank.Own(strategy, 1 / data.plan.global_batch)
        self.ids = tf_rank.ids
        self.batches = strategy.distribute_datasets_from_function(lambda context: data.to_tfdata())
        self.steps = 0

    def load(self, folder: Path) -> None:
        super().load(folder)
        epoch, step = position(self.data)
        self.steps = epoch * len(self.data) + step

    def position(self) -> list[int]:
        return list(divmod(self.steps, len(self.data)))

    @property
    def arrays(self) -> list[Any]:
        return [variable.numpy() for variable in (*self.own.variables, *self.own.speeds)]

    def put(self, arrays: list[Any]) -> None:
        for variable, value in zip((*self.own.variables, *self.own.speeds), arrays, strict=True):
            variable.assign(value)

    def step(self, images: Any, labels: Any) -> list[int]:
        self.own.run(images, labels)
        self.steps += 1
        return self.ids(self.strategy, labels)


class Jax(Arrays):
    """Global arrays over the devices of all workers."""

    def __init__(self, data: ff.Feed) -> None:
        import jax
        import jax_rank
        from jax.sharding import NamedSharding, PartitionSpec

        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("batch",))
        self.whole = NamedSharding(mesh, PartitionSpec())
        self.data, self.jax, self.run = data, jax, jax_rank.step
        self.batches = data.to_jax(NamedSharding(mesh, PartitionSpec("batch")))
        self.put([*at_work.start(), *map(np.zeros_like, at_work.start())])

    def put(self, arrays: list[Any]) -> None:
        self.arrays = [self.jax.device_put(array, self.whole) for array in arrays]

    def step(self, images: Any, labels: Any) -> list[int]:
        weights, speeds = self.run(self.arrays[:2], self.arrays[2:], images, labels)
        self.arrays = [*weights, *speeds]
        return [int(i) for shard in labels.addressable_shards for i in np.asarray(shard.data)]


def position(data: ff.Feed) -> list[int]:
    state = data.state()
    return [state["epoch"], state["step"]]


def walk(config: dict[str, Any]) -> None:
    """A worker's part of an attempt: from the last checkpoint to the end."""
    folder, place = Path(config["folder"]), ff.World.detect()
    with (
        at_work.feed() as data,
        (folder / f"seen-{os.getpid()}.jsonl").open("w") as log,
    ):

        def note(**what: Any) -> None:
            print(json.dumps(what), file=log, flush=True)

        net = FRAMEWORKS[config["framework"]](data)
        if checkpoint := ray.train.get_checkpoint():
            with checkpoint.as_directory() as saved:
                net.load(Path(saved))
        at = net.position()
        end, how = config["ends"].get(str(at), (None, ""))
        note(begins=at, world=str(place), size=place.size, refused=getattr(net, "refused", ""))
        while at[0] < at_work.EPOCHS:
            for images, labels in net.batches:
                if at == end:
                    note(ends=at)
                    stop(how, place.rank)
                note(at=at, labels=net.step(images, labels))
                at = net.position()
                if at[1] % 2 == 0:
                    report(net, place.main)
        told = dict(zip(("kernel", "bias"), net.weights(), strict=True))
        (folder / f"weights-{place.rank}.json").write_text(json.dumps(told))


def report(net: Any, main: bool) -> None:
    """All workers report; the first one has the checkpoint."""
    with tempfile.TemporaryDirectory() if main else nullcontext() as folder:
        if folder:
            net.save(Path(folder))
        ray.train.report({}, Checkpoint.from_directory(folder) if folder else None)


def stop(how: str, rank: int) -> None:
    """An error in the second worker, or a pause in which the test changes the cluster."""
    if how == "pause":
        time.sleep(at_work.LIMIT_S)
    if how == "pause" or rank == 1:
        raise RuntimeError("as if the machine were gone")


def trainer(config: dict[str, Any]) -> Any:
    workers = config["workers"]
    options = {
        "train_loop_config": config,
        "scaling_config": ScalingConfig(
            num_workers=tuple(workers) if isinstance(workers, list) else workers,
            resources_per_worker={"CPU": config["cpus"]},
            elastic_resize_monitor_interval_s=1,
        ),
        "run_config": RunConfig(
            name="run",
            storage_path=config["folder"],
            failure_config=FailureConfig(max_failures=1),
            worker_runtime_env={"env_vars": {"JAX_PLATFORMS": "cpu"}},
        ),
    }
    if config["framework"] == "tensorflow":
        from ray.train.tensorflow import TensorflowTrainer

        return TensorflowTrainer(walk, **options)
    if config["framework"] == "jax":
        from ray.train.v2.jax import JaxConfig, JaxTrainer

        # Ray connects processes of JAX if they have GPUs, or are said to
        return JaxTrainer(walk, jax_config=JaxConfig(use_gpu=True), **options)
    from ray.train.torch import TorchTrainer

    return TorchTrainer(walk, **options)


FRAMEWORKS: dict[str, Callable[[ff.Feed], Any]] = {
    "torch": Torch,
    "tensorflow": TensorFlow,
    "jax": Jax,
}


if __name__ == "__main__":
    config = json.loads(sys.argv[1])
    ray.init(config["address"], logging_level="error")
    trainer(config).fit()
