"""TFRecord files of tf.train.Examples: random access, without TensorFlow."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from itertools import islice
from typing import Any

import google_crc32c
import numpy as np

from fastfeed.arguments import checked_early
from fastfeed.errors import ConfigError, SourceError
from fastfeed.printable import warn
from fastfeed.runtime.addresses import FileRanges
from fastfeed.sources.label_values import LabelKind, RequestedLabel
from fastfeed.sources.methods import Subset
from fastfeed.sources.shards.base import Paths, ShardedSource
from fastfeed.sources.shards.build_index import ForwardReader
from fastfeed.sources.shards.extra_columns import (
    LARGEST_ARRAY,
    Kind,
    ValueLocation,
    add_row,
    bytes_columns,
    column_names,
)
from fastfeed.sources.shards.index import ScannedLabel, ShardScan, limited
from fastfeed.sources.shards.labels import json_field, label_fields, pack_label, requested_label
from fastfeed.sources.tfrecord.example import LONGEST_NAME, Example, FeatureNames, to_python
from fastfeed.sources.tfrecord.protobuf import LazyMessage, Malformed
from fastfeed.sources.tfrecord.records import HEADER, TAIL, is_intact, records
from fastfeed.sources.tfrecord.tfds import TfdsFolder
from fastfeed.storage.disk_cache import Cache
from fastfeed.storage.expand import SPLIT
from fastfeed.storage.reads import Unread
from fastfeed.storage.storage import Storage, open_storage

_NO_IMAGE = "no record has an image: "  # prefix of a shard's first note
_FILENAME = b"image/filename"
_LOOKED_AT = 100  # records of a shard, for the names in a message


@checked_early
class TFRecords(ShardedSource):
    """Images in TFRecord files of tf.train.Examples, as TensorFlow's scripts write them.

    TensorFlow is not needed. Checksums are verified whenever an image is read. An index is built
    when the shards are first used.

    Args:
        shards (str | os.PathLike[str] | Sequence): Path, pattern (`train-{000..099}.tfrecord`,
            `*-of-01024`), folder, or a list of these, local or remote (`s3://...`).
        image (str): Feature with the encoded image. Default: "image/encoded".
        label (str | Sequence[str] | None): Feature with an integer or a string, or what label_kind
            says, also in a field of JSON ("image/meta:price"); several for label_kind "value" and
            "multi"; None for none. Default: "image/class/label".
        columns (Sequence[str]): Other features that are carried to the batch; "vector:bytes" leaves
            bytes that are not text as they are. Default: ().
        label_kind (str | None): "index": integers are labels already, and `classes` names them;
            "name": they are names of classes, sorted and numbered as texts are. "value": numbers,
            or lists of one length: float32. "multi": lists of
            names, or several features of 0 and 1: multi-hot, float32 (n, classes). "text": texts.
            "none": no labels. Default: None, "index" in a
            feature whose last part is `label` or `cls`, else "name".
        classes (Sequence[str | int] | None): Names of classes in the order of their labels;
            `train.classes` for validation. Default: None, the sorted names of the data.
        storage (dict[str, Any] | Storage | None): Options for fsspec (key, secret, endpoint_url,
            anon ...), or a Storage that several sources share. Default: None.
        cache (str | os.PathLike[str] | Cache | None): Local folder in which what is read from
            remote storage is kept. Default: None, nothing is kept.
        index (str | os.PathLike[str] | None): File of the index of samples. Default: None, next to
            the shards or, where that cannot be written, in FASTFEED_CACHE (`~/.cache/fastfeed`).
        progress (bool | None): Show how far indexing is. Default: None, on a terminal.

    Raises:
        ConfigError: If an argument is wrong.
        SourceError: If shards cannot be read, or no sample has an image or a label.

    Example:
        >>> ff.TFRecords("tfrecord/*.tfrecord")
        TFRecords(tfrecord/s-000.tfrecord and 1 more): 8 images
    """

    suffix = ".tfrecord"
    also = SPLIT
    _label_advice = "pass label='the feature that holds it', or label=None for images without"

    def __init__(
        self,
        shards: Paths,
        *,
        image: str = "image/encoded",
        label: str | Sequence[str] | None = "image/class/label",
        columns: Sequence[str] = (),
        label_kind: LabelKind | None = None,
        classes: Sequence[str | int] | None = None,
        storage: dict[str, Any] | Storage | None = None,
        cache: str | os.PathLike[str] | Cache | None = None,
        index: str | os.PathLike[str] | None = None,
        progress: bool | None = None,
    ) -> None:
        self._columns, self._raw = bytes_columns(column_names(columns, "TFRecords"))
        self._label = requested_label(label, label_kind, "TFRecords")
        features = {"image": [image], "label": self._label.names, "columns": self._columns}
        for option, name in (
            (option, name) for option, names in features.items() for name in names
        ):
            if not (isinstance(name, str) and 0 < len(name.encode()) <= LONGEST_NAME):
                raise ConfigError.of(f"TFRecords: {option}", "the name of a feature", name)
        if google_crc32c.implementation != "c":
            warn(
                "google-crc32c has no compiled part here, so that checking a record takes"
                " milliseconds; pip install --force-reinstall google-crc32c",
                stacklevel=3,
            )
        self._image = image.encode()
        self._feature_names = FeatureNames(self._image)
        super().__init__(
            shards,
            f"tfrecord 2 image {image!r} label {self._label.argument!r}",
            label=self._label,
            as_indices=label_kind == "index",
            classes=classes,
            storage=storage,
            cache=cache,
            index=index,
            progress=progress,
            columns=self._columns,
        )
        self._check_images()

    @classmethod
    @checked_early
    def from_tfds(
        cls,
        folder: str | os.PathLike[str],
        split: str = "train",
        *,
        image: str | None = None,
        label: str | Sequence[str] | None = "auto",
        columns: Sequence[str] = (),
        label_kind: LabelKind | None = None,
        storage: dict[str, Any] | Storage | None = None,
        cache: str | os.PathLike[str] | Cache | None = None,
    ) -> TFRecords | Subset:
        """A data set that TensorFlow Datasets has prepared, which is not needed to read it.

        Args:
            folder (str | os.PathLike[str]): Folder of a version, local or remote, which holds
                dataset_info.json: `data_dir/mnist/3.0.1`.
            split (str): A split or a part of it, as `tfds.load` takes it: "train", "train[:80%]",
                "train[100:200]", "train+test", "all". Default: "train".
            image (str | None): Feature of the image. Default: None, the only one.
            label (str | Sequence[str] | None): Feature of the label, several, or None, as of
                `TFRecords`; "auto" is the class label that `as_supervised=True` gives, or the only
                one, or None without any. Default: "auto".
            columns (Sequence[str]): Other features that are carried to the batch. Default: ().
            label_kind (str | None): As of `TFRecords`. Default: None, "index" of class labels.
            storage (dict[str, Any] | Storage | None): Options for fsspec, or a Storage. Default:
                None.
            cache (str | os.PathLike[str] | Cache | None): Local folder in which what is read from
                remote storage is kept. Default: None.

        Returns:
            The samples in the order of the shards, with the names of classes.

        Raises:
            ConfigError: If an argument is wrong, or several features could be meant.
            SourceError: If the folder or its shards cannot be read.

        Example:
            >>> ff.TFRecords.from_tfds("tfds/pets/1.0.0", "train[:50%]").classes
            ('cat', 'dog')
        """
        store = open_storage(storage, cache)
        data = TfdsFolder(os.fspath(folder).removeprefix("file://"), store)
        files, ids, total = data.samples(split)
        label = data.label() if label == "auto" else label
        classes = data.classes(label) if isinstance(label, str) else None
        source = cls(
            files,
            image=image or data.image(),
            label=label,
            columns=columns,
            label_kind="index" if label_kind is None and classes is not None else label_kind,
            classes=classes or None,
            storage=store,
        )
        if np.array_equal(ids, np.arange(total)):
            return source
        if len(source) != total:
            raise SourceError(
                f"TFRecords.from_tfds: the shards of {split} have {len(source)} samples, {total} in"
                " dataset_info.json: parts of them are unknown; prepare the data set again"
            )
        return source.take(ids)

    def _scan(self, reader: ForwardReader) -> ShardScan:
        scanner = _ShardScanner(reader, self._image, self._label)
        for offset, length in records(reader, scanner.structure):
            scanner.add(offset, length)
        return scanner.end()

    def _scan_columns(self, reader: ForwardReader) -> ShardScan:
        scan = ShardScan()
        names = {name: name.encode() for name in self._columns}
        features = FeatureNames(*names.values())
        for offset, length in records(reader, []):
            start = offset + HEADER
            stop = offset + length - TAIL
            locations: dict[str, ValueLocation] | None = None
            with contextlib.suppress(Malformed):
                example = Example(LazyMessage(reader.read, stop), start, stop, features)
                bounds = {name: example.feature(key) for name, key in names.items()}
                locations = {
                    name: ValueLocation(place[0], place[1] - place[0])
                    for name, place in bounds.items()
                    if place
                }
            add_row(scan, self._columns, locations)
        return scan

    def _names_in(self, reader: ForwardReader) -> list[str]:
        names: set[str] = set()
        for offset, length in islice(records(reader, []), _LOOKED_AT):
            start = offset + HEADER
            stop = offset + length - TAIL
            with contextlib.suppress(Malformed):
                names.update(
                    Example(
                        LazyMessage(reader.read, stop), start, stop, self._feature_names
                    ).names()
                )
        return sorted(names)

    def _value(self, name: str, data: bytes) -> Any:
        return to_python(data, text=name not in self._raw)

    def _kind(self, name: str) -> Kind:
        return "bytes" if name in self._raw else "feature"

    def _largest(self, name: str) -> int:
        return LARGEST_ARRAY  # may be a list of numbers

    def _cuts(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        starts = self._index.offsets[ids]
        return starts + HEADER, starts + HEADER, starts + self._index.lengths[ids]

    def addresses(self, ids: np.ndarray) -> FileRanges | None:
        """Local records; None for remote shards."""
        return self._addresses(
            ids, checks=self._index.checks[ids], feature=self._feature_names.heads[0]
        )

    def _unwrap(self, i: int, head: bytes, data: bytes) -> bytes | Unread:
        check = int(self._index.checks[i])
        if not is_intact(data):
            return Unread("corrupt", "the record's checksum is wrong")
        if check and int.from_bytes(data[-TAIL:], "little") != check:
            return Unread("changed", "the record has changed since it was indexed")
        try:
            first, last = Example(
                LazyMessage.of(data), 0, len(data) - TAIL, self._feature_names
            ).image(self._image)
        except Malformed as error:
            return Unread("corrupt", str(error))
        return data[first:last]

    def _check_images(self) -> None:
        """Raise an error if no record has an image: the name is wrong, the file is not damaged."""
        notes = self._index.notes
        sizes = np.diff(self._index.bounds)
        firsts = [note[0] if note else "" for note, size in zip(notes, sizes, strict=True) if size]
        if all(first.startswith(_NO_IMAGE) for first in firsts):
            raise SourceError(f"TFRecords: {firsts[0]}; pass image='the feature that holds it'")


class _ShardScanner:
    """Scans the records of one shard."""

    def __init__(self, reader: ForwardReader, image: bytes, label: RequestedLabel) -> None:
        self.structure: list[str] = []
        self._contents: list[str] = []
        self._reader = reader
        self._image = image
        self._label = label
        self._label_fields = [(name.encode(), field) for name, field in label_fields(label)]
        self._feature_names = FeatureNames(image, *dict(self._label_fields), _FILENAME)
        self._scan = ShardScan()
        self._images = 0
        self._reason = ""
        self._verified: set[Any] = set()

    def add(self, offset: int, length: int) -> None:
        """Add the record at an offset."""
        label = None
        name = b""
        check = 0
        if offset + length <= self._reader.size:
            try:
                label, name = self._read(offset, length)
            except Malformed as error:
                self._reason = self._reason or str(error)
                self._contents.append(f"no tf.train.Example at {offset}: {error}")
            check = int.from_bytes(self._reader.read(offset + length - TAIL, TAIL), "little")
        self._scan.add(offset, length, label, name or b"%06d" % len(self._scan.offsets), check)

    def end(self) -> ShardScan:
        """Return the scanned samples and notes."""
        all_lack = []
        if self._scan.offsets and not self._images:
            all_lack = [_NO_IMAGE + (self._reason or "all are cut off")]
        self._scan.notes = all_lack + limited(self.structure) + limited(self._contents)
        return self._scan

    def _read(self, offset: int, length: int) -> tuple[ScannedLabel, bytes]:
        """Label and name. The image is skipped."""
        start = offset + HEADER
        stop = offset + length - TAIL
        example = Example(LazyMessage(self._reader.read, stop), start, stop, self._feature_names)
        label = None
        name = b""
        try:
            example.image(self._image)
            self._images += 1
        except Malformed as error:
            self._reason = self._reason or str(error)
            self._contents.append(f"no image at {offset}: {error}")
        if self._label.names:
            try:
                label = self._label_in(example, offset, length)
            except ValueError as error:
                self._contents.append(f"no label at {offset}: {error}")
        with contextlib.suppress(Malformed):  # it has no other use than to be shown
            name = example.file(_FILENAME)
        return label, name

    def _label_in(self, example: Example, offset: int, length: int) -> ScannedLabel:
        """The label of a record. ValueError."""
        if self._label.is_class:
            label = example.label(self._label_fields[0][0])
            self._verify([label], offset, length)
            return label
        values = [example.value(name) for name, _ in self._label_fields]
        for k, (_, field) in enumerate(self._label_fields):
            values[k] = json_field(json.loads(values[k]), field) if field else values[k]
        if self._label.kind == "multi" and not self._label.several:
            names = values[0]
            names = names.tolist() if isinstance(names, (np.ndarray, np.generic)) else names
            values = [names if isinstance(names, list) else [names]]
            self._verify(values[0], offset, length)
        return pack_label(self._label, values)

    def _verify(self, labels: Sequence[Any], offset: int, length: int) -> None:
        """Check the record's checksum for each new label; a damaged one would be a new class."""
        if self._verified.issuperset(labels):
            return
        if not is_intact(self._reader.read(offset + HEADER, length - HEADER)):
            raise Malformed("the record's checksum is wrong")
        self._verified.update(labels)
