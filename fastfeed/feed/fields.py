"""Fields of a feed's batches: names, shapes and dtypes, before any image is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from fastfeed.errors import ConfigError, SampleError
from fastfeed.faults import Failure, ends_run
from fastfeed.feed.batch.annotations import annotator, check_transforms, field_specs
from fastfeed.feed.batch.maps import MapFailed, map_draws, outputs
from fastfeed.ops.program.program import Program
from fastfeed.runtime.batch import UnknownField, column_field
from fastfeed.sampling.rng import uniform
from fastfeed.sources.base import Optionals
from fastfeed.sources.column_arrays import as_array

if TYPE_CHECKING:  # TensorFlow is imported by type checkers only
    from tensorflow.data import Dataset as Dataset
else:
    Dataset = Any

# a field's name, or a tuple, list or dict of these, nested
Yields = str | tuple[Any, ...] | list[Any] | Mapping[Any, Any]

Item_co = TypeVar("Item_co", covariant=True)

_PROBED = 16  # samples that tell the type of a column whose source does not
_OBJECTS = {str: "str", bytes: "bytes"}


class Loader(Protocol[Item_co]):
    """A feed in a framework's arrays: an iteration yields the items of one epoch."""

    def __iter__(self) -> Iterator[Item_co]: ...

    def __len__(self) -> int: ...

    def __getattr__(self, name: str) -> Any: ...  # what trainers of that framework ask for


@dataclass(frozen=True, slots=True)
class Field:
    """Name, shape and dtype of one array of a batch.

    Args:
        name (str): As in `Batch` and in `yields`.
        shape (tuple[int | None, ...]): Shape of one sample; None for a length that differs between
            samples, or from batch to batch.
        dtype (str): Of NumPy, such as "float32"; "str" for texts, "bytes" for bytes and "object"
            for other values, which are NumPy arrays of objects on the host.
        largest (tuple[int, ...] | None): Shape of one sample in the largest batch, if all samples
            of a batch have one shape that differs from batch to batch. Default: None.

    Example:
        >>> feed = ff.Feed(ff.Arrays(np.zeros((4, 8, 8, 3), np.uint8)), [], batch=2)
        >>> feed.fields["image"]
        Field(name='image', shape=(8, 8, 3), dtype='uint8')
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: str
    largest: tuple[int, ...] | None = None

    def __repr__(self) -> str:
        more = "" if self.largest is None else f", largest={self.largest!r}"
        return f"Field(name={self.name!r}, shape={self.shape!r}, dtype={self.dtype!r}{more})"

    @property
    def is_array(self) -> bool:
        """True for numbers of one shape in a batch, which frameworks have tensors for."""
        is_of_one_shape = None not in self.shape or self.largest is not None
        return self.dtype not in ("str", "bytes", "object") and is_of_one_shape

    @property
    def nbytes(self) -> int:
        """Bytes of one sample, of the largest batch; 0 if they differ between samples."""
        size = math.prod(side or 0 for side in self.largest or self.shape)
        return size * np.dtype(self.dtype).itemsize if self.is_array else 0

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Test the shape of samples in a batch against this field.

        Args:
            shape (tuple[int, ...]): Shape of one sample in a batch.

        Returns:
            True if it is the field's, whose lengths of None are any.

        Example:
            >>> feed = ff.Feed(ff.Arrays(np.zeros((4, 8, 8, 3), np.uint8)), [], batch=2)
            >>> feed.fields["image"].fits((8, 8, 1))
            False
        """
        sides = zip(self.shape, shape, strict=False)
        return len(shape) == len(self.shape) and all(want in (None, got) for want, got in sides)


