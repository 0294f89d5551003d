"""A feed for PyTorch: tensors on one device, prefetched."""

from __future__ import annotations

import importlib
import math
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from fastfeed.adapters.batch_tuples import BatchTuples, Where, on_device, refusal
from fastfeed.adapters.torch_loader import (
    EpochPosition,
    RankSampler,
    StepDataset,
    StepSampler,
    gradient_state,
    keep_batch,
    refuse_second_sampler,
)
from fastfeed.adapters.versions import framework
from fastfeed.distributed.rank_agreement import check_process_groups
from fastfeed.errors import ConfigError, DeviceMemory
from fastfeed.feed.fields import Field, Yields
from fastfeed.feed.session import FeedSession
from fastfeed.gpu_support import runs_on_gpu
from fastfeed.ops.convert import Convert
from fastfeed.runtime.batch import Batch
from fastfeed.runtime.buffers import Allocate, aligned
from fastfeed.runtime.guards import guarded
from fastfeed.runtime.placement import (
    flatten,
    is_of_objects,
    lacks_memory,
    on_host,
    out_of_memory,
)
from fastfeed.runtime.thread_pool import LockedIterator

torch: Any = framework("torch", "to_torch")

ConvertAll = Callable[[list[Any]], list[Any]]

_BFLOAT16 = "bfloat16"  # the one dtype that torch.from_numpy does not know
_CHANNELS_LAST = 'images are NHWC; PyTorch\'s own models take NCHW: add ToLayout("CHW") to the ops'


@runs_on_gpu("torch")
def to_torch(
    session: FeedSession, device: Any = None, convert: Where = "auto", yields: Yields | None = None
) -> TorchFeed:
    """Build the loader that `Feed.to_torch` returns."""
    check(session)
    if session.is_proving:
        importlib.import_module("fastfeed.adapters.no_saving").refuse_torch()
    if device is None:
        device = (
            f"cuda:{session.plan.world.gpu % torch.cuda.device_count()}"
            if torch.cuda.is_available()
            else "cpu"
        )
    placement = TorchPlacement(device, session.prefetch + 2)
    raw = on_device(session, placement, convert)
    return TorchFeed(session, placement, raw, BatchTuples.of(session, yields))


def check(session: FeedSession) -> None:
    """Raise if torch.distributed runs several processes but the feed was set up for one."""
    check_process_groups(session.plan.world)


def check_fields(fields: Iterable[Field]) -> None:
    """Raise if PyTorch has no tensors of a field's dtype."""
    for field in fields:
        if field.is_array:
            try:
                _host(np.empty(0, field.dtype))
            except TypeError as error:
                raise refusal(field, f"PyTorch has no tensors of {field.dtype}") from error


