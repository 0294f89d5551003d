"""The feed: source + ops + plan + backend -> batches."""

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
    """Batches of augmented images, made ahead of the trainer.

    Iterating yields one epoch; the next iteration yields the next one (also when the last was broken off). Where a
    run stands is `state()`, a few integers; `restore(state)` goes on from there at any world size.

    decode: "auto" and "cpu" are the JPEG kernel, and Pillow for the rest; "native" and "pillow" insist on one of them.
    "gpu" is DALI on this rank's GPU, "hybrid" the GPU and the kernel by a ratio that is measured in the first batches
    and kept for this machine; batches then lie in the GPU's memory. A `GpuDecode` says more.
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
        # samples that come as often as they weigh need not weigh again in the loss
        self._drawn_by_weight = isinstance(shuffle, Weighted) and shuffle.weights is None
        self.program = fuse(ops, source.spec, classes=len(source.classes), objects=says_where(source))
        check_fit(self.program, self.plan, source)
        policy = FaultPolicy.of(on_bad)
        self._quarantine = Quarantine(quarantine, policy=policy, length=len(source), rank=world.rank, uri=source.uri)
        self._timeline = Timeline(_timeline_path(world), rank=world.rank, name=name)
        weigh = not self._drawn_by_weight
        config = FeedConfig(source, self.program, self.plan, BACKENDS[chosen], decode, threads, prefetch + 2, weigh)
        builder, raw = config.builders(self._quarantine, self._timeline)
        self._backend, self.side_process = builder.backend, side_process
        self._producer: Producer = ThreadProducer(builder, raw, threads, prefetch)
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
        """As iterating the feed, each batch given to `place` by the thread that finished it, ahead of its turn.

        What `place` returns is yielded at the batch's turn; what it raises is raised then. `raw`: images are bytes,
        HWC, and `program.convert` is left to be done.
        """
        return self._cursor.iterate(place, raw)

    def epoch_ended(self) -> None:
        """For adapters whose trainer counts steps: it is done with the last batch and will not ask for an end."""
        self._cursor.epoch_ended()

    def batches(
        self,
        epoch: int = 0,
        start: int = 0,
        epochs: int | None = 1,
        place: PlaceFunction | None = None,
        raw: bool = False,
    ) -> BatchIterator[Any]:
        """Batches from any position, without moving this feed's own: a pure function. epochs=None never ends.

        `place` and `raw` are as in `placed`.
        """
        return self._cursor.open(epoch, start, epochs, place, raw)

    def seek(self, epoch: int, step: int = 0) -> None:
        """Let the next iteration begin here."""
        self._cursor.seek(epoch, step)

    def state(self, at: tuple[int, int] | None = None) -> dict[str, Any]:
        """Where this feed stands: the position after the last batch it gave. Plain integers and strings, for JSON.

        at: (epoch, step) instead, for a trainer that counts for itself.
        """
        return self.plan.state(*(self._cursor.position if at is None else at), self.source.fingerprint)

    def restore(self, state: dict[str, Any], strict: bool = True) -> None:
        """Go on from a saved state: the same global batches, at any world size. StateError where that cannot be.

        strict=False accepts other files (a repaired image changes the fingerprint) as long as their number is the same.
        """
        source = self.source

        def changed(before: str) -> str:
            return difference(before, source.fingerprint, len(source), source.uri)

        self.seek(*self.plan.position(state, source.fingerprint if strict else None, changed))

    def stats(self) -> FeedStats:
        """Rates, waiting, time per stage, bad samples, since the feed was made."""
        return self._meter.stats(self._timeline.totals(), self._quarantine.failures, self.threads)

    @property
    def error(self) -> FastfeedError | None:
        """What ended an iteration; TensorFlow turns it into an error of its own."""
        return self._cursor.error

    @property
    def moves(self) -> int:
        """How often seek() or restore() has moved this feed."""
        return self._cursor.moves

    @property
    def partial(self) -> bool:
        """Padding is at the end of the last batch and no other rank needs it: adapters leave it off."""
        return self.plan.tail == "pad" and self.plan.world.size == 1 and self.plan.length % self.plan.batch != 0

    @property
    def weighted(self) -> bool:
        """Weights may differ from one: masked samples, padding that other ranks need, weights of the source."""
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
        """There is conversion to do after decoding, and a device may do it instead."""
        one_array = not self.program.others  # devices convert one array
        return one_array and self.program.raw() != self.program and not self._backend.whole_batches

    def place_on(self, placement: Placement, raw: bool = False) -> None:
        """For adapters: make batches in memory that copies to this device are fast from, and say so in `explain`."""
        self._producer.use_memory(placement.memory)
        self.notes = [line for line in self.notes if not line.startswith("placed on ")]
        self.notes.append(placed_text(placement.name, self.plan, self.program, self.prefetch + 2, raw))

    def to_keras(self, **options: Any) -> Any:
        """For `model.fit(feed.to_keras())`, `evaluate` and `predict`, on whichever backend Keras runs."""
        return _adapter("keras").to_keras(self, **options)

    def keras_backup(self, folder: str | os.PathLike[str], save_freq: str | int = "epoch", **options: Any) -> Any:
        """A Keras callback: as BackupAndRestore, with the position in the data; save_freq in batches, or "epoch".

        delete_checkpoint=False keeps the backup after training has ended.
        """
        return _adapter("keras_backup").keras_backup(self, folder, save_freq, **options)

    def to_tfdata(self, device: str | None = None) -> Any:
        """A `tf.data.Dataset`; iterating it walks one epoch. device="/GPU:0" copies two batches ahead to a device."""
        return _adapter("tfdata").to_tfdata(self, device=device)

    def to_jax(self, sharding: Any = None, convert: str = "auto") -> Any:
        """Iterable epochs of `jax.Array` tuples, copied ahead to this process's first device.

        sharding: a jax.Device, or a Sharding of the leading axis, also over several processes: global arrays then.
        convert: "device" does Normalize, ToFloat and ToLayout there, so that bytes are copied; "auto" where it is none
        of the processor's.
        """
        return _adapter("jax").to_jax(self, sharding=sharding, convert=convert)

    def to_torch(self, device: Any = None, convert: str = "auto") -> Any:
        """Iterable epochs of tensor tuples, copied ahead to a device (default: the GPU of this rank, or the processor).

        The result has `state_dict()` and `load_state_dict()`. convert: as in `to_jax`.
        """
        return _adapter("torch").to_torch(self, device=device, convert=convert)

    def close(self) -> None:
        """End the threads. Also done by `with`, by garbage collection and at interpreter exit."""
        self._cursor.close()
        self._producer.close()
        self._timeline.close()

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _timeline_path(world: World) -> str | None:
    """FASTFEED_TIMELINE, with `.rank1` put before its suffix on the ranks of a larger world."""
    path = os.environ.get("FASTFEED_TIMELINE")
    if not path or world.size == 1:
        return path or None
    stem, suffix = os.path.splitext(path)
    return f"{stem}.rank{world.rank}{suffix}"


def _adapter(name: str) -> Any:
    return importlib.import_module(f"fastfeed.adapters.{name}")