def known_fields(source: Any, program: Program) -> dict[str, Field | None]:
    """Fields by name, and None for columns that have to be read first: see `read_fields`."""
    sized = [_fields_of_one_size(source, part) for part in program.sized]
    known = _of_sizes(sized) | _known_columns(source)
    check_transforms(program, known, repr(source))
    known |= _of_sizes([_transform_fields(part) for part in program.sized])
    for op in program.maps:
        if unknown := [name for name in op.inputs if name not in known]:
            raise UnknownField(unknown[0], known, f"{op!r}: a batch")
        if images := sorted({*op.out_names} & {*image_names(program)}):
            raise ConfigError(f"{op!r} cannot replace {images[0]!r}, an image; use another name")
        for name, shape, dtype in zip(op.out_names, op.shapes, op.dtypes, strict=True):
            known[name] = None if shape is None or dtype is None else Field(name, shape, dtype)
    return known


def _of_sizes(sized: Sequence[Mapping[str, Field]]) -> dict[str, Field]:
    """Fields of batches of all sizes, from those of each size."""
    return {name: _field_of_sizes([fields[name] for fields in sized]) for name in sized[0]}


def _field_of_sizes(fields: Sequence[Field]) -> Field:
    """A field that batches of several sizes have."""
    if len({(len(field.shape), field.dtype) for field in fields}) > 1:
        raise ConfigError(
            f"the field {fields[0].name!r} must have one dtype and number of dimensions, got"
            f" {fields} of batches of several sizes; return arrays of the same kind from its Map"
        )
    sides = zip(*(field.shape for field in fields), strict=True)
    shape = tuple(same[0] if len({*same}) == 1 else None for same in sides)
    if shape == fields[0].shape:
        return fields[0]
    largest = max(fields, key=lambda field: field.nbytes).shape
    return replace(fields[0], shape=shape, largest=largest)


def _fields_of_one_size(source: Any, program: Program) -> dict[str, Field]:
    branches = zip(image_names(program), (program, *program.others), strict=True)
    fields = [
        *(Field(name, branch.shape, branch.spec.dtype) for name, branch in branches),
        Field("label", *program.label),
        Field("weight", (), "float32"),
        Field("id", (), "int64"),
        *(Field(name, *spec) for name, spec in annotator(source, program).specs.items()),
        *_view_fields(program),
    ]
    return {field.name: field for field in fields}


def _transform_fields(program: Program) -> dict[str, Field]:
    """Fields that say what was done to each image."""
    return {name: Field(name, *spec) for name, spec in field_specs(program).items()}


def image_names(program: Program) -> list[str]:
    """Names of the arrays of images: one for each size of views, or for each of several images."""
    if program.image:
        return [branch.image for branch in (program, *program.others)]
    return ["image", *(f"image_{size}" for size in range(1, 1 + len(program.others)))]


def read_fields(source: Any, program: Program, known: dict[str, Field | None]) -> dict[str, Field]:
    """The fields with columns that are read from storage, and with outputs of Maps."""
    read = {}
    if None in known.values():
        rows = _good_rows(Optionals(source).column_values, _probed(source))
        names = rows[0] if rows else ()
        values = {column_field(name): [row[name] for row in rows] for name in names}
        read = {name: _column(name, as_array(column)) for name, column in values.items()}
    fields = {
        name: field or read.get(name, Field(name, (), "object")) for name, field in known.items()
    }
    outputs_known = all(known[name] is not None for op in program.maps for name in op.out_names)
    return fields if outputs_known else fields | _map_fields(source, program)


def _map_fields(source: Any, program: Program) -> dict[str, Field]:
    """Outputs of Maps as these are for some samples, or for one, with zeros for pixels and boxes."""
    rows = _sample_rows(source, program)
    try:
        return _of_sizes([_sampled_map_fields(source, part, rows) for part in program.sized])
    except ConfigError:
        return _of_sizes([_sampled_map_fields(source, part, rows[:1]) for part in program.sized])


