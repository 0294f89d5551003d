"""A feed for JAX: arrays on a device, or global arrays over all processes' devices."""

from __future__ import annotations

import importlib
import json
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from fastfeed.adapters.batch_tuples import BatchTuples, Where, on_device, refusal
from fastfeed.adapters.versions import framework
from fastfeed.distributed.mesh import DataPart, data_part
from fastfeed.distributed.rank_agreement import check_ranks
from fastfeed.errors import ConfigError, StateError
from fastfeed.feed.fields import Field, Yields
from fastfeed.feed.session import FeedSession
from fastfeed.gpu_support import runs_on_gpu
from fastfeed.ops.convert import Convert
from fastfeed.printable import printable
from fastfeed.runtime.buffers import aligned
from fastfeed.runtime.guards import guarded
from fastfeed.runtime.placement import is_of_objects, on_host, out_of_memory
from fastfeed.runtime.thread_pool import LockedIterator
from fastfeed.sampling.plan import Plan

jax: Any = framework("jax", "to_jax")
jnp: Any = importlib.import_module("jax.numpy")


def to_jax(
    session: FeedSession,
    sharding: Any = None,
    convert: Where = "auto",
    yields: Yields | None = None,
) -> JaxFeed:
    """Build the loader that `Feed.to_jax` returns."""
    check(session)
    placement = JaxPlacement(sharding, session.prefetch + 2)
    placement.check(session.plan)
    tuples = BatchTuples.of(session, yields, padded=True, weighted=True)
    return JaxFeed(session, placement, on_device(session, placement, convert), tuples)


def check(session: FeedSession) -> None:
    """Raise if JAX runs several processes but the feed was set up for one."""
    check_ranks(session.plan.world, "JAX", jax.process_index(), jax.process_count())


def check_fields(fields: Iterable[Field]) -> None:
    """Raise if JAX has no arrays of a field's dtype."""
    for field in fields:
        if field.is_array:
            try:
                jnp.asarray(np.empty(0, field.dtype))
            except TypeError as error:
                raise refusal(field, f"JAX has no arrays of {field.dtype}") from error


@guarded
class JaxFeed:
    """Iterable of (images, labels[, weights]), or what `yields` says, one epoch per iteration.

    It and its iterators have `get_state` and `set_state`, as those of Grain.

    Texts are NumPy arrays of objects, those of this process. Weights are included if they may differ from 1; with `tail="pad"` always, for any number of
    processes.

    For a source with annotations, labels are a dict of arrays: "boxes", "labels", "masks". All
    batches have the same shape, so nothing is compiled twice: padding stays in, with weight 0.
    """

    def __init__(
        self, session: FeedSession, placement: JaxPlacement, raw: bool, tuples: BatchTuples
    ) -> None:
        check_fields(tuples.fields)
        self._session = session
        self._placement = placement
        self._convert = device_convert(session.program.convert) if raw else None
        self._tuples = tuples
        self._place = lambda batch: placement.put(tuples(batch))
        session.place_on(placement, raw, tuples.names)

    def __iter__(self) -> JaxIterator:
        return JaxIterator(self)

    def begin(self) -> LockedIterator[Any]:
        """Begin an epoch, or the rest of one after `set_state`."""
        batches = self._session.placed(self._place, raw=self._convert is not None)
        return LockedIterator(self._taken(batches), batches.close)

    def _taken(self, batches: Iterator[Any]) -> Generator[Any, None, None]:
        for placed in batches:
            arrays = self._placement.take(placed)
            if self._convert is not None:
                # here, not where it was copied: all processes must start the same computations in
                # the same order
                with self._placement.room_for(arrays):
                    arrays = self._tuples.on_images(self._convert, arrays)
            yield self._tuples.nested(arrays)

    def __len__(self) -> int:
        """Steps per epoch, the same on every process."""
        return len(self._session)

    def get_state(self) -> bytes:
        """The position after the last batch that was yielded, valid at any number of processes.

        Returns:
            JSON, which `grain.checkpoint.CheckpointSave(loader)` saves as a Grain iterator's.
        """
        return json.dumps(self._session.state()).encode()

    def set_state(self, state: bytes) -> None:
        """Resume from a saved position in the next iteration.

        Args:
            state: What `get_state` returned.

        Raises:
            StateError: If this is no position of a feed, or of one with another order.
        """
        try:
            position = json.loads(state)
        except (ValueError, TypeError) as error:
            raise StateError(
                "a saved state must be the bytes that get_state() returned, got"
                f" {printable(repr(state), 80)}; pass what feed.state() returned to feed.restore()"
            ) from error
        self._session.restore(position)

    def start_prefetch(self) -> None:
        """Do nothing: an iteration prepares batches from its beginning on."""

    def __repr__(self) -> str:
        return f"{self._session!r}.to_jax({self._placement.where})"

    def __str__(self) -> str:
        return self._session.explain()


