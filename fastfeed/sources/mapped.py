"""Samples of any Python data set: whatever has `__len__` and `__getitem__`."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from fastfeed.arguments import checked_early
from fastfeed.errors import ConfigError
from fastfeed.faults import Failure, ends_run, error_text
from fastfeed.printable import printable
from fastfeed.sources.base import sample_or_failure
from fastfeed.sources.class_names import class_numbers, nfc
from fastfeed.sources.column_arrays import as_array
from fastfeed.sources.label_values import LabelKind, LabelValues
from fastfeed.sources.methods import SourceMethods
from fastfeed.sources.shards.labels import checked_classes
from fastfeed.sources.tables.in_memory import listed_labels
from fastfeed.spec import ENCODED, LabelSpec, Spec
from fastfeed.storage.expand import read_whole
from fastfeed.storage.storage import open_storage

_KEPT = 1 << 14  # items whose columns are kept for the call that asks for them
_TRIED = 16  # first items, of which some may be bad


@checked_early
class Mapped(SourceMethods):
    """The items of a Python data set, such as torchvision's: `dataset[i]` gives sample i.

    Python runs for each sample, and holds the GIL for as long as its own code does: every item
    costs what it costs in a DataLoader, in one process. Files are far faster by ImageFolder, Files,
    Table or HuggingFace, which read them by native threads. An exception of an item is the failure
    of its sample.

    Labels and columns are read with the image, in the same call. Whatever needs the labels of all
    samples before (`Balanced`, stratified splits) reads every item once, unless `labels` are given
    or the data set has them as `targets`.

    Args:
        dataset (Any): Has `__len__` and `__getitem__`; items are tuples or dicts, or images alone
            with `image=None`. It is pickled where the feed has another process.
        image (int | str | None): Position or name of the image in an item: bytes of a file, a path
            or address, an image of Pillow, or an array: uint8 (height, width), (height, width, 1 or
            3), or, as a tensor of torch, (1 or 3, height, width); all items have the same kind.
            Default: 0.
        label (int | str | None): Position or name of the label: an integer, a name of `classes`, a
            number with a fraction or an array of numbers; None for no labels. Default: 1.
        columns (Sequence[str] | Mapping[str, int | str]): Names of other values of an item that are
            carried to the batch; or their positions or names in it, by the names that they get.
            Default: ().
        labels (Sequence[Any] | None): One label per item, in place of those in the items. Default:
            None, `dataset.targets`, if these and the label of the first item agree.
        label_kind (str | None): Kind of `labels`, as in `Files`. Default: None, by their type.
        classes (Sequence[str | int] | None): Names of classes in the order of their labels. Default:
            None, `dataset.classes`.
        size (tuple[int, int] | None): (height, width) of images that are not files, if it is the
            same of all: they need no Resize. Default: None, it differs.
        parallel (bool): Call the data set from several threads at a time, if it allows that.
            Default: False.

    Raises:
        ConfigError: If an argument is wrong, or the first items are not what it says.

    Example:
        >>> class Squares:
        ...     def __len__(self):
        ...         return 3
        ...     def __getitem__(self, i):
        ...         return np.full((4, 4, 3), 20 * i, np.uint8), i % 2
        >>> ff.Mapped(Squares(), classes=["even", "odd"], size=(4, 4))
        Mapped(Squares): 3 images of 2 classes, HWC uint8[4, 4, 3], by Python
    """

    def __init__(
        self,
        dataset: Any,
        image: int | str | None = 0,
        label: int | str | None = 1,
        columns: Sequence[str] | Mapping[str, int | str] = (),
        *,
        labels: Sequence[Any] | None = None,
        label_kind: LabelKind | None = None,
        classes: Sequence[str | int] | None = None,
        size: tuple[int, int] | None = None,
        parallel: bool = False,
    ) -> None:
        if isinstance(columns, str):
            raise ConfigError.of(
                "Mapped: columns", "a list of names", columns, f"pass [{columns!r}]"
            )
        if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
            raise ConfigError(
                "Mapped needs a data set with __len__ and __getitem__, got"
                f" {printable(type(dataset).__name__)}; write what an iterator gives into shards"
            )
        names = columns if isinstance(columns, Mapping) else {name: name for name in columns}
        self._dataset = dataset
        self._length = len(dataset)
        self._image = image
        self._label = None if label_kind == "none" else label
        self._columns: dict[str, int | str] = dict(names)
        self._parallel = parallel
        self._storage = open_storage(None, None)
        self._forget()
        self.classes = checked_classes(_names(dataset, classes), "Mapped") or ()
        self._numbers = class_numbers(self.classes)
        first, item = self._first_good()
        self.spec = _image_spec(self._item_image(item), size)
        self._listed = self._listed_labels(labels, label_kind, first, item)
        value = -1 if self._label is None else self._item_label(item)
        self.label_spec = LabelSpec() if value is None else LabelSpec(*_label_type(value))
        if self._listed is not None:
            self.label_spec = self._listed.spec
        # labels of items that were read
        self._values = np.full(
            (self._length * (self._listed is None), *self.label_spec.shape),
            np.nan if self.label_spec.dtype == "float32" else -1,
            self.label_spec.dtype if self._listed is None else np.int64,
        )
        self._known = np.full(len(self._values), self._label is None)

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        # columns of items that were read, until they are asked for
        self._pending: OrderedDict[int, dict[str, Any]] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_lock": None, "_pending": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def _first_good(self) -> tuple[int, Any]:
        """Number and content of the first item that can be read. ConfigError."""
        tried = min(_TRIED, self._length)
        problem = "it is empty"
        for i in range(tried):
            try:
                item = self._item(i)
                self._item_image(item)
                self._item_label(item)
                self._item_columns(item)
                return i, item
            except Exception as error:  # of any code
                if ends_run(error):
                    raise
                problem = f"item {i}: {error_text(error)}"
        raise ConfigError(
            f"Mapped: none of the first {tried} items of {type(self._dataset).__name__} can be used:"
            f" {printable(problem)}; say with image=, label= and columns= what is in an item"
        )

    def _listed_labels(
        self, labels: Any, kind: LabelKind | None, first: int, item: Any
    ) -> LabelValues | None:
        """Labels that were passed, or those of the data set; None if items have them."""
        if labels is None and self._label is not None:
            own = getattr(self._dataset, "targets", None)
            if own is not None and len(own) == self._length:
                own = np.asarray(own)
                same = own.ndim == 1 and own.dtype.kind in "iu"
                labels = own if same and own[first] == self._item_label(item) else None
        if labels is None:
            return None
        kind = kind or ("name" if np.asarray(labels).dtype.kind in "UO" else "index")
        self.classes, listed = listed_labels(labels, kind, self.classes, "Mapped", self._length)
        self._label = None
        return listed

    # -- items

    def _item(self, i: int) -> Any:
        if self._pid != os.getpid():  # a thread of the parent may have held the lock
            self._forget()
        with nullcontext() if self._parallel else self._lock:
            return self._dataset[i]

    def _item_image(self, item: Any) -> bytes | str | np.ndarray:
        return _plain_image(item if self._image is None else _part(item, self._image))

    def _item_label(self, item: Any) -> int | np.ndarray | None:
        """A class number, or numbers as float32; None for no label."""
        value = None if self._label is None else _part(item, self._label)
        if value is None:
            return None
        if isinstance(value, str):
            if nfc(value) not in self._numbers:
                raise ValueError(f"label {value!r} is not in classes")
            return self._numbers[nfc(value)]
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"a label of {type(value).__name__}")
        if array.ndim or array.dtype.kind == "f":
            return array.astype(np.float32)
        return int(array)

    def _item_columns(self, item: Any) -> dict[str, Any]:
        return {name: _plain_value(_part(item, key)) for name, key in self._columns.items()}

    def _keep(self, i: int, item: Any) -> None:
        """Store label and columns of an item that was read."""
        if self._label is not None:
            value = self._item_label(item)
            if value is not None and LabelSpec(*_label_type(value)) != self.label_spec:
                raise TypeError(f"a label of another kind: {value!r}, others are {self.label_spec}")
            if value is not None:
                self._values[i] = value
            self._known[i] = True
        if self._columns:
            self._pending[i] = self._item_columns(item)
            while len(self._pending) > _KEPT:
                self._pending.popitem(last=False)

    def _failed(self, i: int, error: Exception) -> Failure:
        if ends_run(error):
            raise error
        return Failure(i, self.uri(i), "read", "internal", error_text(error))

    # -- Source

    def __len__(self) -> int:
        return self._length

    def uri(self, i: int) -> str:
        """Name of a sample: `CIFAR10[7]`."""
        return f"{type(self._dataset).__name__}[{int(i)}]"

    def read(self, ids: Sequence[int]) -> list[Any]:
        """Bytes or pixels of items, one after another."""
        return [self._read(int(i)) for i in ids]

    def _read(self, i: int) -> Any:
        try:
            item = self._item(i)
            image = self._item_image(item)
            self._keep(i, item)
        except Exception as error:  # of any code
            return self._failed(i, error)
        if isinstance(image, np.ndarray):
            is_gray = image.shape[2] == 1 and self.spec.channels == 3
            return np.repeat(image, 3, axis=2) if is_gray else image
        if isinstance(image, str):
            return sample_or_failure(self, i, read_whole(image, self._storage))
        return image

    @property
    def label_reads(self) -> bool:
        """True if `label` reads the items."""
        return self._listed is None

    def label(self, ids: np.ndarray) -> np.ndarray:
        """Labels as `label_spec` says; those of items that were not read yet are read now."""
        if self._listed is not None:
            return self._listed.take(ids)
        for i in np.unique(ids[~self._known[ids]]).tolist():
            try:
                self._keep(i, self._item(i))
            except Exception as error:  # of any code; its sample is bad when it is read
                self._failed(i, error)
        return self._values[ids]

    def column_values(self, ids: Sequence[int]) -> list[dict[str, Any]] | None:
        """Columns of items, of those that were just read without reading them again."""
        return [self._column_row(int(i)) for i in ids] if self._columns else None

    def _column_row(self, i: int) -> dict[str, Any]:
        row = self._pending.pop(i, None)
        if row is not None:
            return row
        try:
            return self._item_columns(self._item(i))
        except Exception as error:  # of any code
            return dict.fromkeys(self._columns, self._failed(i, error))

    def columns(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        """Columns by name: arrays of numbers, or objects."""
        rows = self.column_values(ids.tolist()) or []
        return {name: as_array([row[name] for row in rows]) for name in self._columns}

    @property
    def fingerprint(self) -> str:
        """Hash of the data set's type and length, and of labels that it does not have to read."""
        kind = type(self._dataset)
        about = (kind.__module__, kind.__qualname__, self._length, self.classes, self._columns)
        digest = hashlib.sha256(repr(about).encode("utf-8", "surrogateescape"))
        for part in () if self._listed is None else self._listed.content(0, self._length):
            digest.update(part)
        return digest.hexdigest()[:32]

    def __repr__(self) -> str:
        of_classes = f" of {len(self.classes)} classes" if self.classes else ""
        name = type(self._dataset).__name__
        return f"Mapped({name}): {self._length} images{of_classes}, {self.spec}, by Python"


