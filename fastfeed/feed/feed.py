"""The feed: reads a source, runs the ops and yields batches in the order of the plan."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from fastfeed.arguments import checked, checked_early
from fastfeed.backends.options import DecodeBy, GpuDecode, choose
from fastfeed.decode.memory_limit import DECODING, check_memory
from fastfeed.distributed.cores import cores_for
from fastfeed.distributed.world import World
from fastfeed.errors import ConfigError, ProofError, StateError
from fastfeed.faults import FaultPolicy, Outage, fault_policies
from fastfeed.feed.adapter_api import ForAdapters
from fastfeed.feed.config import FeedConfig, check_fit, timeline_path
from fastfeed.feed.explain import decoding_text, feed_text
from fastfeed.feed.faults.quarantine import Quarantine
from fastfeed.feed.framework_methods import ForTrainers
from fastfeed.feed.helper_process.job import HelperJob
from fastfeed.feed.helper_process.producer import HelperProducer
from fastfeed.feed.identity import changes, identity
from fastfeed.feed.iterator import BatchIterator, Cursor
from fastfeed.feed.live_status import live_status
from fastfeed.feed.producer import PlaceFunction, Producer, ThreadProducer
from fastfeed.gpu_support import runs_on_gpu
from fastfeed.live.meter import FeedStats, Meter
from fastfeed.ops.base import Op
from fastfeed.ops.program.compile import fuse
from fastfeed.printable import printable, warn
from fastfeed.runtime.batch import Batch
from fastfeed.runtime.misuse import check_workers
from fastfeed.runtime.timeline import Timeline
from fastfeed.sampling import Shuffle, Weighted, bind
from fastfeed.sampling.plan import Plan
from fastfeed.sources.base import Source, check_source, says_where
from fastfeed.storage.fingerprint import difference

__all__ = ["Feed"]

# loaded on demand
BACKENDS = {name: f"fastfeed.backends.{name}.backend" for name in ("cpu", "dali", "nvjpeg")}


@checked
@runs_on_gpu("feed")
class Feed(ForAdapters, ForTrainers):
    """Yields batches of augmented images, prepared ahead of the trainer.

    Each iteration yields one epoch, and the next iteration the next epoch, also if the last one was
    left early. After an error raised by the feed, the next iteration continues with the batch that
    failed. `state()` returns the position as a small JSON dictionary; `restore(state)` resumes from
    it at any world size.

    Args:
        source (Source): Where the samples come from, such as `ImageFolder("photos/train")`.
        ops (Sequence[Op | Callable]): Ops to run on each sample, in order. A bare function is
            wrapped in `Function`.
        batch (int | None): Samples per rank per step, at least 1. Default: None, from
            `global_batch`.
        global_batch (int | None): Samples per step over all ranks; give either this or `batch`.
            Default: None.
        seed (int): Seed of the shuffle and of all random ops, >= 0. Default: 0.
        world (World | None): Rank and world size. Default: None, what the launcher's environment
            says.
        shuffle (str | bool | Order): "full" or True, "none" or False (the source's order), or an
            order such as `Blocks()`. Default: "full".
        tail (str): An incomplete last batch: "drop" leaves it out, "pad" divides its samples evenly
            among the ranks and fills it with others of weight 0. Default: "drop".
        threads (int | None): Threads of this rank, at least 1. Default: None, the cores this
            process may use, shared with the node's other ranks.
        prefetch (int): Batches to prepare ahead of the one in use, >= 0. Default: 2.
        decode (str | GpuDecode): "auto" and "cpu" use the kernel for JPEGs and most PNGs, and
            Pillow for the rest; "native" and "pillow" require that decoder. "gpu" uses DALI on this
            rank's GPU; "hybrid" splits JPEGs between GPU and kernel at a ratio measured in the
            first batches and saved for this machine. Default: "auto".
        backend (str | None): "cpu", "dali" or "nvjpeg". Default: None, "dali" for decode="gpu" and
            "hybrid", that of the engine of a `GpuDecode`, otherwise "cpu".
        on_bad (str | FaultPolicy): A sample that cannot be read or decoded: "substitute", "mask" or
            "raise". Default: "substitute".
        on_error (str | None): An exception in your own function: "raise" ends the iteration with
            it, "bad" marks the sample as bad. Default: None, "raise" or what a FaultPolicy says.
        outage (float | Outage): Storage that answers no read at all; a number is seconds to wait.
            Default: Outage().
        memory (int | None): Bytes that decoding may hold at once in this process; an image that
            needs more is decoded alone. Batches and files that were read come on top; `print(feed)`
            adds up. Default: None, 2 GiB until a feed is given another number.
        quarantine (str | os.PathLike[str] | None): File that lists bad samples; read first if it
            exists. Default: None.
        side_process (bool): Make batches in a helper process, for trainers that keep Python busy.
            Default: False.
        name (str): Name of this feed in timelines. Default: "".

    Raises:
        ConfigError: If an argument is wrong. An op that cannot follow what comes before it is a
            SpecError.

    Example:
        >>> source = ff.Arrays(np.zeros((10, 8, 8, 3), np.uint8), np.arange(10))
        >>> feed = ff.Feed(source, [ff.RandomFlip(), ff.ToFloat()], batch=4, seed=1)
        >>> len(feed), [batch.images.shape for batch in feed]
        (2, [(4, 8, 8, 3), (4, 8, 8, 3)])
        >>> feed.seek(epoch=3, step=1)
        >>> feed.restore(feed.state())
        >>> [(batch.epoch, batch.step) for batch in feed.batches(epoch=5, start=1)]
        [(5, 1)]
        >>> feed.stats().batches, feed.explain() == str(feed), feed.close()
        (3, True, None)
    """

    def __init__(
        self,
        source: Source,
        ops: Sequence[Op | Callable[[np.ndarray, np.ndarray], np.ndarray]],
        *,
        batch: int | None = None,
        global_batch: int | None = None,
        seed: int = 0,
        world: World | None = None,
        shuffle: Shuffle | bool = "full",
        tail: Literal["drop", "pad"] = "drop",
        threads: int | None = None,
        prefetch: int = 2,
        decode: DecodeBy | GpuDecode = "auto",
        backend: Literal["cpu", "dali", "nvjpeg"] | None = None,
        on_bad: Literal["substitute", "mask", "raise"] | FaultPolicy = "substitute",
        on_error: Literal["raise", "bad"] | None = None,
        outage: float | Outage = Outage(),  # noqa: B008
        memory: int | None = None,
        quarantine: str | os.PathLike[str] | None = None,
        side_process: bool = False,
        name: str = "",
    ) -> None:
        check_source(source, "source")
        check_workers(explicit_world=world is not None)
        world = world if world is not None else World.detect()
        if not isinstance(world, World):
            raise ConfigError(
                f"world must be a World such as World(rank=0, size=2) or None, got {world!r}"
            )
        threads = cores_for(world) if threads is None else threads
        for argument, value, minimum in (("threads", threads, 1), ("prefetch", prefetch, 0)):
            if (
                isinstance(value, bool)
                or not isinstance(value, (int, np.integer))
                or value < minimum
            ):
                raise ConfigError(f"{argument} must be an integer >= {minimum}, got {value!r}")
        check_memory(memory)
        chosen, decode = choose(decode, backend, BACKENDS)
        if not isinstance(side_process, bool):
            raise ConfigError(f"side_process must be True or False, got {side_process!r}")
        self.source, self.threads, self.prefetch = source, threads, prefetch
        self.program = fuse(
            ops, source.spec, classes=len(source.classes), objects=says_where(source)
        )
        self.plan = Plan.make(
            len(source),
            batch=batch,
            global_batch=global_batch,
            seed=seed,
            world=world,
            shuffle=bind(shuffle, source),
            tail=tail,
            mixed=self.program.mix is not None,
        )
        # samples drawn in proportion to their weight must not be weighted again in the loss
        self._drawn_by_weight = isinstance(shuffle, Weighted) and shuffle.weights is None
        check_fit(self.program, self.plan, source)
        policy, outage = fault_policies(on_bad, on_error, outage)
        self._quarantine = Quarantine(
            quarantine, policy=policy, length=len(source), rank=world.rank, uri=source.uri
        )
        self._timeline = Timeline(timeline_path(world), rank=world.rank, name=name)
        weigh = not self._drawn_by_weight
        config = FeedConfig(
            source,
            self.program,
            self.plan,
            BACKENDS[chosen],
            decode,
            threads,
            prefetch + 2,
            outage,
            memory,
            weigh,
        )
        builder, raw = config.builders(self._quarantine, self._timeline)
        self._memory, self._encoded = memory, builder.encoded_bytes
        self._backend, self._backend_name, self.side_process = builder.backend, chosen, side_process
        self._producer: Producer = ThreadProducer(builder, raw, prefetch)
        if side_process:
            self._producer = HelperProducer(
                HelperJob.of(config, builder), prefetch, self._quarantine, self._timeline
            )
        self._meter = Meter()
        self.live = live_status(
            self._meter, self._timeline, self._quarantine, self._producer, config, name
        )
        tell = self._quarantine.tell
        self._cursor = Cursor(
            self._producer, self.plan, self._meter, self._timeline, self.live, tell
        )
        self.notes: list[str] = []  # lines that adapters add to `explain`

    def __len__(self) -> int:
        """Steps per epoch, the same on every rank."""
        return self.plan.steps

    def __iter__(self) -> Iterator[Batch]:
        """One epoch, from the position of `restore` or `seek` if that lies inside it."""
        return self.placed(None)

    @checked_early
    def batches(
        self,
        epoch: int = 0,
        start: int = 0,
        epochs: int | None = 1,
        place: PlaceFunction | None = None,
        raw: bool = False,
    ) -> BatchIterator[Any]:
        """Batches from any position; this feed's own position does not change.

        Args:
            epoch (int): First epoch, counts from 0. Default: 0.
            start (int): First step within it. Default: 0.
            epochs (int | None): How many epochs; None never ends. Default: 1.
            place (Callable | None): As in `placed`. Default: None.
            raw (bool): As in `placed`. Default: False.

        Returns:
            An iterator of batches.
        """
        opened = partial(self._cursor.open, epoch, start, epochs, place, raw)
        return self._proven(place, raw, opened) if self.is_proving else opened()  # type: ignore[return-value]

    @checked_early
    def seek(self, epoch: int, step: int = 0) -> None:
        """Start the next iteration at this position.

        Args:
            epoch (int): Counts from 0.
            step (int): Within the epoch, in [0, len(feed)). Default: 0.
        """
        self._cursor.seek(epoch, step)

    @checked_early
    def state(self, at: tuple[int, int] | None = None) -> dict[str, Any]:
        """The position after the last batch that was yielded, with what it depends on.

        Args:
            at (tuple[int, int] | None): (epoch, step) to save instead, for trainers that count
                steps themselves. Default: None.

        Returns:
            Values that fit into JSON.

        Raises:
            ProofError: If a proof is measuring this feed's trainer.
        """
        if self.proof is not None:
            raise ProofError(
                "feed.state() is refused during a proof: the weights are meaningless; run the"
                " trainer without `fastfeed prove` to save it, or switch its checkpoints off for"
                " the proof"
            )
        position = self.plan.state(
            *(self._cursor.position if at is None else at), self.source.fingerprint
        )
        return position | identity(self.program, self._quarantine.policy)

    @checked_early
    def restore(self, state: dict[str, Any], strict: bool | Literal["ops"] = True) -> None:
        """Resume from a saved state with the same global batches, at any world size.

        Other ops, or another policy for bad samples, than the state was saved with are a warning
        that says which.

        Args:
            state (dict[str, Any]): What `state` returned.
            strict (bool | str): "ops" refuses other ops and policies. False accepts changed files
                (a repaired image changes the fingerprint) if there are as many as before. Default:
                True.

        Raises:
            StateError: If the state does not fit this feed; the text names the field.
        """
        source, own = self.source, identity(self.program, self._quarantine.policy)

        def changed(before: str) -> str:
            return difference(before, source.fingerprint, len(source), source.uri)

        position = self.plan.position(
            state, source.fingerprint if strict else None, changed, known=own
        )
        if other := changes(state, own):
            if strict == "ops":
                raise StateError(
                    f"cannot restore: {other}; create the feed as it was, or call restore(state)"
                )
            warn(f"restored at the saved position, but {printable(other, 1000)}", stacklevel=3)
        self.seek(*position)

    def stats(self) -> FeedStats:
        """Throughput, wait time, time per stage and bad samples since the feed was created.

        Returns:
            The totals.
        """
        return self._meter.stats(self._timeline.totals(), self._quarantine.failures, self.threads)

    def explain(self) -> str:
        """What this feed will do, as `print(feed)` shows it. Reads no image.

        Returns:
            The plan, and the spec after every stage, as lines.
        """
        quarantine = self._quarantine
        bad = quarantine.policy.action + (
            f", listed in {quarantine.path}" if quarantine.path else ""
        )
        where = " of a helper process" if self.side_process else ""
        threads, ahead = "thread" + "s" * (self.threads != 1), "batch" + "es" * (self.prefetch != 1)
        how = f"{self.threads} {threads}{where}, {self.prefetch} {ahead} ahead, bad samples: {bad}"
        path, memory_name = self._backend.decode_path(), self._backend.memory_name
        text = feed_text(
            self.source, self.plan, self.program, how, path, self.prefetch + 2, memory_name
        )
        if self.program.decode is not None:
            text += f"\n  {decoding_text(self._memory or 2 * DECODING.bytes, self._encoded)}"
        return "\n".join([text, *(f"  {line}" for line in self.notes)])

    __str__ = explain

    def __repr__(self) -> str:
        return f"Feed({self.source!r}, batch={self.plan.batch}, steps={self.plan.steps})"

    def close(self) -> None:
        """Stop the threads. `with`, garbage collection and interpreter exit do this as well."""
        self._cursor.close()
        self._producer.close()
        self._timeline.close()
        self.live.close()

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
