"""Protocols of sources: the required one, and the optional ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.faults import Failure
from fastfeed.printable import warn
from fastfeed.runtime.addresses import SampleLocations
from fastfeed.spec import PLAIN_OBJECTS, LabelSpec, ObjectSpec, Spec
from fastfeed.storage.reads import ByteRange, Pending, Unread
from fastfeed.storage.storage import Storage

StoredFile = tuple[Storage, ByteRange]  # a remote file, and what reads it

_LABELS_AT_ONCE = 1 << 20


class Source(Protocol):
    """Random access to samples and their labels. Read from several threads at once; must pickle."""

    spec: Spec  # of one sample: ENCODED for files, HWC pixels for arrays
    classes: tuple[str, ...]  # names by label; empty where labels have no names

    def __len__(self) -> int: ...

    def uri(self, i: int) -> str:
        """Address of a sample, for messages and the quarantine list.

        Args:
            i (int): Sample id.

        Returns:
            A path or address, with what finds the sample in it.
        """
        ...

    def read(self, ids: Sequence[int]) -> list[Any]:
        """Read samples, and wait for them.

        Args:
            ids (Sequence[int]): Sample ids.

        Returns:
            One entry per id: the bytes of a file (or a pixel array), or the Failure that happened
                instead.
        """
        ...

    def label(self, ids: np.ndarray) -> np.ndarray:
        """Class numbers of samples, or targets of another kind, if a `label_spec` says so.

        Args:
            ids (np.ndarray): Sample ids, int64 (n,).

        Returns:
            int64 (n,), -1 for a sample without a label. With the attribute `label_spec`, a pair of
                one label's shape and dtype such as ((2,), "float32"): an array (n, 2) of this
                dtype, NaN for a missing number; with ((), "str"), an object array (n,) of texts.
        """
        ...

    @property
    def fingerprint(self) -> str:
        """Changes with the content, so that a saved position is not restored over other data."""
        ...


def check_source(source: Any, name: str, several: bool = False) -> None:
    """Raise ConfigError, which calls it `name`, unless `source` is a source.

    several: its samples may have several images.
    """
    if isinstance(source, type) or not (hasattr(source, "spec") and hasattr(source, "__len__")):
        got = f"the class {source.__name__}" if isinstance(source, type) else type(source).__name__
        raise ConfigError(
            f"{name} must be a source such as ImageFolder(path) or Arrays(images, labels), got"
            f" {got}; wrap it in one",
            field=name,
        )
    if getattr(source, "together", None) and not several:
        raise ConfigError(
            f"{name} must have one image per sample, got {source!r}; pass Together's own sources"
            " here, and Together to Feed"
        )


def has_labels(source: Source) -> bool:
    """True if any sample has the number of a class."""
    parts = range(0, len(source), _LABELS_AT_ONCE)
    ids = (np.arange(first, min(first + _LABELS_AT_ONCE, len(source))) for first in parts)
    return any(int(source.label(part).max(initial=-1)) >= 0 for part in ids)


@runtime_checkable
class Fetching(Protocol):
    """A source whose reads may take a while, and are started ahead of their turn."""

    @property
    def remote(self) -> bool:
        """True if reads do take a while; otherwise `read` is used."""
        ...

    def fetch(self, ids: Sequence[int]) -> list[Pending]:
        """Begin to read, and return at once.

        Args:
            ids (Sequence[int]): Sample ids.

        Returns:
            One pending read per id, whose result is what `read` gives for it.
        """
        ...


@runtime_checkable
class BlockReader(Protocol):
    """A source that reads blocks of samples, and keeps those of samples to come."""

    def expect(self, samples: int) -> None:
        """Reserve room for this number of samples in flight.

        Args:
            samples (int): Samples in flight; a source keeps the largest number it gets.
        """
        ...

    def hold(self, ids: np.ndarray) -> list[Pending] | None:
        """Begin to read as `fetch` does, keeping each block until its samples are taken.

        Args:
            ids (np.ndarray): Sample ids: int64, shape (n,).

        Returns:
            One pending read per id; None if it saves nothing.
        """
        ...


@runtime_checkable
class Addressable(Protocol):
    """A source whose bytes native threads can read at known locations."""

    def addresses(self, ids: np.ndarray) -> SampleLocations | None:
        """Locations of the bytes of samples.

        One that cannot be read there is read with `read`, which gives the reason.

        Args:
            ids (np.ndarray): Sample ids, int64 (n,).

        Returns:
            Files and byte ranges, or rows of an array; None: the samples have to be read with
            `read`.
        """
        ...


@runtime_checkable
class HasByteRanges(Protocol):
    """A source of remote files, of which parts can be read."""

    def byte_ranges(self, ids: np.ndarray) -> Sequence[StoredFile | None]:
        """Files of samples in remote storage.

        Args:
            ids (np.ndarray): Sample ids, int64 (n,).

        Returns:
            For each the storage and the bytes of the image's file, to the end of the object if its
                size is unknown. None: it has to be read with `fetch`, which may say why.
        """
        ...


@runtime_checkable
class HasNotes(Protocol):
    """A source with notes on skipped files."""

    @property
    def notes(self) -> Sequence[str]:
        """Skipped and damaged files, a line each, with a count or the place."""
        ...


@runtime_checkable
class Sharded(Protocol):
    """A source whose samples are stored together in units: shards, row groups."""

    @property
    def bounds(self) -> np.ndarray:
        """First id of every unit, then the number of samples: int64 (units + 1,), ascending."""
        ...

    def sizes(self, ids: np.ndarray) -> np.ndarray:
        """Sizes of samples in storage.

        Args:
            ids (np.ndarray): Sample ids, int64 (n,).

        Returns:
            Bytes, int64 (n,).
        """
        ...

    def shard(self, unit: int) -> str:
        """Address of a unit, for messages and pictures.

        Args:
            unit (int): Number of the shard or row group.

        Returns:
            A path or address.
        """
        ...


@runtime_checkable
class Annotated(Protocol):
    """A source with annotations besides labels; each of these methods is optional."""

    def weights(self, ids: np.ndarray) -> np.ndarray | None:
        """Weights of samples in the loss.

        Args:
            ids (np.ndarray): Sample ids, int64 (n,).

        Returns:
            float32 (n,). None: all are 1.
        """
        ...

    def boxes(self, ids: np.ndarray) -> np.ndarray | None:
        """The part of each image that counts.

        Args:
            ids (np.ndarray): Sample ids, int64 (n,).

        Returns:
            float64 (n, 4): top, left, height, width, pixels as displayed; NaN for all of the image.
                None: no sample has one.
        """
        ...

    def columns(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        """Other values carried to the batch.

        Args:
            ids (np.ndarray): Sample ids, int64 (n,).

        Returns:
            By name, arrays of n entries.
        """
        ...


class Named(Protocol):
    """A source that names its samples for splits; without it, a split takes their addresses."""

    def sample_names(self, ids: np.ndarray) -> list[str]:
        """Names that stay when data is added or moves.

        Args:
            ids (np.ndarray): Sample ids, int64 (n,).

        Returns:
            A name per id, such as the path below the source's root; samples of equal names are on
                one side of a split by hash.
        """
        ...


class ReadsColumns(Protocol):
    """A source whose columns are read from storage; a sample is bad if that fails."""

    def column_values(self, ids: Sequence[int]) -> list[dict[str, Any]] | None:
        """Values of the columns of samples.

        Args:
            ids (Sequence[int]): Sample ids.

        Returns:
            One entry per id: values by name, None for a missing one, or the Failure of the read.
                None in place of the list: no column is read from storage.
        """
        ...


class Instances(NamedTuple):
    """Objects in n images, those of one after those of another: m in all."""

    # float64 (m, 4): left, top, right, bottom, in pixels of the displayed image, or as `frame`
    # says; with `object_spec.normalized`, in shares of its width and height
    boxes: np.ndarray
    labels: np.ndarray  # int64 (m,)
    counts: np.ndarray  # int64 (n,): how many each image has; their sum is m
    # float64 (n, 2): height, width of the annotated images; NaN where not known
    sizes: np.ndarray | None = None
    # float64 (m, keypoints, 3): x, y, visibility (0, 1 or 2), in the pixels of the boxes
    keypoints: np.ndarray | None = None
    # objects (m,): outline of each, in the pixels of the boxes: uint8 (height, width) of the image,
    # or `Rings` or `Runs` of `sources.annotations.shapes`; with `object_spec.instance_masks` or
    # `object_spec.polygons`
    shapes: np.ndarray | None = None


@runtime_checkable
class HasObjects(Protocol):
    """A source with boxes or masks; each of them is optional.

    A source with keypoints or outlines has the attribute `object_spec`, an `ObjectSpec`.
    """

    object_classes: tuple[str, ...]  # names by label of an object; empty if they have no names

    @property
    def most(self) -> int:
        """Room for objects per image; the largest are kept. 0: no boxes."""
        ...

    def objects(self, ids: np.ndarray) -> Instances | None:
        """Boxes and labels of objects in images.

        Args:
            ids (np.ndarray): Sample ids, int64 (n,).

        Returns:
            Boxes with labels; the count of an image without any is 0. None: there are no boxes.
        """
        ...

    def masks(self, ids: Sequence[int]) -> list[Any] | None:
        """The class of each pixel of images.

        Args:
            ids (Sequence[int]): Sample ids.

        Returns:
            An entry per id: a PNG's bytes, uint8 (height, width) of the displayed image, None if
                nothing is known, or the Failure of the read. None in place of the list: no masks.
        """
        ...


class Optionals:
    """Optional methods of any source, with defaults for the missing ones.

    What a source lacks, or has as something other than a method, is as of a source without.
    """

    def __init__(self, source: Any) -> None:
        self._source = source
        self.object_classes: tuple[str, ...] = getattr(source, "object_classes", ())
        self.object_spec: ObjectSpec = getattr(source, "object_spec", PLAIN_OBJECTS)
        self.frame = annotation_frame(source)
        self.label_spec = LabelSpec(*getattr(source, "label_spec", ()))

    def uri(self, i: int) -> str:
        """Address of a sample, for messages."""
        return self._source.uri(i)

    def sample_names(self, ids: np.ndarray) -> list[str]:
        """Names that stay when the folder moves; addresses for a source without such names."""
        names = self._call("sample_names", ids)
        return [self.uri(i) for i in ids.tolist()] if names is None else names

    def _call(self, name: str, ids: Any, default: Any = None) -> Any:
        method = getattr(self._source, name, None)
        return method(ids) if callable(method) else default

    def weights(self, ids: np.ndarray) -> np.ndarray | None:
        """Weights of samples in the loss."""
        return self._call("weights", ids)

    def boxes(self, ids: np.ndarray) -> np.ndarray | None:
        """The part of each image that counts."""
        return self._call("boxes", ids)

    def columns(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        """Values that are carried to the batch."""
        return self._call("columns", ids, {})

    def column_values(self, ids: Sequence[int]) -> list[dict[str, Any]] | None:
        """The same of columns that are read from storage."""
        return self._call("column_values", ids)

    @property
    def most(self) -> int:
        """Room for boxes of objects per image."""
        most = getattr(self._source, "most", None)
        if most is None and callable(getattr(self._source, "objects", None)):
            name = type(self._source).__name__
            raise ConfigError(
                f"{name} has objects(), but not `most`; add it: the largest number of boxes of an"
                " image"
            )
        return int(most) if isinstance(most, (int, np.integer)) else 0

    def objects(self, ids: np.ndarray) -> Instances | None:
        """Boxes of objects, with their labels. ConfigError without what `object_spec` says."""
        found = self._call("objects", ids)
        if found is not None and (wrong := self.object_spec.missing_in(found)):
            raise ConfigError(f"objects() of {type(self._source).__name__} {wrong}")
        return found

    def masks(self, ids: Sequence[int]) -> list[Any] | None:
        """The class of each pixel."""
        return self._call("masks", ids)


def sample_locations(source: Any, ids: np.ndarray) -> SampleLocations | None:
    """Locations of the bytes of samples, int64 (n,); None if only `read` can get them.

    A subclass or an object that overrides `read` or `uri` has no locations.
    """
    addresses = source.addresses(ids) if _has_own(source, "addresses") else None
    return addresses if isinstance(addresses, SampleLocations) else None


def stored_files(source: Any, ids: np.ndarray) -> Sequence[StoredFile | None]:
    """Files of samples, int64 (n,), in remote storage; None where only `fetch` can get them.

    As with locations, a source that overrides `read` or `uri` has none.
    """
    return source.byte_ranges(ids) if _has_own(source, "byte_ranges") else [None] * len(ids)


def _has_own(source: Any, method: str) -> bool:
    """True if a source has the method, and does not override `read` or `uri` for others."""
    own = {"read", "uri"}
    if own & getattr(source, "__dict__", {}).keys():
        return False
    for kind in type(source).__mro__:
        if callable(vars(kind).get(method)):
            return True
        if own & vars(kind).keys() and (
            "read" in vars(kind) or not kind.__module__.startswith("fastfeed.")
        ):
            return False
    return False


def has_boxes_or_masks(source: Any) -> bool:
    """Return True for a source with boxes or masks."""
    optionals = Optionals(source)
    return optionals.most > 0 or optionals.masks([]) is not None


def image_sources(source: Any) -> dict[str, Source]:
    """Sources of the images of each sample by name; a single one has an empty name."""
    return getattr(source, "together", None) or {"": source}


def has_same_geometry(source: Any) -> bool:
    """True if the images of a sample are cropped, flipped and turned alike."""
    return getattr(source, "geometry", "same") == "same"


def annotation_frame(source: Any) -> str:
    """Frame of boxes and masks: "displayed", after EXIF orientation, or "stored", before it."""
    return getattr(source, "frame", "displayed")


def sample_or_failure(source: Source, i: int, data: bytes | Unread) -> bytes | Failure:
    """The bytes of sample i, or the Failure that an Unread means."""
    if isinstance(data, Unread):
        return Failure(i, source.uri(i), "read", data.reason, data.detail)
    return data


def renumbered(sample: Any, i: int) -> Any:
    """The sample; of a Failure, one with this id."""
    return replace(sample, id=int(i)) if isinstance(sample, Failure) else sample


# until the next minor version
_RENAMED = {"Holding": "BlockReader", "Located": "HasObjects", "Noted": "HasNotes"}


def __getattr__(name: str) -> Any:
    if name not in _RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    text = f"fastfeed.sources.base.{name} is now called {_RENAMED[name]}"
    warn(text, DeprecationWarning, stacklevel=2)
    return globals()[_RENAMED[name]]
