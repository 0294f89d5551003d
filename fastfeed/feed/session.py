"""An open feed: its threads, counters and position. `Feed` and the adapters work with it."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import json
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fastfeed.errors import ConfigError, ProofError, StateError
from fastfeed.faults import FaultPolicy
from fastfeed.feed.batch.annotations import annotator
from fastfeed.feed.config import FeedConfig
from fastfeed.feed.explain import feed_text, placed_text, short
from fastfeed.feed.faults.quarantine import Quarantine
from fastfeed.feed.fields import Field, image_names, known_fields, read_fields
from fastfeed.feed.helper_process.job import HelperJob
from fastfeed.feed.helper_process.producer import HelperProducer
from fastfeed.feed.iterator import Cursor
from fastfeed.feed.producer import PlaceFunction, Producer, ThreadProducer, open_builders
from fastfeed.gpu_support import gpu_note
from fastfeed.live.meter import FeedStats, Meter
from fastfeed.live.status import LiveStatus, SlowCounts
from fastfeed.ops.base import MEANING
from fastfeed.ops.function import Function
from fastfeed.ops.map import Map
from fastfeed.ops.program.program import Program
from fastfeed.printable import printable, warn
from fastfeed.runtime.batch import UnknownField
from fastfeed.runtime.buffers import Allocate, aligned
from fastfeed.runtime.thread_pool import LockedIterator
from fastfeed.runtime.timeline import Timeline
from fastfeed.sampling.orders.weighted import Weighted
from fastfeed.sampling.plan import Plan
from fastfeed.sampling.set_weights import with_saved_weights, with_weights
from fastfeed.sources.base import Optionals
from fastfeed.storage.fingerprint import difference
from fastfeed.storage.retry import retry_count
from fastfeed.version import __version__

if TYPE_CHECKING:
    from fastfeed.distributed.world import World
    from fastfeed.runtime.placement import Placement

PROVE = "FASTFEED_PROVE"  # folder of the job of `fastfeed prove`, which runs this trainer
JOB = "job.json"  # in that folder
_MAX_TEXT = 200  # characters of a name or a uri on the live page


class FeedSession:
    """The open parts of one feed, for adapters and tools.

    `FeedSession.of(feed)` is the session of a feed, whose threads end with the last reference to
    either. It opens the files and starts the threads; `close` ends them.

    Args:
        config (FeedConfig): The checked arguments.

    Attributes:
        config (FeedConfig): The checked arguments, with `source`, `plan`, `program`, `threads` and
            `prefetch` also here.
        producer (Producer): `producer.start(...)` makes batches that are not counted.
        cursor (Cursor): The position: `cursor.open(...)` makes batches from any other, counted.
        quarantine (Quarantine): Bad samples so far.
        timeline (Timeline): Spans of every stage.
        meter (Meter): The counters behind `Feed.stats`.
        live (LiveStatus): The live page that `fastfeed watch` reads.
        notes (list[str]): Lines that adapters add to `print(feed)`.
        allocate (Allocate): Allocates memory that is fast to copy to the device.
        proof (Any): The measurement of this feed's trainer by `ff.prove`; None: no measurement.

    Example:
        >>> feed = ff.Feed(ff.Arrays(np.zeros((4, 8, 8, 3), np.uint8)), [], batch=2)
        >>> from fastfeed.feed.session import FeedSession
        >>> session = FeedSession.of(feed)
        >>> list(session.placed(lambda batch: batch.images.nbytes)), session.prefetch
        ([384, 384], 2)
    """

    def __init__(self, config: FeedConfig) -> None:
        self.config = config
        self._made_as = config.plan
        self._weights = ""  # that were set since, as text
        self.source = config.source
        self.plan = config.plan
        self.program = config.program
        self.threads = config.threads
        self.prefetch = config.prefetch
        self._known_fields = known_fields(config.source, config.program)
        self.proof: Any = None
        self.notes: list[str] = []
        self.allocate: Allocate = aligned
        world = config.plan.world
        self.quarantine = config.open_quarantine()
        self.timeline = Timeline(_timeline_path(world), rank=world.rank, name=config.name)
        builder, raw = open_builders(config, self.quarantine, self.timeline)
        self.backend = builder.backend
        self._encoded = builder.encoded_bytes
        self.producer: Producer = ThreadProducer(builder, raw, config.prefetch)
        if config.side_process:
            job = HelperJob.of(config, builder)
            self.producer = HelperProducer(job, config.prefetch, self.quarantine, self.timeline)
        self.meter = Meter()
        self.live = _live_status(config, self.meter, self.timeline, self.quarantine, self.producer)
        self.cursor = Cursor(
            self.producer, self.plan, self.meter, self.timeline, self.live, self.quarantine.tell
        )

    @staticmethod
    def of(feed: Any) -> FeedSession:
        """Get the session of a feed.

        Args:
            feed (Any): A Feed, what one of its `to_...` methods returned, or a session.

        Returns:
            The session.

        Raises:
            ConfigError: If this is none of these.
        """
        session = FeedSession.find(feed)
        if session is None:
            raise ConfigError(
                f"a Feed is needed, or what feed.to_...() returned, got {type(feed).__name__}",
                field="feed",
            )
        return session

    @staticmethod
    def find(data: Any) -> FeedSession | None:
        """Find the session as `of` does, but return None for other data."""
        data = getattr(data, "_fastfeed", data)
        for held in (data, *(getattr(data, name, None) for name in ("_session", "session"))):
            if isinstance(held, FeedSession):
                return held
        return None

    def __len__(self) -> int:
        return self.plan.steps

    def __repr__(self) -> str:
        return f"Feed({self.source!r}, batch={self.plan.batch}, steps={self.plan.steps})"

    def placed(self, place: PlaceFunction | None, raw: bool = False) -> LockedIterator[Any]:
        """Iterate one epoch, with a function applied to each batch ahead of its turn.

        Args:
            place (Callable[[Batch], Any] | None): Called by the thread that finished the batch. Its
                result is yielded at the batch's turn, an exception from it raised then; None yields
                the batches.
            raw (bool): Images are uint8 HWC, and the caller still has to apply `program.convert`.
                Default: False.

        Returns:
            An iterator that threads may share.
        """
        return self._measured(place, raw, lambda: self.cursor.iterate(place, raw))

    def batches(
        self, epoch: int, start: int, epochs: int | None, place: PlaceFunction | None, raw: bool
    ) -> Any:
        """Batches from any position, as `Feed.batches` returns them."""
        if raw and self.program.maps_images:
            raise ConfigError(
                "raw=True yields images that are not finished, but a Map takes them; leave raw out"
            )
        return self._measured(
            place, raw, lambda: self.cursor.open(epoch, start, place, raw, epochs)
        )

    def _measured(self, place: PlaceFunction | None, raw: bool, begin: Callable[[], Any]) -> Any:
        """The iteration that `begin` starts, or during a proof the measured one."""
        folder = os.environ.get(PROVE)
        if folder:
            measuring = importlib.import_module(read_job(folder)["measured_by"])
            return measuring.iterate(self, place, raw, begin)
        if self.proof is not None:
            return LockedIterator(self.proof.iterate(place, raw), self.proof.close)
        return begin()

    @property
    def is_proving(self) -> bool:
        """True while training is only measured: its weights must not be saved."""
        return self.proof is not None or bool(os.environ.get(PROVE))

    def advance(self, epoch: int, step: int) -> None:
        """Begin the next iteration here, unless the feed is ahead or seek() or restore() moved it.

        Args:
            epoch (int): Counts from 0.
            step (int): Within the epoch.
        """
        if not self.cursor.moves and self.cursor.position < (epoch, step):
            self.cursor.advance(epoch, step)

    @property
    def partial(self) -> bool:
        """True if the last batch ends in padding that no other rank needs; adapters cut it off."""
        return self.plan.world.size == 1 and self.plan.left > 0

    @property
    def weighted(self) -> bool:
        """True if weights of samples may differ from 1: masked samples, weights of the source."""
        replaced = any("weight" in op.out_names for op in self.program.maps)
        if self.config.policy.action == "mask" or replaced:
            return True
        none = np.empty(0, np.int64)
        return self.config.weigh and Optionals(self.source).weights(none) is not None

    @property
    def converts(self) -> bool:
        """True if images are converted after decoding and a device may do that instead."""
        one_array = not self.program.others  # devices convert one array
        on_cpu = self.config.backend == "cpu"
        on_host = self.program.maps_images  # they see what the trainer sees
        return one_array and on_cpu and not on_host and self.program.raw() != self.program

    @functools.cached_property
    def fields(self) -> dict[str, Field]:
        """Fields of a batch by name; reads some columns if nothing else tells their type."""
        return read_fields(self.source, self.program, self._known_fields)

    def field(self, name: str) -> Field:
        """A field by name, as in `fields`; nothing is read if its type is known without."""
        if name not in self._known_fields:
            raise UnknownField(name, self._known_fields, "this feed")
        return self._known_fields[name] or self.fields[name]

    def place_on(
        self, placement: Placement, raw: bool = False, names: Sequence[str] | None = None
    ) -> None:
        """Make batches in memory that is fast to copy to a device, and report it in `print(feed)`.

        Args:
            placement (Placement): The device, as an adapter describes it.
            raw (bool): As in `placed`. Default: False.
            names (Sequence[str] | None): Fields that are placed there. Default: None, images,
                labels, weights, boxes and masks.
        """
        self.producer.use_memory(placement.memory)
        self.allocate = placement.memory
        self.notes = [line for line in self.notes if not line.startswith("placed on ")]
        name = placement.name
        if placement.accelerator:  # it begins with its framework
            name = gpu_note(name, name.split()[0].lower())
        if names is None:
            annotations = annotator(self.source, self.program).specs
            names = [*image_names(self.program), "label", "weight", *annotations]
        fields = [self._known_fields[name] for name in names]
        self.notes.append(placed_text(name, self.config, raw, fields))

    def state(self, at: tuple[int, int] | None = None) -> dict[str, Any]:
        """The position, as `Feed.state` returns it."""
        if self.proof is not None:
            raise ProofError(
                "feed.state() is refused during a proof: the weights are meaningless; run the"
                " trainer without `fastfeed prove` to save it, or switch its checkpoints off for"
                " the proof"
            )
        epoch, step = self.cursor.position if at is None else at
        position = self.plan.state(epoch, step, self.source.fingerprint)
        weights = {_WEIGHTS: self._weights} if self._weights else {}
        return position | identity(self.program, self.config.policy) | weights

    def restore(
        self, state: dict[str, Any], strict: bool | Literal["ops"] = True, stacklevel: int = 3
    ) -> None:
        """Resume from a saved state, as `Feed.restore` does."""
        source, own = self.source, identity(self.program, self.config.policy)

        def changed(before: str) -> str:
            return difference(before, source.fingerprint, len(source), source.uri)

        plan = self._made_as
        weights = ""
        if isinstance(state, Mapping) and _WEIGHTS in state and isinstance(plan.shuffle, Weighted):
            weights = state[_WEIGHTS]
            plan = with_saved_weights(plan, weights)
        position = plan.position(
            state, source.fingerprint if strict else None, changed, known=(*own, _WEIGHTS)
        )
        if other := changes(state, own):
            if strict == "ops":
                raise StateError(
                    f"cannot restore: {other}; create the feed as it was, or call restore(state)"
                )
            text = f"restored at the saved position, but {printable(other, 1000)}"
            warn(text, stacklevel=stacklevel)
        if weights != self._weights:
            self._use_plan(plan, weights)
        self.cursor.seek(*position)

    def set_weights(self, weights: Any) -> None:
        """Draw all following epochs by other weights, as `Feed.set_weights` does."""
        plan, text = with_weights(self._made_as, weights)
        epoch, step = self.cursor.position
        if step:
            raise ConfigError(
                f"set_weights is for the beginning of an epoch, and this feed is at epoch {epoch},"
                f" step {step}; call it after the loop over the epoch, or feed.seek({epoch + 1})"
                " first"
            )
        self._use_plan(plan, text)

    def _use_plan(self, plan: Plan, weights: str) -> None:
        self.producer.use_plan(plan)
        self.cursor.use_plan(plan)
        self.plan = plan
        self.config = dataclasses.replace(self.config, plan=plan)
        self._weights = weights

    def stats(self) -> FeedStats:
        """The totals, as `Feed.stats` returns them."""
        return self.meter.stats(self.timeline.totals(), self.quarantine.failures, self.threads)

    def explain(self) -> str:
        """The text that `print(feed)` shows."""
        text = feed_text(self.config, self.backend, self._encoded, self._known_fields)
        return "\n".join([text, *(f"  {line}" for line in self.notes)])

    def close(self) -> None:
        """Stop the threads of the feed."""
        self.cursor.close()
        self.producer.close()
        self.timeline.close()
        self.live.close()


def read_job(folder: str | Path) -> dict[str, Any]:
    """Read the job of `fastfeed prove`: what to measure, and the module that measures it."""
    try:
        job = json.loads(Path(folder, JOB).read_text("utf-8"))
        return {"measured_by": job["measured_by"]} | job
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ProofError(
            f"{PROVE}={folder} is not the job of a running `fastfeed prove`; unset {PROVE}: {error}"
        ) from error


def _timeline_path(world: World) -> str | None:
    """The path in FASTFEED_TIMELINE, with `.rank1` before its suffix if there are several."""
    path = os.environ.get("FASTFEED_TIMELINE")
    if not path or world.size * world.replicas == 1:
        return path or None
    stem, suffix = os.path.splitext(path)
    process = f".process{world.local_rank}" if world.replicas > 1 else ""
    return f"{stem}.rank{world.rank}{process}{suffix}"


def _live_status(
    config: FeedConfig,
    meter: Meter,
    timeline: Timeline,
    quarantine: Quarantine,
    producer: Producer,
) -> LiveStatus:
    """Create the live status of a feed, which holds no reference to the feed or its session."""
    plan = config.plan
    shown = {
        "version": __version__,
        "name": config.name[:_MAX_TEXT],
        "source": type(config.source).__name__[:_MAX_TEXT],
        "samples": plan.length,
        "batch": plan.batch,
        "steps": plan.steps,
        "threads": config.threads,
        "prefetch": config.prefetch,
        "rank": plan.world.rank,
        "world": plan.world.size,
        "local_rank": plan.world.local_rank,
    }
    progress, begun = timeline.progress, retry_count()

    def slow() -> SlowCounts:
        stages = {stage: spent for stage, spent in timeline.totals().items() if stage != "wait"}
        retries = progress.retries + retry_count() - begun
        bad = len(quarantine.failures)
        return SlowCounts(
            stages, bad, producer.helper_pid, progress.read_bytes, retries, progress.current()
        )

    status = LiveStatus(meter, shown, slow)
    waits = weakref.WeakMethod(status.waits)

    def on_wait(now_ns: int) -> None:
        call = waits()
        if call is not None:
            call(now_ns)

    progress.on_wait = on_wait
    return status


_WEIGHTS = "weights"  # of a state, if they were set
_KEYS = {
    "ops": "the ops",
    "meaning": "what ops mean in this version of fastfeed",
    "on_bad": "the policy for bad samples",
}


def identity(program: Program, policy: FaultPolicy) -> dict[str, Any]:
    """Strings and integers that differ where batches would, for a saved state."""
    ops = [
        f"{step.image}: {_text(step.op)}" if step.image else _text(step.op)
        for step in program.steps
        if not step.implied
    ]
    replaced = (
        f"{policy.action}, {policy.attempts} attempts"
        if policy.action == "substitute"
        else policy.action
    )
    return {"ops": ops, "meaning": MEANING, "on_bad": replaced}


def changes(saved: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Differences of a saved state from this feed, in words; empty if none are known."""
    found = []
    for key, what in _KEYS.items():
        before = saved.get(key, now[key])
        if before == now[key]:
            continue
        if key == "ops" and isinstance(before, list):
            gone, new = (
                [op for op in a if op not in b] for a, b in ((before, now[key]), (now[key], before))
            )
            # only the order changed
            gone, new = (
                gone or ([] if new else before),
                new or ([] if gone else now[key]),
            )
            found.append(
                f"{what} were {', '.join(map(str, gone)) or 'fewer'}, now"
                f" {', '.join(new) or 'fewer'}"
            )
        else:
            found.append(f"{what} was {before!r}, now {now[key]!r}")
    return "; ".join(found)


def _text(op: Any) -> str:
    """The text that `print(feed)` shows, with a hash of any parts that it leaves out."""
    text = short(op)
    return f"{text}#{_hash(op)}" if "..." in text else text


def _hash(value: Any) -> str:
    digest = hashlib.blake2b(digest_size=4)
    _feed(digest, value)
    return digest.hexdigest()


def _feed(digest: Any, value: Any) -> None:
    if dataclasses.is_dataclass(value) and not isinstance(value, (type, Function, Map)):
        digest.update(type(value).__name__.encode())
        for field in dataclasses.fields(value):
            _feed(digest, getattr(value, field.name))
    elif isinstance(value, (tuple, list)):
        digest.update(b"(%d" % len(value))
        for item in value:
            _feed(digest, item)
    elif isinstance(value, np.ndarray):
        digest.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
    else:
        digest.update(repr(value).encode("utf-8", "backslashreplace"))
