"""Arrays and texts that a user's function adds to samples: embeddings, latents, scores, captions.

    def embed(samples):  # in features.py, for Metadata(extras="features:embed")
        return [{"clip": model(sample.pixels), "text": sample.uri} for sample in samples]

A class is created once per worker process and its objects are called, so that a model is loaded
once.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from PIL import Image

from fastfeed.errors import ConfigError
from fastfeed.preprocess.model.columns import canonical
from fastfeed.preprocess.model.recipe import EXIF_FIELDS
from fastfeed.preprocess.model.record import Entry, Label
from fastfeed.preprocess.model.task import SampleFault
from fastfeed.runtime.import_path import error_text, find_function
from fastfeed.sources.tables.column_types import ColumnType

MAX_BYTES = 16 << 20  # of an array
_LONGEST_REASON = 200  # characters
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_MEMBERS = frozenset({"cls", "json", "txt", "npy", "image", "extension", "height", "width"})
_FIELDS = frozenset({"label", "labels", "class", "uri", "meta", "key"})
_TAKEN = _MEMBERS | _FIELDS | {f"exif_{name}" for name in EXIF_FIELDS}
_FLOATS = ("float16", "float32", "float64")
_INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
_DTYPES = (*_FLOATS, *_INTEGERS)


@dataclass(frozen=True)
class Sample:
    """A sample, as passed to a function of `Metadata(extras=...)`.

    Args:
        data (bytes): The image as it is in the shard: a JPEG, WebP, PNG or .npy file.
        extension (str): "jpg", "webp", "png" or "npy".
        height (int): Pixels.
        width (int): Pixels.
        uri (str): The source file, as in the sample's metadata.
        label (int | tuple[int, ...] | None): Number of its class, or those of several. Default:
            None.
        text (str | None): Its caption. Default: None.
        columns (dict[str, Any]): Its metadata columns. Default: {}.

    Example:
        >>> from pathlib import Path
        >>> from fastfeed.preprocess import Sample
        >>> sample = Sample(Path("photos/cat/0000.jpg").read_bytes(), "jpg", 40, 56, "cat/0000.jpg")
        >>> sample.pixels.shape
        (40, 56, 3)
    """

    data: bytes
    extension: str
    height: int
    width: int
    uri: str
    label: Label = None
    text: str | None = None
    columns: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def pixels(self) -> np.ndarray:
        """The image, decoded: uint8 (height, width, 3), RGB."""
        file = io.BytesIO(self.data)
        if self.extension == "npy":
            return np.load(file, allow_pickle=False)
        with Image.open(file) as image:
            return np.asarray(image.convert("RGB"))


@dataclass(frozen=True, slots=True)
class Drop:
    """Result of a function of `Metadata(extras=...)` for a sample that it leaves out.

    Args:
        reason (str): Why, in a few words without numbers, as samples are counted by it: "blurred".
            At most 200 characters.

    Raises:
        ConfigError: If `reason` is not a text, or is empty or too long.

    Example:
        >>> from fastfeed.preprocess import Drop
        >>> Drop("blurred")
        Drop(reason='blurred')
    """

    reason: str

    def __post_init__(self) -> None:
        if not isinstance(self.reason, str) or not 0 < len(self.reason) <= _LONGEST_REASON:
            allowed = f"a text of 1 to {_LONGEST_REASON} characters"
            raise ConfigError.of("Drop: reason", allowed, self.reason)


@dataclass(frozen=True, slots=True)
class UserColumns:
    """Arrays, columns and caption that a function returned for one sample."""

    arrays: dict[str, np.ndarray] = field(default_factory=dict)  # little endian, C order
    columns: dict[str, Any] = field(default_factory=dict)  # JSON values
    text: str | None = None  # a caption


class UserFunction:
    """The function in `Metadata.extras`, found and checked; faults name it and the sample."""

    def __init__(self, name: str) -> None:
        self.name = name
        found = find_function(name, "extras")
        try:
            self._function = found() if isinstance(found, type) else found
        except Exception as error:  # the user's code
            raise ConfigError(f"{name}() raised {error_text(error)}") from error

    def __call__(self, samples: Sequence[Sample]) -> list[UserColumns | Drop | SampleFault]:
        """Results by sample; if the function raises for several, it is called for each alone."""
        try:
            results = self._function(list(samples))
            results = None if isinstance(results, (str, Mapping, Drop)) else list(results)
        except Exception as error:  # the user's code
            if len(samples) > 1:
                return [self([sample])[0] for sample in samples]
            fault = SampleFault(f"{self.name} raised {error_text(error)}, for {samples[0].uri}")
            fault.__cause__ = error
            return [fault]
        if results is None or len(results) != len(samples):
            got = "a single object" if results is None else len(results)
            raise ConfigError(
                f"{self.name} must return one mapping or Drop per sample, {len(samples)} here, got"
                f" {got}"
            )
        return [
            self._checked(result, sample) for result, sample in zip(results, samples, strict=True)
        ]

    def _checked(self, result: Any, sample: Sample) -> UserColumns | Drop | SampleFault:
        if isinstance(result, Drop):
            return result
        try:
            return self._added(result, sample)
        except SampleFault as fault:
            return fault
        except Exception as error:  # objects of the user's
            raised = f"{self.name} returned what raised {error_text(error)}"
            return SampleFault(f"{raised}, for {sample.uri}")

    def _added(self, result: Any, sample: Sample) -> UserColumns:
        if not isinstance(result, Mapping):
            got = type(result).__name__
            raise self._wrong(
                sample, f"must return mappings of names to values, or Drop, got {got}"
            )
        added = UserColumns()
        text = None
        for name, value in result.items():
            if name == "text":
                if not isinstance(value, str):
                    got = type(value).__name__
                    raise self._wrong(sample, f"'text' must be a string, got {got}")
                text = value
                continue
            if problem := _name_problem(name):
                raise self._wrong(sample, problem)
            if isinstance(value, np.ndarray) and value.ndim:
                added.arrays[name] = self._array(name, value, sample)
            else:
                added.columns[name] = self._column(name, value, sample)
        return UserColumns(added.arrays, added.columns, text)

    def _array(self, name: str, value: np.ndarray, sample: Sample) -> np.ndarray:
        value = value.astype(np.uint8) if value.dtype == bool else value
        if value.dtype.name not in _DTYPES or not value.size or value.nbytes > MAX_BYTES:
            raise self._wrong(
                sample,
                f"{name!r} must be an array of {', '.join(_DTYPES)}, of 1 to {MAX_BYTES:,} bytes, "
                f"got {value.dtype} {value.shape}",
            )
        return np.ascontiguousarray(value, value.dtype.newbyteorder("<"))

    def _column(self, name: str, value: Any, sample: Sample) -> Any:
        value = value.item() if isinstance(value, (np.generic, np.ndarray)) else value
        try:
            return json.loads(json.dumps(value), parse_constant=lambda _: None)  # NaN and infinity
        except (TypeError, ValueError) as error:
            wanted = "a NumPy array, a text, a number, or what JSON can hold"
            raise self._wrong(sample, f"{name!r} must be {wanted}: {error}") from error

    def _wrong(self, sample: Sample, text: str) -> SampleFault:
        return SampleFault(f"{self.name}: {text}, for {sample.uri}")


def to_sample(entry: Entry) -> Sample:
    """An entry, as the function is given it."""
    meta = entry.meta
    return Sample(
        entry.image,
        entry.extension,
        entry.height,
        entry.width,
        meta["uri"],
        entry.label,
        entry.text,
        {**meta.get("columns", {}), **entry.blobs},
    )


def extended(
    entry: Entry, added: UserColumns, types: Mapping[str, ColumnType]
) -> Entry | SampleFault:
    """The entry with the columns returned for it; those of the source keep their types."""
    meta = entry.meta
    for name in sorted(added.columns.keys() & types.keys()):
        try:
            added.columns[name] = canonical(types[name], added.columns[name])
        except ValueError as error:
            return SampleFault(f"{name}: {error}, for {meta['uri']}")
    if added.columns:
        meta = meta | {"columns": meta.get("columns", {}) | added.columns}
    text = entry.text if added.text is None else added.text
    return replace(entry, meta=meta, text=text, arrays=added.arrays)


def _name_problem(name: Any) -> str:
    """The problem with the name of an array or column, or ""."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"names must be lower-case letters, digits and _, 40 at most, got {name!r}"
    return f"the name {name!r} is that of another part of a sample" if name in _TAKEN else ""