class JaxIterator:
    """One epoch of batches, with the state of a Grain iterator.

    Threads may share it: each batch is given to one of them.
    """

    def __init__(self, loader: JaxFeed) -> None:
        self._loader = loader
        self._batches = loader.begin()
        self.get_state = loader.get_state
        self.start_prefetch = loader.start_prefetch

    def __iter__(self) -> JaxIterator:
        return self

    def __next__(self) -> Any:
        return next(self._batches)

    def set_state(self, state: bytes) -> None:
        """Continue at a saved position, as returned by `get_state`."""
        self._loader.set_state(state)
        self._batches.close()
        self._batches = self._loader.begin()

    def close(self) -> None:
        """End the iteration, also from another thread."""
        self._batches.close()


@runs_on_gpu("jax")
class JaxPlacement:
    """Calls `device_put` ahead of a batch's turn; JAX itself orders computations after copies.

    On the CPU, JAX uses page-aligned memory without a copy and holds it for as long as the array
    lives.
    """

    def __init__(self, where: Any = None, live_batches: int = 4) -> None:
        if where is None or isinstance(where, str):
            where = _device(where)
        if not isinstance(where, (jax.Device, jax.sharding.Sharding)):
            raise ConfigError.of(
                "sharding",
                "a jax.sharding.Sharding, a jax.Device or None",
                where,
                'for data parallel: NamedSharding(Mesh(jax.devices(), ("batch",)),'
                ' PartitionSpec("batch"))',
            )
        self.where = where
        self._live_batches = live_batches
        devices = (
            [where]
            if isinstance(where, jax.Device)
            else sorted(where.device_set, key=lambda d: d.id)
        )
        self._global = isinstance(where, jax.sharding.Sharding) and not where.is_fully_addressable
        self._part = self._own_part() if self._global else None
        self.accelerator = devices[0].platform != "cpu"
        self.name = f"JAX {devices[0].platform}:{devices[0].id}" + (
            f" and {len(devices) - 1} more" if devices[1:] else ""
        )

    def check(self, plan: Plan) -> None:
        """Raise if the batches of this rank do not fit the sharding."""
        if isinstance(self.where, jax.Device):
            return
        for number in plan.counts or (plan.global_batch,):
            batch = number if self._global else plan.rows_of(number)
            try:
                self._sharding(1).shard_shape((batch,))
            except ValueError as error:
                count = len(self.where.device_set)
                what = "multiple of Buckets" if plan.counts else "batch"
                raise ConfigError(
                    "the batch must divide among the devices of its sharding, got"
                    f" {batch} samples for {count} devices; change {what} to a multiple of {count}",
                    field="batch",
                ) from error
        if self._global:
            self._check_world(plan)

    def _check_world(self, plan: Plan) -> None:
        """Raise if processes would fill the same rows with other samples, or leave rows out."""
        world = plan.world
        part = self._part
        if part is None:
            raise ConfigError(
                "a sharding must give each process the same rows as another one, or none in common,"
                f" got {printable(str(self.where), 200)}; make the axis of the batch a multiple or"
                f" a divisor of the {jax.process_count()} processes",
                field="sharding",
            )
        if part.size != world.size or (part.replicas > 1 and part.rank != world.rank):
            named = isinstance(self.where, jax.sharding.NamedSharding)
            axes = (*self.where.spec, None)[0] if named else "axes of the batch"
            raise ConfigError(
                f"the sharding gives this process part {part.rank} of {part.size} of each batch,"
                f" but the feed reads as rank {world.rank} of {world.size}: rows of one array would"
                " differ between processes; pass"
                f" Feed(world=ff.World.of_mesh(mesh, {() if axes is None else axes!r}))",
                field="world",
            )

    def _own_part(self) -> DataPart | None:
        """The rows that this process's devices hold of an array over all processes."""
        rows = (len(self.where.device_set),)
        places = self._sharding(1).devices_indices_map(rows).items()
        held = [(device.process_index, index[0].start or 0) for device, index in places]
        return data_part(jax.process_index(), held)

    def _sharding(self, ndim: int, most: int = 1) -> Any:
        """The sharding for arrays with fewer axes than the images: only the first is common."""
        where = self.where
        kept = min(ndim, 1) if ndim < most else ndim
        if isinstance(where, jax.sharding.NamedSharding) and len(where.spec) > kept:
            return jax.sharding.NamedSharding(
                where.mesh, jax.sharding.PartitionSpec(*where.spec[:kept])
            )
        return where

    memory = staticmethod(aligned)

    def put(self, arrays: tuple[Any, ...], borrowed: bool = False) -> tuple[Any, ...]:
        if borrowed and not self.accelerator:
            # JAX would keep their memory
            arrays = tuple(np.array(on_host(array)) for array in arrays)
        if not borrowed:
            for array in arrays:
                _check_width(array)
        with self.room_for(arrays):
            axes = [_axes(array) for array in arrays]
            placed = self._put(arrays, [self._sharding(n, max(axes)) for n in axes])
            return jax.block_until_ready(placed) if borrowed else placed

    @contextmanager
    def room_for(self, arrays: tuple[Any, ...]) -> Iterator[None]:
        """Turn errors of JAX for a full device into DeviceMemory, with what to lower."""
        try:
            yield
        except RuntimeError as error:
            if "RESOURCE_EXHAUSTED" in str(error):
                raise out_of_memory(self.name, arrays, self._live_batches, error) from error
            raise

    def _put(self, arrays: tuple[Any, ...], where: list[Any]) -> tuple[Any, ...]:
        """Arrays at their places, all by one call, which takes little longer than for one array."""
        placed = [self._readable(array) for array in arrays]
        rows = [row for row, array in enumerate(placed) if not is_of_objects(array)]
        if self._global:
            put = [self._joined(where[row], placed[row]) for row in rows]
        else:
            put = jax.device_put([placed[row] for row in rows], [where[row] for row in rows])
        for row, array in zip(rows, put, strict=True):
            placed[row] = array
        return tuple(placed)

    def _joined(self, where: Any, array: Any) -> Any:
        """This process's rows as its share of an array over all processes.

        Other axes are whole in each process, also where the sharding splits them among processes.
        """
        shape = None
        if self._part is not None and array.ndim:
            shape = (self._part.size * len(array), *array.shape[1:])
        return jax.make_array_from_process_local_data(where, array, shape)

    def _readable(self, array: Any) -> Any:
        """The array in memory that JAX can copy from to any device."""
        if is_of_objects(array):
            return array
        if not self.accelerator:
            array = on_host(array)
        if hasattr(
            array, "__cuda_array_interface__"
        ):  # decoded on the GPU, into memory that is reused
            array = jnp.array(jax.dlpack.from_dlpack(array), copy=True).block_until_ready()
        # it may be put on another device than the one that decoded, or on those of several processes
        return array

    def take(self, placed: tuple[Any, ...]) -> tuple[Any, ...]:
        return placed


