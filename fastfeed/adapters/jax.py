"""A feed for JAX: arrays on a device, or global arrays over all processes' devices."""

from __future__ import annotations

import importlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from fastfeed.adapters.batch_tuples import BatchTuples, refusal
from fastfeed.adapters.device_convert import Where, on_device
from fastfeed.distributed.rank_agreement import check_ranks
from fastfeed.errors import ConfigError, MissingExtra
from fastfeed.feed.fields import Field, Yields
from fastfeed.feed.session import FeedSession
from fastfeed.gpu_support import runs_on_gpu
from fastfeed.ops.convert import Convert
from fastfeed.runtime.buffers import aligned
from fastfeed.runtime.guards import guarded
from fastfeed.runtime.placement import is_of_objects, on_host, out_of_memory
from fastfeed.runtime.thread_pool import LockedIterator

try:
    # by name: type checkers would resolve `import jax` to this file
    jax: Any = importlib.import_module("jax")
    jnp: Any = importlib.import_module("jax.numpy")
except ImportError as error:
    raise MissingExtra.of("to_jax", "JAX", "jax") from error


def to_jax(
    session: FeedSession,
    sharding: Any = None,
    convert: Where = "auto",
    yields: Yields | None = None,
) -> JaxFeed:
    """Implementation of `Feed.to_jax`."""
    check(session)
    placement = JaxPlacement(sharding, session.prefetch + 2)
    placement.check(session.plan.batch, session.plan.global_batch)
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


def placement(device: Any, live_batches: int) -> JaxPlacement:
    """Placement on this device, for `prefetch_to_device`."""
    return JaxPlacement(device, live_batches)


@guarded
class JaxFeed:
    """Iterable of (images, labels[, weights]), or what `yields` says, one epoch per iteration.

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

    def __iter__(self) -> Iterator[Any]:
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

    def __repr__(self) -> str:
        return f"{self._session!r}.to_jax({self._placement.where})"

    def __str__(self) -> str:
        return self._session.explain()


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
        self.accelerator = devices[0].platform != "cpu"
        self.name = f"JAX {devices[0].platform}:{devices[0].id}" + (
            f" and {len(devices) - 1} more" if devices[1:] else ""
        )

    def check(self, batch: int, global_batch: int) -> None:
        """Raise if the batch size does not fit the sharding."""
        if isinstance(self.where, jax.Device):
            return
        try:
            self._sharding(1).shard_shape((global_batch if self._global else batch,))
        except ValueError as error:
            count, got = len(self.where.device_set), global_batch if self._global else batch
            raise ConfigError(
                f"the batch must divide among the devices of its sharding, got {got} samples for"
                f" {count} devices; change batch to a multiple of {count}",
                field="batch",
            ) from error
        if self._global and global_batch % jax.process_count():
            raise ConfigError(
                f"the global batch must divide by the number of processes, {jax.process_count()},"
                f" got {global_batch}",
                field="batch",
            )

    def _sharding(self, ndim: int, most: int = 1) -> Any:
        """The sharding for arrays with fewer axes than the images: only the first is common."""
        where, kept = self.where, min(ndim, 1) if ndim < most else ndim
        if isinstance(where, jax.sharding.NamedSharding) and len(where.spec) > kept:
            return jax.sharding.NamedSharding(
                where.mesh, jax.sharding.PartitionSpec(*where.spec[:kept])
            )
        return where

    def memory(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        return aligned(shape, dtype)

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
            put = [jax.make_array_from_process_local_data(where[row], placed[row]) for row in rows]
        else:
            put = jax.device_put([placed[row] for row in rows], [where[row] for row in rows])
        for row, array in zip(rows, put, strict=True):
            placed[row] = array
        return tuple(placed)

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
