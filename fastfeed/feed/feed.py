"""The feed: reads a source, runs the ops and yields batches in the order of the plan."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from fastfeed.backends.options import DecodeBy, GpuDecode, choose
from fastfeed.distributed.cores import cores_for
from fastfeed.distributed.world import World
from fastfeed.errors import ConfigError, FastfeedError
from fastfeed.faults import FaultPolicy
from fastfeed.feed.config import FeedConfig, check_fit, check_source
from fastfeed.feed.explain import feed_text, placed_text
from fastfeed.feed.helper_process.job import HelperJob
from fastfeed.feed.helper_process.producer import HelperProducer
from fastfeed.feed.iterator import BatchIterator, Cursor
from fastfeed.feed.producer import PlaceFunction, Producer, ThreadProducer
from fastfeed.feed.quarantine import Quarantine
from fastfeed.feed.stats import FeedStats, Meter
from fastfeed.ops.base import Op
from fastfeed.ops.program.compile import fuse
from fastfeed.runtime.batch import Batch
from fastfeed.runtime.placement import Placement
from fastfeed.runtime.timeline import Timeline
from fastfeed.sampling import Shuffle, Weighted, bind
from fastfeed.sampling.plan import Plan
from fastfeed.sources.base import Annotated, Source, says_where
from fastfeed.storage.fingerprint import difference

__all__ = ["Feed"]

BACKENDS = {"cpu": "fastfeed.backends.cpu.backend", "dali": "fastfeed.backends.dali.backend"}  # loaded on demand


class Feed:
    """Yields batches of augmented images, prepared ahead of the trainer.

    Each iteration yields one epoch, and the next iteration the next epoch, also if the last one was interrupted.
    `state()` returns the position as a few integers; `restore(state)` resumes from it at any world size.

    Args:
        source: Where the samples come from, such as `ImageFolder("photos/train")`.
        ops: Ops to run on each sample, in order. A bare function is wrapped in `Function`.
        batch: Samples per rank per step.
        global_batch: Samples per step over all ranks; give either this or `batch`.
        seed: Seed of the shuffle and of all random ops.
        world: Rank and world size; by default taken from the launcher's environment variables.
        shuffle: Order of the samples, such as "full"; False keeps the source's order.
        tail: What to do with an incomplete last batch: drop it, or pad it with samples of weight 0.
        threads: By default the cores this process may use, shared with the node's other ranks.
        prefetch: Batches to prepare ahead of the one in use.
        decode: "auto" and "cpu" use the JPEG kernel, and Pillow for other formats; "native" and "pillow" require that
            decoder. "gpu" uses DALI on this rank's GPU; "hybrid" splits JPEGs between GPU and kernel at a ratio
            measured in the first batches and saved for this machine. `GpuDecode` sets the details.
        backend: By default "dali" for decode="gpu" and "hybrid", otherwise "cpu".
        on_bad: What to do with a sample that cannot be read or decoded.
        quarantine: File that lists bad samples. An existing file is read first.
        side_process: Make batches in a helper process, for trainers that keep Python busy.
        name: Name of this feed in timelines.
    """

    def __init__(
        self,
        source: Source,
        ops: Sequence[Op | Callable[[np.ndarray, np.ndarray], np.ndarray]],  # a bare function: see Function
        *,
        batch: int | None = None,  # samples per rank per step
        global_batch: int | None = None,  # or: samples per step over all ranks
        seed: int = 0,
        world: World | None = None,  # default: what the launcher's environment says
        shuffle: Shuffle | bool = "full",
        tail: Literal["drop", "pad"] = "drop",
        threads: int | None = None,  # default: the cores this process may use, shared with the node's other ranks
        prefetch: int = 2,  # batches ahead of the one in use
        decode: DecodeBy | GpuDecode = "auto",
        backend: Literal["cpu", "dali"] | None = None,  # default: dali for decode="gpu" and "hybrid", else cpu
        on_bad: Literal["substitute", "mask", "raise"] | FaultPolicy = "substitute",
        quarantine: str | os.PathLike[str] | None = None,  # file that lists bad samples; read first if it exists
        side_process: bool = False,  # make batches in a helper process: for trainers whose Python is busy
        name: str = "",
    ) -> None:
        check_source(source)
        world = world if world is not None else World.detect()
        if not isinstance(world, World):
            raise ConfigError(f"world must be a World such as World(rank=0, size=2) or None, got {world!r}")
        threads = cores_for(world) if threads is None else threads
        for argument, value, minimum in (("threads", threads, 1), ("prefetch", prefetch, 0)):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < minimum:
                raise ConfigError(f"{argument} must be an integer >= {minimum}, got {value!r}")
        chosen, decode = choose(decode, backend, BACKENDS)
        if not isinstance(side_process, bool):
            raise ConfigError(f"side_process must be True or False, got {side_process!r}")
        self.source, self.threads, self.prefetch = source, threads, prefetch
        self.plan = Plan.make(
            len(source),
            batch=batch,
            global_batch=global_batch,
            seed=seed,
            world=world,
            shuffle=bind(shuffle, source),
            tail=tail,
        )
        # samples drawn in proportion to their weight must not be weighted again in the loss
        self._drawn_by_weight = isinstance(shuffle, Weighted) and shuffle.weights is None
        self.program = fuse(ops, source.spec, classes=len(source.classes), objects=says_where(source))
        check_fit(self.program, self.plan, source)
        policy = FaultPolicy.of(on_bad)
        self._quarantine = Quarantine(quarantine, policy=policy, length=len(source), rank=world.rank, uri=source.uri)
        self._timeline = Timeline(_timeline_path(world), rank=world.rank, name=name)
        weigh = not self._drawn_by_weight
        config = FeedConfig(source, self.program, self.plan, BACKENDS[chosen], decode, threads, prefetch + 2, weigh)
        builder, raw = config.builders(self._quarantine, self._timeline)
        self._backend, self._backend_name, self.side_process = builder.backend, chosen, side_process
        self._producer: Producer = ThreadProducer(builder, raw, prefetch)
        if side_process:
            self._producer = HelperProducer(HelperJob.of(config, builder), prefetch, self._quarantine, self._timeline)
        self._meter = Meter()
        self._cursor = Cursor(self._producer, self.plan, self._meter, self._timeline)
        self.notes: list[str] = []  # lines that adapters add to `explain`

    def __len__(self) -> int:
        """Steps per epoch, the same on every rank."""
        return self.plan.steps

    def __iter__(self) -> Iterator[Batch]:
        """One epoch, from the position of `restore` or `seek` if that lies inside it."""
        return self.placed(None)

    def placed(self, place: PlaceFunction | None, raw: bool = False) -> Iterator[Any]:
        """Iterate one epoch, with each batch passed to `place` by the thread that finished it, ahead of its turn.

        The result of `place` is yielded at the batch's turn, an exception from it raised then. `raw`: images are uint8
        HWC, and the caller still has to apply `program.convert`.
        """
        return self._cursor.iterate(place, raw)

    def epoch_ended(self) -> None:
        """For adapters whose trainer counts steps and so never iterates past the last batch: the epoch is complete."""
        self._cursor.epoch_ended()

    def batches(
        self,
        epoch: int = 0,
        start: int = 0,
        epochs: int | None = 1,
        place: PlaceFunction | None = None,
        raw: bool = False,
    ) -> BatchIterator[Any]:
        """Batches from any position; this feed's own position does not change. epochs=None never ends.

        `place` and `raw` are as in `placed`.
        """
        return self._cursor.open(epoch, start, epochs, place, raw)

    def seek(self, epoch: int, step: int = 0) -> None:
        """Start the next iteration at this position."""
        self._cursor.seek(epoch, step)

    def state(self, at: tuple[int, int] | None = None) -> dict[str, Any]:
        """The position after the last batch that was yielded, as plain integers and strings that fit into JSON.

        at: (epoch, step) to save instead, for trainers that count steps themselves.
        """
        return self.plan.state(*(self._cursor.position if at is None else at), self.source.fingerprint)

    def restore(self, state: dict[str, Any], strict: bool = True) -> None:
        """Resume from a saved state with the same global batches, at any world size; StateError if that is impossible.

        strict=False accepts changed files (a repaired image changes the fingerprint) if there are as many as before.
        """
        source = self.source

        def changed(before: str) -> str:
            return difference(before, source.fingerprint, len(source), source.uri)

        self.seek(*self.plan.position(state, source.fingerprint if strict else None, changed))

    def stats(self) -> FeedStats:
        """Throughput, wait time, time per stage and bad samples since the feed was created."""
        return self._meter.stats(self._timeline.totals(), self._quarantine.failures, self.threads)

    @property
    def error(self) -> FastfeedError | None:
        """The error that ended an iteration; TensorFlow replaces it with an error of its own."""
        return self._cursor.error

    @property
    def moves(self) -> int:
        """How often seek() or restore() has moved this feed."""
        return self._cursor.moves

    @property
    def partial(self) -> bool:
        """Whether the last batch ends in padding that no other rank needs; adapters cut it off."""
        return self.plan.tail == "pad" and self.plan.world.size == 1 and self.plan.length % self.plan.batch != 0

    @property
    def weighted(self) -> bool:
        """Whether weights may differ from 1: masked samples, padding that other ranks need, weights of the source."""
        if self._quarantine.policy.action == "mask" or (self.plan.tail == "pad" and self.plan.world.size > 1):
            return True
        if self._drawn_by_weight or not isinstance(self.source, Annotated):
            return False
        return self.source.weights(np.empty(0, np.int64)) is not None

    @property
    def timeline(self) -> Timeline:
        """Spans of every stage."""
        return self._timeline

    def explain(self) -> str:
        """What this feed will do, as `print(feed)` shows it. Reads no image."""
        quarantine = self._quarantine
        bad = quarantine.policy.action + (f", listed in {quarantine.path}" if quarantine.path else "")
        where = " of a helper process" if self.side_process else ""
        threads, ahead = "thread" + "s" * (self.threads != 1), "batch" + "es" * (self.prefetch != 1)
        how = f"{self.threads} {threads}{where}, {self.prefetch} {ahead} ahead, bad samples: {bad}"
        path, memory_name = self._backend.decode_path(), self._backend.memory_name
        text = feed_text(self.source, self.plan, self.program, how, path, self.prefetch + 2, memory_name)
        return "\n".join([text, *(f"  {line}" for line in self.notes)])

    __str__ = explain

    def __repr__(self) -> str:
        return f"Feed({self.source!r}, batch={self.plan.batch}, steps={self.plan.steps})"

    @property
    def converts(self) -> bool:
        """Whether images are converted after decoding and a device may do that instead."""
        one_array = not self.program.others  # devices convert one array
        return one_array and self.program.raw() != self.program and self._backend_name == "cpu"

    def place_on(self, placement: Placement, raw: bool = False) -> None:
        """For adapters: make batches in memory that is fast to copy to this device, and report it in `explain`."""
        self._producer.use_memory(placement.memory)
        self.notes = [line for line in self.notes if not line.startswith("placed on ")]
        self.notes.append(placed_text(placement.name, self.plan, self.program, self.prefetch + 2, raw))

    def to_keras(self, **options: Any) -> Any:
        """For `model.fit(feed.to_keras())`, `evaluate` and `predict`, with any Keras backend."""
        return _adapter("keras").to_keras(self, **options)

    def keras_backup(self, folder: str | os.PathLike[str], save_freq: str | int = "epoch", **options: Any) -> Any:
        """A Keras callback like BackupAndRestore that also saves the data position; save_freq: batches, or "epoch".

        delete_checkpoint=False keeps the backup after training has ended.
        """
        return _adapter("keras_backup").keras_backup(self, folder, save_freq, **options)

    def to_tfdata(self, device: str | None = None) -> Any:
        """A `tf.data.Dataset` of one epoch per iteration; device="/GPU:0" prefetches two batches to that device."""
        return _adapter("tfdata").to_tfdata(self, device=device)

    def to_jax(self, sharding: Any = None, convert: str = "auto") -> Any:
        """An iterable of `jax.Array` tuples, one epoch per iteration, prefetched to this process's first device.

        sharding: a jax.Device, or a Sharding of the leading axis; one that spans processes yields global arrays.
        convert: "device" runs Normalize, ToFloat and ToLayout on the device, so that only uint8 is copied; "auto" does
        so unless the device is the CPU.
        """
        return _adapter("jax").to_jax(self, sharding=sharding, convert=convert)

    def to_torch(self, device: Any = None, convert: str = "auto") -> Any:
        """An iterable of tensor tuples, one epoch per iteration, prefetched to a device (by default this rank's GPU).

        The result has `state_dict()` and `load_state_dict()`. convert: as in `to_jax`.
        """
        return _adapter("torch").to_torch(self, device=device, convert=convert)

    def close(self) -> None:
        """Stop the threads. `with`, garbage collection and interpreter exit do this as well."""
        self._cursor.close()
        self._producer.close()
        self._timeline.close()

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _timeline_path(world: World) -> str | None:
    """The path in FASTFEED_TIMELINE, with `.rank1` inserted before its suffix if there are several ranks."""
    path = os.environ.get("FASTFEED_TIMELINE")
    if not path or world.size == 1:
        return path or None
    stem, suffix = os.path.splitext(path)
    return f"{stem}.rank{world.rank}{suffix}"


def _adapter(name: str) -> Any:
    return importlib.import_module(f"fastfeed.adapters.{name}")