def _names(dataset: Any, classes: Sequence[str | int] | None) -> Sequence[str | int] | None:
    own = getattr(dataset, "classes", None)
    is_list = isinstance(own, (list, tuple)) and all(isinstance(name, str) for name in own)
    return own if classes is None and is_list else classes


def _part(item: Any, key: int | str) -> Any:
    try:
        return item[key]
    except (IndexError, KeyError, TypeError) as error:
        names = f" with {', '.join(map(repr, item))}" if isinstance(item, Mapping) else ""
        raise LookupError(f"no {key!r} in an item of type {type(item).__name__}{names}") from error


def _plain_image(image: Any) -> bytes | str | np.ndarray:
    """Bytes of a file, its path, or pixels: uint8 (height, width, 1 or 3)."""
    if isinstance(image, Mapping):
        image = image.get("bytes") or image.get("path")
    if isinstance(image, (bytes, bytearray, memoryview)):
        return bytes(image)
    if isinstance(image, (str, os.PathLike)):
        return os.fspath(image)
    if hasattr(image, "convert") and hasattr(image, "mode"):  # of Pillow
        image = image if image.mode in ("L", "RGB") else image.convert("RGB")
    elif not hasattr(image, "__array__"):
        raise TypeError(f"an image of {type(image).__name__}, which is no image")
    pixels = np.asarray(image)
    if pixels.ndim == 3 and type(image).__module__.partition(".")[0] == "torch":
        pixels = pixels.transpose(1, 2, 0)
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] not in (1, 3):
        raise TypeError(
            f"an image of {pixels.dtype}{list(pixels.shape)}; uint8 is needed, channels last: leave"
            " transforms such as ToTensor out of the data set, they are ops of the feed"
        )
    return np.ascontiguousarray(pixels)


def _image_spec(image: bytes | str | np.ndarray, size: tuple[int, int] | None) -> Spec:
    if isinstance(image, np.ndarray):
        height, width = size or (None, None)
        return Spec((height, width, image.shape[2]), "uint8", "HWC")
    if size is not None:
        raise ConfigError(
            f"Mapped: size is of images that are pixels already, got {size!r} for files; leave it"
            " out, and pass ff.Resize to the feed"
        )
    return ENCODED


def _label_type(value: int | np.ndarray) -> tuple[tuple[int, ...], str]:
    return (value.shape, "float32") if isinstance(value, np.ndarray) else ((), "int64")


def _plain_value(value: Any) -> Any:
    """Numbers and lists of them as arrays; all else as it is."""
    if isinstance(value, (str, bytes)) or value is None:
        return value
    try:
        array = np.asarray(value)
    except ValueError:  # of several lengths
        return value
    return array[()] if array.dtype.kind in "biuf" else value
