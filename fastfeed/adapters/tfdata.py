"""A feed as a `tf.data.Dataset`."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from fastfeed.adapters.batch_tuples import BatchTuples, refusal
from fastfeed.errors import ConfigError, FeedClosed, MissingExtra
from fastfeed.feed.fields import Field, Yields
from fastfeed.feed.session import FeedSession
from fastfeed.gpu_support import runs_on_gpu
from fastfeed.runtime.buffers import aligned
from fastfeed.runtime.placement import is_of_objects, on_host, out_of_memory

try:
    import tensorflow as tf
except ImportError as error:
    raise MissingExtra.of("to_tfdata", "TensorFlow", "tf") from error

_AHEAD = 2  # batches that TensorFlow holds on a device
_ALIGNMENT = 64  # bytes


def to_tfdata(session: FeedSession, device: str | None = None, yields: Yields | None = None) -> Any:
    """A `tf.data.Dataset` of (images, labels[, weights]), or what `yields` says, for one session.

    Texts are tf.string, and lists in `yields` become tuples, since tf.data takes lists for tensors.

    Weights are included if samples are masked or the source has weights. Padding is cut off, also
    on several ranks, so that the last batch is shorter.

    For a source with annotations, labels are a dict: "boxes", "labels", "masks".

    Each iteration of the dataset yields one epoch of the feed. After `.prefetch()`, on a `device`,
    and under a multi-device strategy, TensorFlow takes batches before the trainer does, so
    `feed.state()` is ahead of training.
    """
    tuples = BatchTuples.of(session, yields, lists=False)

    def epoch(session: FeedSession) -> Iterator[Any]:
        for batch in session.placed(None):
            # a generator's element is NumPy's
            yield tuples.nested([on_host(array) for array in tuples(batch)])

    dataset = build_dataset(session, session, epoch, tuples)
    return dataset if device is None else on_device(dataset, device, session)


def on_device(dataset: Any, device: str, owner: Any) -> Any:
    """Prefetch two batches of a dataset to a device. It must be the last transformation."""
    name = TfPlacement(device).device
    placed = dataset.apply(tf.data.experimental.prefetch_to_device(name, _AHEAD))
    setattr(placed, "_fastfeed", owner)  # noqa: B010
    return placed


def build_dataset(
    session: FeedSession,
    owner: Any,
    epoch: Callable[[Any], Iterable[Any]],
    tuples: BatchTuples,
) -> Any:
    """A dataset over `epoch(owner)`, with tuples structured by `tuples.nested`.

    There is no `.prefetch()` at its end: the feed prefetches already, and a buffer between it and
    the trainer would hide wait times from the feed's statistics. The cardinality is not asserted,
    because an epoch resumed in the middle is shorter. Batches are page-aligned, so TensorFlow uses
    them without a copy.
    """
    batch = None if tuples.loose else session.plan.batch
    # TensorFlow never releases a generator function or what it references
    owner_ref = weakref.ref(owner)

    def walk() -> Iterable[Any]:
        owner = owner_ref()
        if owner is None:
            raise FeedClosed(
                "the feed of this dataset was garbage collected; keep a reference to the feed, or"
                " to what to_tfdata() returned, as long as the dataset is iterated"
            )
        yield from epoch(owner)

    dataset = tf.data.Dataset.from_generator(walk, output_signature=signature(tuples, batch))
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    # sharded by the plan
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    dataset = dataset.with_options(options)
    setattr(dataset, "_fastfeed", owner)  # noqa: B010  datasets made from this one keep it as their input
    return dataset


def signature(tuples: BatchTuples, batch: int | None) -> Any:
    """Specs of the tensors of a batch. ConfigError if TensorFlow has none of a field's dtype."""
    return tuples.nested(
        [tf.TensorSpec((batch, *field.shape), _dtype(field)) for field in tuples.fields]
    )


def _dtype(field: Field) -> Any:
    try:
        return tf.as_dtype(np.dtype(field.dtype)) if field.is_array else tf.string
    except TypeError as error:
        raise refusal(field, f"TensorFlow has no tensors of {field.dtype}") from error


def placement(device: Any, live_batches: int) -> TfPlacement:
    """Placement on this device, for `prefetch_to_device`."""
    return TfPlacement(device, live_batches)


@runs_on_gpu("tensorflow")
class TfPlacement:
    """Eager tensors on a device, copied by the thread that finished the batch."""

    def __init__(self, device: str = "", live_batches: int = 4) -> None:
        here = [d.name for d in tf.config.list_logical_devices()]
        requested = device.upper().replace("/DEVICE:", "").lstrip("/") or "CPU:0"
        requested = requested if ":" in requested else f"{requested}:0"
        matches = [name for name in here if name.upper().endswith(f"DEVICE:{requested}")]
        if not matches:
            raise ConfigError.of("device", f"one of TensorFlow's here ({', '.join(here)})", device)
        self.device = matches[0]
        self._live_batches = live_batches
        self.name = f"TensorFlow {requested}"
        self.accelerator = not requested.startswith("CPU")

    def memory(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        return aligned(shape, dtype)

    def put(self, arrays: tuple[Any, ...], borrowed: bool = False) -> tuple[Any, ...]:
        try:
            return tuple(self._put(array, borrowed) for array in arrays)
        except tf.errors.ResourceExhaustedError as error:
            raise out_of_memory(self.name, arrays, self._live_batches, error) from error

    def _put(self, array: Any, borrowed: bool) -> Any:
        with tf.device("CPU:0" if is_of_objects(array) else self.device):  # devices have no texts
            return self._tensor(array, borrowed)

    def _tensor(self, array: Any, borrowed: bool) -> Any:
        if not self.accelerator:
            array = on_host(array)
        if not isinstance(array, np.ndarray):  # decoded on the GPU, into memory that is reused
            copied = tf.raw_ops.DeepCopy(x=tf.experimental.dlpack.from_dlpack(array.__dlpack__()))
            tf.test.experimental.sync_devices()
            return copied
        if borrowed or self.accelerator or not _usable(array):
            return tf.convert_to_tensor(array)
        return tf.experimental.dlpack.from_dlpack(array.__dlpack__())  # without a copy

    def take(self, placed: tuple[Any, ...]) -> tuple[Any, ...]:
        return placed


def _usable(array: np.ndarray) -> bool:
    """True if TensorFlow's kernels can read this memory without a copy."""
    flags = array.flags
    plain = flags.writeable and flags.c_contiguous and array.dtype.kind in "uif"
    return plain and array.ctypes.data % _ALIGNMENT == 0
