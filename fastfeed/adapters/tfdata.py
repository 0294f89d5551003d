"""A feed as a `tf.data.Dataset`, and a transform as a function for `Dataset.map`."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn

import numpy as np

from fastfeed.adapters.batch_tuples import BatchTuples, filled, names_in, refusal
from fastfeed.adapters.versions import framework
from fastfeed.errors import ConfigError, FeedClosed, SampleError
from fastfeed.feed.fields import Field, Yields, known_fields
from fastfeed.feed.session import FeedSession
from fastfeed.feed.transform.fields import ItemFields
from fastfeed.gpu_support import runs_on_gpu
from fastfeed.ops.program.program import Program
from fastfeed.printable import printable
from fastfeed.runtime.batch import Batch, UnknownField
from fastfeed.runtime.buffers import aligned
from fastfeed.runtime.placement import is_of_objects, on_host, out_of_memory

tf: Any = framework("tensorflow", "tf.data")

_AHEAD = 2  # batches that TensorFlow holds on a device
_ALIGNMENT = 64  # bytes
_LONGEST_PATH = 4096  # bytes


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
            yield elements(batch, tuples)

    dataset = build_dataset(session, session, epoch, tuples)
    dataset = dataset if device is None else on_device(dataset, device, session)
    for name, done in _REPEATED.items():
        if done(session):
            setattr(dataset, name, _refusal(name))
    return dataset


# methods of a dataset that would do again, in whole batches, what this feed does
_REPEATED: dict[str, Callable[[FeedSession], bool]] = {
    "shuffle": lambda session: session.plan.shuffle != "none",
    "shard": lambda session: session.plan.world.size > 1,
}


def _refusal(name: str) -> Callable[..., NoReturn]:
    """A method that refuses to be called."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise ConfigError(
            f".{name}() of to_tfdata() would do to whole batches what the feed has done to samples:"
            f" leave .{name}(...) out, or pass"
            + (" shuffle=False" if name == "shuffle" else " world=ff.World()")
            + " to Feed",
            field=name,
        )

    return refuse


def elements(batch: Batch, tuples: BatchTuples) -> Any:
    """A batch as the element of a generator, which is NumPy's."""
    return tuples.nested([on_host(array) for array in tuples(batch)])


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
    any_length: bool = False,
) -> Any:
    """A dataset over `epoch(owner)`, with tuples structured by `tuples.nested`.

    With `any_length` its element spec leaves the length of batches open where all have the same.

    There is no `.prefetch()` at its end: the feed prefetches already, and a buffer between it and
    the trainer would hide wait times from the feed's statistics. The cardinality is not asserted,
    because an epoch resumed in the middle is shorter. Batches are page-aligned, so TensorFlow uses
    them without a copy.
    """
    batch = None if tuples.loose or any_length else session.plan.batch
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
    return tuples.nested([_spec(field, batch) for field in tuples.fields])


def _spec(field: Field, batch: int | None) -> Any:
    try:
        dtype = tf.as_dtype(np.dtype(field.dtype)) if field.is_array else tf.string
    except TypeError as error:
        raise refusal(field, f"TensorFlow has no tensors of {field.dtype}") from error
    return tf.TensorSpec((batch, *field.shape), dtype)


@tf.autograph.experimental.do_not_convert
def tf_transform(
    transform: Callable[..., Batch],
    program: Program,
    items: Any,
    fields: Any = None,
    ids: Any = None,
    epoch: Any = 0,
    yields: Yields | None = None,
) -> Any:
    """Implementation of `Transform.tf`: one call of Python per batch, in a graph as well."""
    batch = _items(tf.convert_to_tensor(items))
    values = fields if isinstance(fields, Mapping) else {} if fields is None else {"label": fields}
    given = {name: _dense(name, value) for name, value in values.items()}
    numbers = [_batch_epoch(epoch), *([] if ids is None else [tf.cast(ids, tf.int64)])]
    transform([], ids=None if ids is None else [])  # refuses random ops without ids
    if yields is None:
        yields = ("image", "label") if "label" in given else "image"
    names = list(dict.fromkeys(names_in(yields)))
    specs = _specs(program, given, names)

    def call(items: np.ndarray, *arrays: np.ndarray) -> list[np.ndarray]:
        own = dict(zip(given, arrays, strict=False))
        epoch, *ids = arrays[len(given) :]
        made = transform(list(items), fields=own, ids=ids[0] if ids else None, epoch=int(epoch))
        _check_bad(made, items, "weight" in names)
        return [made[name] for name in names]

    # stateless: the random numbers of a sample are a function of its id
    inputs = [batch, *given.values(), *numbers]
    dtypes = [spec.dtype for spec in specs]
    outputs = tf.nest.flatten(tf.numpy_function(call, inputs, dtypes, stateful=False))
    for output, spec in zip(outputs, specs, strict=True):
        output.set_shape((batch.shape[0], *spec.shape[1:]))
    return filled(yields, dict(zip(names, outputs, strict=True)), lists=False)