def _check_width(array: Any) -> None:
    """Refuse integers that JAX would cut to 32 bits."""
    wide = isinstance(array, np.ndarray) and array.dtype in (np.int64, np.uint64) and array.size
    if wide and not jax.config.jax_enable_x64:
        bits = np.iinfo(np.int32 if array.dtype == np.int64 else np.uint32)
        if array.max() > bits.max or array.min() < bits.min:
            raise ConfigError(
                f"integers must fit in {bits.dtype} for JAX, got {array.max()} among"
                f" {array.dtype}; set JAX_ENABLE_X64=1, or leave that field out of yields"
            )


def _axes(array: Any) -> int:
    return (
        array.ndim
        if isinstance(array, np.ndarray)
        else len(array.__cuda_array_interface__["shape"])
    )


@runs_on_gpu("jax")
def device_convert(how: Convert) -> Any:
    """Conversion on the device; as on the CPU except for rounding."""

    @jax.jit
    def convert(images: Any) -> Any:
        images = how.on_device(jnp, images)
        return jnp.moveaxis(images, -1, -3) if how.layout == "CHW" else images

    return convert


def _device(where: str | None) -> Any:
    """ "", "gpu" or "cpu:1"; this process's first device by default."""
    platform, _, number = (where or "").partition(":")
    try:
        return (jax.local_devices(backend=platform or None))[int(number or 0)]
    except (RuntimeError, IndexError, ValueError) as error:
        there = ", ".join(f"{d.platform}:{d.id}" for d in jax.local_devices())
        raise ConfigError.of("device", f"one of those JAX sees ({there})", where) from error