def _sampled_map_fields(
    source: Any, program: Program, rows: Sequence[Mapping[str, Any]]
) -> dict[str, Field]:
    n = len(rows)
    fields = _fields_of_one_size(source, program) | _transform_fields(program)
    values: dict[str, Any] = {
        name: np.broadcast_to(np.zeros((), field.dtype), (n, *(side or 0 for side in field.shape)))
        for name, field in fields.items()
        if field.is_array
    }
    values |= {name: as_array([row[name] for row in rows]) for name in rows[0]}
    found = {}
    numbers = map_draws(program.maps, partial(uniform, 0, 0, values["id"]))
    for op, drawn in zip(program.maps, numbers, strict=True):
        try:
            results = outputs(op, [*(values[name] for name in op.inputs), *drawn], n)
        except (MapFailed, SampleError) as error:
            raise ConfigError(
                f"the shape of an output is not known: {error}, with zeros for"
                " pixels and boxes; pass its shape= and dtype="
            ) from error
        values |= results
        for name, shape, dtype in zip(op.out_names, op.shapes, op.dtypes, strict=True):
            column = _column(name, results[name])
            known = column.shape if shape is None else shape
            found[name] = Field(name, known, dtype or column.dtype)
    return found


def _sample_rows(source: Any, program: Program) -> list[dict[str, Any]]:
    """Label, weight, id and columns of good samples."""
    optionals = Optionals(source)

    def read(ids: list[int]) -> list[dict[str, Any]]:
        rows = optionals.column_values(ids)
        if rows is None:
            columns = optionals.columns(np.array(ids))
            rows = [{name: columns[name][row] for name in columns} for row in range(len(ids))]
        labels = source.label(np.array(ids))
        soft = program.targets
        values = labels if soft is None else soft.of(labels)
        return [
            {column_field(name): value for name, value in row.items()}
            | {"label": label, "id": np.int64(id), "weight": np.float32(1)}
            for id, label, row in zip(ids, values, rows, strict=True)
            if not any(isinstance(value, Failure) for value in row.values())
        ]

    if rows := _good_rows(read, _probed(source)):
        return rows
    raise ConfigError(f"{source!r} has no sample whose label and columns can be read")


def view_names(program: Program) -> list[str]:
    """Names of fields that are parts of others: single views, or the first of several images."""
    return [field.name for field in _view_fields(program)]


def _view_fields(program: Program) -> list[Field]:
    branches = [branch for branch in (program, *program.others) for _ in range(branch.views)]
    first = [Field("image", program.shape, program.spec.dtype)]
    return [
        Field(f"view_{number}", branch.shape[1:], branch.spec.dtype)
        for number, branch in enumerate(branches)
    ] + (first if program.image not in ("", "image") else [])


def _known_columns(source: Any) -> dict[str, Field | None]:
    optionals = Optionals(source)
    columns = optionals.columns(np.empty(0, np.int64))
    names = {name: column_field(name) for name in columns}
    if optionals.column_values([]) is not None:
        return dict.fromkeys(names.values())
    if any(array.dtype == object for array in columns.values()):
        rows = _good_rows(lambda ids: [optionals.columns(np.array(ids))], _probed(source))
        columns = rows[0] if rows else columns
    return {names[name]: _column(names[name], array) for name, array in columns.items()}


def _probed(source: Any) -> list[int]:
    """Ids of samples all over the source."""
    return np.unique(np.linspace(0, len(source) - 1, _PROBED, dtype=np.int64)).tolist()


def _good_rows(read: Callable[[list[int]], Sequence[Any] | None], ids: list[int]) -> list[Any]:
    """Read all at once, or one by one without those that raise an error."""
    try:
        return list(read(ids) or ())
    except Exception as error:  # a source may raise anything
        if ends_run(error):
            raise
        return [] if len(ids) == 1 else [row for id in ids for row in _good_rows(read, [id])]


def _column(name: str, values: np.ndarray) -> Field:
    """The field of a column with such values."""
    if values.dtype != object:
        return Field(name, values.shape[1:], str(values.dtype))
    kinds = {type(value) for value in values}
    if len(kinds) == 1 and (kind := kinds.pop()) in _OBJECTS:
        return Field(name, (), _OBJECTS[kind])
    arrays = [np.asarray(value) for value in values if isinstance(value, (np.ndarray, list))]
    if len(arrays) == len(values) and len({array.ndim for array in arrays}) == 1:
        dtype = np.result_type(*arrays)
        if dtype.kind in "biuf":
            return Field(name, (None,) * arrays[0].ndim, str(dtype))
    return Field(name, (), "object")