@guarded
class TorchFeed:
    """Iterable of (images, labels[, weights]) tensors, or what `yields` says, an epoch per iteration.

    Texts are lists of str. Weights are included if samples are masked or the source has weights. Padding is cut off, also
    on several ranks, so that the last batch is shorter; with weights, several ranks keep the
    padding and give it weight 0.

    Images are as the ops make them: (n, height, width, channels), or (n, channels, height, width)
    after `ToLayout("CHW")`, which PyTorch's own models need.

    For a source with annotations, labels are a dict of tensors: "boxes", "labels", "masks".

    Trainers find what they ask a `DataLoader` for: `dataset`, `sampler` and `batch_sampler`, which
    skip batches without reading them, `batch_size` (of this rank), `drop_last` and `set_epoch`.
    """

    num_workers = 0
    pin_memory = False
    prefetch_factor = None
    collate_fn = staticmethod(keep_batch)
    worker_init_fn = property(refuse_second_sampler)
    # for Accelerate: leave this loader as it is, and save its position with everything else
    _is_accelerate_prepared = True
    use_stateful_dataloader = True
    end_of_dataloader = False
    remainder = -1  # all samples of the last batch count

    def __init__(
        self, session: FeedSession, placement: TorchPlacement, raw: bool, tuples: BatchTuples
    ) -> None:
        check_fields(tuples.fields)
        self._session = session
        self.device = placement.device
        self._placement = placement
        convert = None
        if raw:
            on_images = DeviceConvert(session.program.convert, self.device)
            convert = partial(tuples.on_images, on_images)
        self._raw = raw
        self._place = lambda batch: placement.put(tuples(batch), convert=convert)
        self._nested = tuples.nested
        self._position = EpochPosition(session)
        self.sampler = RankSampler(session, self._position)
        session.place_on(placement, raw, tuples.names)
        session.notes = [line for line in session.notes if line != _CHANNELS_LAST]
        if session.program.spec.layout == "HWC":
            session.notes.append(_CHANNELS_LAST)

    def __iter__(self) -> Iterator[Any]:
        return self._begin()

    def _begin(self) -> LockedIterator[Any]:
        placed = self._session.placed(self._place, self._raw)
        return LockedIterator(self._batches(placed), placed.close)

    def _batches(self, placed: Iterator[Any]) -> Generator[Any, None, None]:
        cursor = self._session.cursor
        self._position.begun()
        epoch = cursor.next_epoch
        self.end_of_dataloader = False
        syncs = gradient_state()
        if syncs:  # it ends an accumulation of gradients with the epoch
            syncs._add_dataloader(self)
        try:
            for one in placed:
                self.end_of_dataloader = cursor.position[0] != epoch
                yield self._nested(self._placement.take(one))
        finally:
            if syncs:
                syncs._remove_dataloader(self)

    def __len__(self) -> int:
        """Steps per epoch, the same on every rank."""
        return len(self._session)

    @cached_property  # it refers to this loader, which is freed at once if no one asks
    def dataset(self) -> StepDataset:
        """The batches by the keys of `batch_sampler`; its length is samples of an epoch."""
        return StepDataset(self._session, self._position, self._begin)

    @cached_property
    def batch_sampler(self) -> StepSampler:
        """Positions of the batches of the next epoch."""
        return StepSampler(self.sampler, self.dataset)

    @property
    def batch_size(self) -> int:
        """Samples per step on this rank."""
        return self._session.plan.batch

    @property
    def drop_last(self) -> bool:
        """True if an incomplete last batch is left out of an epoch."""
        return self._session.plan.tail == "drop"

    def set_epoch(self, epoch: int) -> None:
        """Begin the next iteration with this epoch.

        A position that was restored inside the epoch is kept.

        Args:
            epoch: Counts from 0.

        Raises:
            ConfigError: If a position in another epoch was restored.
        """
        self._position.move(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The position after the last batch that was yielded, valid at any world size."""
        return self._session.state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved position."""
        self._session.restore(state)
        self._position.loaded()

    def __repr__(self) -> str:
        return f"{self._session!r}.to_torch({str(self.device)!r})"

    def __str__(self) -> str:
        return self._session.explain()


def torch_transform(make: Callable[[Allocate | None], Batch]) -> Batch:
    """Implementation of `Transform.torch`; `make` takes the memory for images, None for its own."""
    in_worker = torch.utils.data.get_worker_info() is not None
    batch = make(_shared if in_worker else None)
    names = ("images", "labels", "weights", "ids", "columns", "views", "objects", "masks", "fields")
    arrays, rebuild = flatten({name: getattr(batch, name) for name in names})
    return replace(batch, **rebuild(map(_tensor, arrays)))


def _shared(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """An array on a tensor in the memory that workers of a `DataLoader` share with the trainer."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if not size:
        return np.empty(shape, dtype)
    try:
        # as in default_collate: what is pickled to another process is its file descriptor or name
        storage = torch.UntypedStorage._new_shared(size)
    except RuntimeError as error:
        raise MemoryError(
            f"no shared memory is left for {size / 1e6:.1f} MB of a batch:"
            f" {str(error).splitlines()[0]}; enlarge /dev/shm (docker run --shm-size=...), or lower"
            " the batch size, prefetch_factor or num_workers of the DataLoader"
        ) from error
    memory = torch.empty(0, dtype=torch.uint8).set_(storage)
    if dtype == _BFLOAT16:  # NumPy's is another package's
        return memory.view(torch.int16).view(shape).numpy().view(dtype)
    return memory.view(getattr(torch, dtype)).view(shape).numpy()


def _tensor(array: Any) -> Any:
    """The tensor that an array is of, or one on its memory."""
    owner = array.base
    if isinstance(owner, torch.Tensor):
        return owner
    if array.dtype.name == _BFLOAT16 and isinstance(owner.base, torch.Tensor):
        return owner.base.view(torch.bfloat16)
    if hasattr(array, "__cuda_array_interface__"):
        return torch.as_tensor(array, device="cuda")
    try:
        return _host(array)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"PyTorch has no tensors of {array.dtype}, as one of the fields is; pass it as another"
            " dtype, or leave it out",
            field="fields",
        ) from error


_streams: dict[Any, Any] = {}
_streams_lock = threading.Lock()


def _copy_stream(device: Any) -> Any:
    """The copy stream of a device, shared by all feeds, since PyTorch reuses memory per stream."""
    with _streams_lock:
        if device not in _streams:
            _streams[device] = torch.cuda.Stream(device)
        return _streams[device]


@runs_on_gpu("torch")
class TorchPlacement:
    """Copies from pinned memory on a separate stream, ordered by events.

    The tensors come from PyTorch's caching allocator: their memory is not reused before the stream
    that consumed them is done with them, so batches that queued work still reads add to those that
    are live. Host memory is held until its copy has completed.
    """

    def __init__(self, device: Any, live_batches: int) -> None:
        try:
            self.device = torch.device(device)
            if self.device.type == "cuda" and self.device.index is None:
                self.device = torch.device("cuda", torch.cuda.current_device())
            torch.empty(1, device=self.device)
        except (RuntimeError, AssertionError, ValueError) as error:
            if lacks_memory(error):
                text = f"{str(device)!r} has no memory left for a first tensor; make room there"
                raise DeviceMemory(f"{text}: {str(error).splitlines()[0]}") from error
            raise ConfigError(
                f"device must be one that this PyTorch computes on, got {device!r}:"
                f" {str(error).splitlines()[0]}",
                field="device",
            ) from error
        self.name = f"torch {self.device}"
        self._live_batches = live_batches
        self.accelerator = self.device.type != "cpu"
        self._stream: Any = _copy_stream(self.device) if self.device.type == "cuda" else None
        # (event, host memory that is read until then)
        self._copies: deque[tuple[Any, Any]] = deque()
        self._lock = threading.Lock()  # batches are put by several threads

    def memory(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        if self._stream is None:
            return aligned(shape, dtype)
        size = math.prod(shape) * np.dtype(dtype).itemsize
        try:
            with torch.cuda.device(
                self.device
            ):  # or the allocator may make a context on the first GPU
                held = torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=True)
        except RuntimeError as error:
            if not lacks_memory(error):
                raise
            text = (
                f"no page-locked memory is left for {size / 1e6:.1f} MB of a batch; lower the batch"
                " size or prefetch"
            )
            raise DeviceMemory(f"{text}: {str(error).splitlines()[0]}") from error
        return held.numpy().view(dtype).reshape(shape)

    def put(
        self, arrays: tuple[Any, ...], borrowed: bool = False, convert: ConvertAll | None = None
    ) -> Any:
        """Copy to the device; returns tensors, lists of texts, and the copy's event."""
        try:
            if self._stream is not None:
                return self._on_stream(arrays, borrowed, convert)
            tensors = [
                array.tolist()
                if is_of_objects(array)
                else _host(on_host(array)).to(self.device, copy=borrowed)
                for array in arrays
            ]
            return tensors if convert is None else convert(tensors), None
        except RuntimeError as error:
            # not always OutOfMemoryError: pinned memory and kernels have another
            if not lacks_memory(error):
                raise
            raise out_of_memory(self.name, arrays, self._live_batches, error) from error

    def _on_stream(
        self, arrays: tuple[Any, ...], borrowed: bool, convert: ConvertAll | None
    ) -> Any:
        with self._lock, torch.cuda.device(self.device):
            while self._copies and self._copies[0][0].query():
                self._copies.popleft()
        foreign = any(hasattr(array, "__cuda_array_interface__") for array in arrays)
        if foreign and borrowed:
            # tensors of PyTorch's own may still be written, on this thread's stream
            self._stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.device(self.device), torch.cuda.stream(self._stream):
            tensors = []
            hosts = []
            for array in arrays:
                if is_of_objects(array):
                    tensors.append(array.tolist())
                    continue
                if hasattr(
                    array, "__cuda_array_interface__"
                ):  # decoded on the GPU, into memory that is reused
                    # a number would be believed, also of memory on another GPU; without one it is
                    # looked up and copied
                    tensors.append(torch.as_tensor(array, device="cuda").clone())
                    continue
                host = _host(array)
                host = host if host.is_pinned() else host.pin_memory()  # a copy
                hosts.append(host)
                tensors.append(host.to(self.device, non_blocking=True))
            tensors = tensors if convert is None else convert(tensors)
            event = torch.cuda.Event()
            event.record(self._stream)
            if foreign or borrowed:
                event.synchronize()  # their owner does not know our stream
        with self._lock:
            self._copies.append((event, hosts))
        return tensors, event

    def take(self, placed: Any) -> tuple[Any, ...]:
        tensors, event = placed
        if event is not None:
            stream = torch.cuda.current_stream(self.device)
            stream.wait_event(event)
            for tensor in tensors:
                if not isinstance(tensor, list):  # of texts
                    # freed memory waits for this stream, not for the one that copied
                    tensor.record_stream(stream)
        return tuple(tensors)


@runs_on_gpu("torch")
class DeviceConvert:
    """Conversion on the device.

    pixel * scale + offset in float32, like the backend's table; results differ from it only by
    rounding. CHW images keep their memory order (channels last), which is the fastest for
    convolutions on a GPU.
    """

    def __init__(self, how: Convert, device: Any) -> None:
        self._how = how
        self._dtype = getattr(torch, how.dtype)
        self._scale = torch.tensor(how.scale, dtype=torch.float32, device=device)
        self._offset = torch.tensor(how.offset, dtype=torch.float32, device=device)

    def __call__(self, images: Any) -> Any:
        if not self._how.keeps_bytes:
            floats = images.to(torch.float32, copy=True)  # floats may be the feed's own memory
            images = floats.mul_(self._scale).add_(self._offset)
            if self._how.standardized:
                axes = (-3, -2, -1)
                images -= images.mean(axes, keepdim=True)
                deviations = images.std(axes, correction=0, keepdim=True)
                images /= deviations.clamp_(min=math.prod(images.shape[-3:]) ** -0.5)
            images = images.to(self._dtype)
        return images.movedim(-1, -3) if self._how.layout == "CHW" else images


def _host(array: np.ndarray) -> Any:
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()  # PyTorch does not accept this array as it is
    if array.dtype.name == _BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
