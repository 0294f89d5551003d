"""Images that are in memory already, or in one of the small data sets' layouts."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fastfeed.arguments import checked_early
from fastfeed.errors import ConfigError
from fastfeed.runtime.addresses import ArrayRows
from fastfeed.sources.label_values import (
    LabelArray,
    LabelKind,
    LabelValues,
    check_label_kind,
)
from fastfeed.sources.methods import SourceMethods
from fastfeed.sources.mnist_cifar import read_cifar, read_mnist
from fastfeed.sources.shards.labels import checked_classes
from fastfeed.sources.tables.in_memory import listed_labels
from fastfeed.spec import Spec
from fastfeed.storage.byte_sizes import in_bytes

_FINGERPRINTED = 256 << 20  # bytes of pixels: half a second in memory


@checked_early
class Arrays(SourceMethods):
    """Images in a NumPy array, with their labels.

    Args:
        images (np.ndarray): uint8 (n, height, width) or (n, height, width, 1 or 3), at least one;
            or uint16 or float32, also of 4 channels, which are as pixels of
            `Decode(dtype="uint16")` and "float32". A memory-mapped array
            (`np.load(path, mmap_mode="r")`) stays on disk.
        labels (Sequence[Any] | np.ndarray | None): One per image: integers count `classes` from 0,
            -1 for none; floats (n, ...) are targets of any shape. Default: None, no labels.
        classes (Sequence[str | int]): Names by label. Default: ().
        label_kind (str | None): "index": integers (n,); "value": numbers (n, ...), which become
            float32; "multi": lists of names, or (n, classes) of 0 and 1: multi-hot, float32
            (n, classes); "text": texts; "none": no labels. Default: None, "value" for floats and
            "index" for others.

    Raises:
        ConfigError: If images or labels have another shape or dtype; the text says how to convert
            them. If a label has no class, or a target is missing.
        SourceError: If labels are not of their kind.

    Example:
        >>> ff.Arrays(
        ...     np.zeros((100, 32, 32, 3), np.uint8), np.arange(100) % 2, classes=("cat", "dog")
        ... )
        Arrays: 100 images of 2 classes, HWC uint8[32, 32, 3]
    """

    def __init__(
        self,
        images: np.ndarray,
        labels: Sequence[Any] | np.ndarray | None = None,
        *,
        classes: Sequence[str | int] = (),
        label_kind: LabelKind | None = None,
    ) -> None:
        if not isinstance(images, np.ndarray):
            raise ConfigError(
                f"Arrays needs a NumPy array of uint8 images, got {type(images).__name__}; "
                "convert with np.asarray(images)",
                field="images",
            )
        if not any(images.dtype == dtype for dtype in (np.uint8, np.uint16, np.float32)):
            raise ConfigError(
                f"Arrays needs uint8, uint16 or float32 images, got {images.dtype}; convert with"
                " x.astype('float32')",
                field="images",
            )
        if images.ndim >= 3 and not len(images):
            raise ConfigError(
                f"Arrays needs at least one image, got an array of shape {images.shape}",
                field="images",
            )
        if images.ndim >= 3 and 0 in images.shape:
            raise ConfigError(
                f"Arrays needs images with pixels, got shape {images.shape}", field="images"
            )
        if images.ndim == 3:
            images = images[..., None]
        channels = (1, 3) if images.dtype == np.uint8 else (1, 3, 4)
        if images.ndim != 4 or images.shape[3] not in channels:
            more = "1 or 3" if images.dtype == np.uint8 else "1, 3 or 4"
            raise ConfigError(
                f"Arrays needs images of shape (n, height, width) or (n, height, width, {more}), "
                f"got {images.shape}; move channels last with images.transpose(0, 2, 3, 1)",
                field="images",
            )
        self.spec = Spec(tuple(int(n) for n in images.shape[1:]), images.dtype.name, "HWC")
        names = checked_classes(classes, "Arrays") or ()
        self.classes, self._labels = _labels(labels, len(images), names, label_kind)
        self.label_spec = self._labels.spec
        self._images = images
        self._fingerprint = ""

    @classmethod
    @checked_early
    def mnist(
        cls,
        folder: str | os.PathLike[str],
        split: Literal["train", "test"] = "train",
        *,
        memory: int | str = "1GB",
    ) -> Arrays:
        """MNIST, Fashion-MNIST and the like: the four idx files as downloaded, .gz or not.

        Args:
            folder (str | os.PathLike[str]): The folder that holds the files.
            split (str): "train" or "test". Default: "train".
            memory (int | str): Bytes that a file may take unpacked. Default: "1GB".

        Returns:
            The images, uint8 (n, 28, 28, 1), with labels.

        Raises:
            SourceError: If the files are missing or damaged.

        Example:
            >>> ff.Arrays.mnist("mnist", "test")
            Arrays: 10 images, HWC uint8[28, 28, 1]
        """
        return cls(*read_mnist(Path(folder), split, in_bytes(memory, "Arrays.mnist: memory")))

    @classmethod
    @checked_early
    def cifar(
        cls, folder: str | os.PathLike[str], split: Literal["train", "test"] = "train"
    ) -> Arrays:
        """CIFAR-10 or CIFAR-100 as downloaded and unpacked, the binary or the Python version.

        Args:
            folder (str | os.PathLike[str]): The folder that holds the files.
            split (str): "train" or "test". Default: "train".

        Returns:
            The images, uint8 (n, 32, 32, 3), with labels and names of classes.

        Raises:
            SourceError: If the files are missing or damaged.

        Example:
            >>> ff.Arrays.cifar("cifar-10-batches-bin")
            Arrays: 50 images of 10 classes, HWC uint8[32, 32, 3]
        """
        images, labels, classes = read_cifar(Path(folder), split)
        return cls(images, labels, classes=classes)

    def __len__(self) -> int:
        return len(self._images)

    def uri(self, i: int) -> str:
        """Name of a sample: `array[i]`."""
        return f"array[{i}]"

    def read(self, ids: Sequence[int]) -> list[Any]:
        """Return views of images, without copies."""
        return [self._images[int(i)] for i in ids]

    def addresses(self, ids: np.ndarray) -> ArrayRows | None:
        """Rows of the array, if it is contiguous in memory and of bytes."""
        is_native = self._images.flags.c_contiguous and self.spec.has_kernel
        return ArrayRows(self._images, ids) if is_native else None

    def label(self, ids: np.ndarray) -> np.ndarray:
        """Labels: int64, shape (len(ids),), or targets as `label_spec` says."""
        return self._labels.take(ids)

    @property
    def fingerprint(self) -> str:
        """Hash of labels and pixels (above 256 MB, of evenly spaced images), made on first use."""
        if not self._fingerprint:
            digest = hashlib.sha256(repr((self._images.shape, self.classes)).encode())
            digest.update(b"" if self.spec.has_kernel else self.spec.dtype.encode())
            for part in self._labels.content(0, len(self)):
                digest.update(part)
            for i in self._fingerprinted():
                digest.update(np.ascontiguousarray(self._images[i]).data)
            self._fingerprint = digest.hexdigest()[:32]
        return self._fingerprint

    def _fingerprinted(self) -> Iterable[int]:
        """Ids of images whose pixels are hashed: all of them, unless that could take hours."""
        count = min(len(self), max(2, _FINGERPRINTED * len(self) // max(self._images.nbytes, 1)))
        if count == len(self):
            return range(len(self))
        return np.linspace(0, len(self) - 1, count).astype(int).tolist()

    def __repr__(self) -> str:
        of_classes = f" of {len(self.classes)} classes" if self.classes else ""
        return f"Arrays: {len(self)} images{of_classes}, {self.spec}"


def _labels(
    labels: Any, samples: int, classes: tuple[str, ...], kind: LabelKind | None
) -> tuple[tuple[str, ...], LabelValues]:
    """Names of classes, and labels; `kind` None: values for floats, class numbers for others."""
    check_label_kind(kind, "Arrays")
    if labels is None or kind == "none":
        return classes, LabelArray(np.full(samples, -1))
    kind = kind or ("value" if _are_floats(labels) else "index")
    if kind in ("value", "multi", "text"):
        classes, values = listed_labels(labels, kind, classes, "Arrays", samples)
        if (missing := values.missing(np.arange(samples))).any():
            raise ConfigError(
                f"Arrays: label_kind={kind!r} needs a label for every image, got none for image"
                f" {int(missing.argmax())}; leave this image out"
            )
        return classes, values
    array = np.asarray(labels)
    if array.shape != (samples,) or array.dtype.kind not in "iu":
        raise ConfigError(
            "Arrays needs one integer label per image, "
            f"got {array.dtype}{list(array.shape)} for {samples} images; pass label_kind='value',"
            " 'multi' or 'text' for targets of another kind",
            field="labels",
        )
    _check_range(array, len(classes))
    return classes, LabelArray(array.astype(np.int64))


def _are_floats(labels: Any) -> bool:
    try:
        return np.asarray(labels).dtype.kind == "f"
    except ValueError:  # lists of several lengths
        return False


def _check_range(labels: np.ndarray, classes: int) -> None:
    """ConfigError for labels that no class has. `classes`: how many; 0: not known."""
    wrong = labels < -1
    if classes:
        wrong = wrong | (labels >= classes)
    if wrong.any():
        i = int(np.argmax(wrong))
        allowed = f"in [0, {classes}) for {classes} classes" if classes else ">= 0"
        raise ConfigError(
            f"Arrays: labels must be {allowed}, or -1 for none, got {labels[i]} for image {i}; "
            "number the classes from 0",
            field="labels",
        )