def _items(items: Any) -> Any:
    """A batch of files or of pixels."""
    if (items.dtype, items.shape.rank) in ((tf.string, 1), (tf.uint8, 4)):
        return items
    raise ConfigError(
        "items must be a batch of files, tf.string (n,), or of pixels, tf.uint8 (n, height, width,"
        f" channels), got {items.dtype.name} {items.shape}; put .batch(n) before .map(transform.tf)",
        field="items",
    )


def _batch_epoch(epoch: Any) -> Any:
    """The epoch of a whole batch, int64."""
    epoch = tf.cast(epoch, tf.int64)
    if epoch.shape.rank:
        raise ConfigError(
            f"epoch must be one number for a batch, got shape {epoch.shape}; batch the files of each"
            " epoch: range(epochs).flat_map(lambda epoch: files.batch(n).map(...))",
            field="epoch",
        )
    return epoch


def _dense(name: str, values: Any) -> Any:
    if name in ("boxes", "box_labels", "keypoints", "instance_masks", "polygons") or isinstance(
        values, (tf.RaggedTensor, tf.SparseTensor)
    ):
        raise ConfigError(
            f"fields[{name!r}] has another length for each item, and tf.data hands over arrays of"
            " one; leave it out, or use Feed.to_tfdata, which pads boxes",
            field="fields",
        )
    return tf.convert_to_tensor(values)


def _specs(program: Program, values: Mapping[str, Any], names: list[str]) -> list[Any]:
    """Specs of fields of a batch with these values. ConfigError for a field that is not known."""
    nothing = np.empty(0, np.uint8)
    known = known_fields(ItemFields(dict.fromkeys(values, nothing), 0, str), program)
    made = {name for op in program.maps for name in op.out_names} | {"masks"}
    if program.targets is not None:
        made.add("label")
    specs = []
    for name in names:
        field = known.get(name)
        if name in values and name not in made:
            specs.append(tf.TensorSpec(values[name].shape, _passed_dtype(name, values[name].dtype)))
        elif field is not None:
            specs.append(_spec(field, None))
        elif name in known:
            raise ConfigError(f"the shape of {name!r} is not known; pass Map(shape=, dtype=)")
        else:
            raise UnknownField(name, known, "this transform")
    return specs


def _passed_dtype(name: str, dtype: Any) -> Any:
    """Dtype in a batch of values that no op changes: labels are int64 or float32."""
    if name != "label":
        return dtype
    return tf.int64 if dtype.is_integer else tf.float32


def _check_bad(batch: Batch, items: np.ndarray, weighted: bool) -> None:
    """SampleError for bad items that no weight marks; ConfigError for paths in place of files."""
    for row, failure in batch.bad.items():
        if items.dtype == object and _is_path(items[row]):
            raise ConfigError(
                f"items must be the bytes of files, got the path {printable(items[row])}; put"
                " .map(tf.io.read_file) before .batch(n)",
                field="items",
            )
        if not weighted:
            raise SampleError(
                f"{failure}, and yields has no weights, so that its black image would count; name"
                ' "weight" in yields',
                rows=list(batch.bad),
            )


def _is_path(item: bytes) -> bool:
    """True for the path of a file that exists."""
    return len(item) <= _LONGEST_PATH and b"\0" not in item and os.path.isfile(item)


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

    memory = staticmethod(aligned)

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
