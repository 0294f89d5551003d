"""Runs users' functions on fields of finished batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from fastfeed.errors import SampleError
from fastfeed.faults import FaultPolicy, error_text
from fastfeed.ops.map import TEXT, Map
from fastfeed.ops.program.program import Program
from fastfeed.printable import printable
from fastfeed.runtime.batch import Batch
from fastfeed.runtime.timeline import Timeline
from fastfeed.sampling.rng import SLOT_MAP

Uniform = Callable[[int, int], np.ndarray]  # slot, k -> numbers (n, k)


class MapFailed(Exception):
    """A user's function raised, which is the cause; `rows` are those that it named."""

    def __init__(self, op: Map, error: Exception) -> None:
        self.rows = error.rows if isinstance(error, SampleError) else ()
        super().__init__(f"{op!r}: {error}" if self.rows else f"{op!r} raised {error_text(error)}")


@dataclasses.dataclass(frozen=True, slots=True)
class MapRunner:
    """Runs the Maps of a program, and finds the samples that a failing one cannot use."""

    _program: Program
    _policy: FaultPolicy
    _timeline: Timeline
    # the end of an error, "fix the function, ..."
    _hint: str = 'or pass Feed(on_error="bad") to count such samples as bad'

    def __call__(
        self,
        finished: Batch,
        uniform: Uniform,
        number: int,
        known: Collection[int],
        uri: Callable[[int], str],
    ) -> tuple[Batch, dict[int, str]]:
        """The batch after all Maps; or rows to replace with the errors, of which none is `known`.

        number: of the batch, for the timeline. known: rows that have been replaced. uri: of the
        sample in a row.
        """
        maps = self._program.maps
        for op, drawn in zip(maps, map_draws(maps, uniform), strict=True):
            values = [*(finished[name] for name in op.inputs), *drawn]
            try:
                with self._timeline.span("augment", number):
                    finished = _mapped(finished, op, values)
            except MapFailed as error:
                return finished, self._failed(op, values, finished, error, known, uri)
        return finished, {}

    def _failed(
        self,
        op: Map,
        values: Sequence[Any],
        finished: Batch,
        error: MapFailed,
        known: Collection[int],
        uri: Callable[[int], str],
    ) -> dict[int, str]:
        """Rows that a function named, or that fail alone, with the errors; SampleError if none."""
        named = dict.fromkeys(error.rows, str(error))
        rows = named or _failing_rows(op, values, len(finished))
        if outside := [row for row in rows if row not in range(len(finished))]:
            raise SampleError(
                f"{error}; its rows must be integers in [0, {len(finished)}), got {outside}"
            ) from error.__cause__
        fresh = {row: detail for row, detail in rows.items() if row not in known}
        is_bad = bool(error.rows) or self._policy.on_error == "bad"
        if is_bad and fresh and self._program.mix is None:
            return fresh
        raise SampleError(self._advice(rows, finished, error, uri)) from error.__cause__

    def _advice(
        self, bad: dict[int, str], finished: Batch, error: MapFailed, uri: Callable[[int], str]
    ) -> str:
        if not bad:
            return (
                f"{error}, for {len(finished)} samples, but for none of them alone; fix the"
                " function, which gets batches of any length"
            )
        row, detail = next(iter(bad.items()))
        mixed = "a row of mixed samples is none of a bad one"
        hint = self._hint if self._program.mix is None else mixed
        return f"sample {finished.ids[row]}, {uri(row)}: {detail}; fix the function, {hint}"


def map_draws(maps: Sequence[Map], uniform: Uniform) -> list[list[np.ndarray]]:
    """Random numbers of each Map: one more argument of its function, or no argument."""
    drawn: list[list[np.ndarray]] = []
    slot = SLOT_MAP
    for op in maps:
        drawn.append([uniform(slot, op.draws)] if op.draws else [])
        slot -= bool(op.draws)
    return drawn


def _failing_rows(op: Map, values: Sequence[Any], n: int) -> dict[int, str]:
    """Rows for which the function raises when it gets them alone, with its errors."""
    failing = {}
    for row in range(n):
        try:
            _called(op, [value[row : row + 1] for value in values])
        except MapFailed as error:
            failing[row] = str(error)
    return failing


def _mapped(batch: Batch, op: Map, values: Sequence[Any]) -> Batch:
    """A batch with the outputs of a Map.

    MapFailed if its function raises, SampleError for outputs that do not fit the batch.
    """
    results = outputs(op, values, len(batch))
    own = {
        field: results.pop(name)
        for name, field in (("label", "labels"), ("weight", "weights"), ("masks", "masks"))
        if name in results
    }
    if "weights" in own:
        own["weights"] = np.where(batch.weights == 0, np.float32(0), own["weights"])
    return dataclasses.replace(batch, **own, fields={**batch.fields, **results})


def outputs(op: Map, values: Sequence[Any], n: int) -> dict[str, np.ndarray]:
    """Call the function on n rows of its arguments; its outputs as arrays by name."""
    names = op.out_names
    result = _called(op, values)
    if isinstance(result, Mapping):
        if missing := [name for name in names if name not in result]:
            raise SampleError(f"{op!r} returned {list(result)}, without {missing}")
        parts = [result[name] for name in names]
    elif len(names) == 1:
        parts = [result]
    elif isinstance(result, tuple) and len(result) == len(names):
        parts = list(result)
    else:
        got = f"{len(result)}" if isinstance(result, tuple) else type(result).__name__
        raise SampleError(
            f"{op!r} must return a tuple of {len(names)} outputs, or a mapping of them, returned"
            f" {got}"
        )
    specs = zip(names, parts, op.shapes, op.dtypes, strict=True)
    return {name: _checked(op, name, part, n, shape, dtype) for name, part, shape, dtype in specs}


def _called(op: Map, values: Sequence[Any]) -> Any:
    try:
        return op.function(*map(_argument, values))
    except MemoryError:  # says nothing about a sample
        raise
    except Exception as error:  # the feed's policy decides what it means
        raise MapFailed(op, error) from error


def _argument(value: Any) -> Any:
    """A field as a function gets it: texts and objects as a list, numbers read-only."""
    if value.dtype == object:
        return value.tolist()
    view = value[...]
    view.flags.writeable = False
    return view


def _checked(
    op: Map, name: str, value: Any, n: int, shape: tuple[int | None, ...] | None, dtype: str | None
) -> np.ndarray:
    """An output as an array of n rows, of its stated shape and dtype; SampleError."""
    what = f"{op!r}: {name!r}"
    array = _array(what, value)
    if array.ndim == 0 or len(array) != n:
        got = "one value" if array.ndim == 0 else len(array)
        raise SampleError(f"{what} must have {n} rows, as the batch has, got {got}")
    is_text = array.dtype == object and all(isinstance(row, str) for row in array)
    is_ragged = array.dtype == object and not is_text
    if dtype is not None and is_text != (dtype == TEXT):
        raise SampleError(f"{what} must be {dtype}, got {'texts' if is_text else array.dtype}")
    if dtype is not None and is_ragged:
        array = _objects([_converted(what, row, dtype) for row in array])
    elif dtype is not None and not is_text:
        array = _converted(what, array, dtype)
    if shape is not None:
        for row in array if is_ragged else array[:1]:
            _check_shape(what, np.shape(row), shape)
    return array if array.flags.writeable else array.copy()


def _check_shape(what: str, got: tuple[int, ...], shape: tuple[int | None, ...]) -> None:
    sides = zip(shape, got, strict=False)
    if len(got) != len(shape) or any(side not in (None, length) for side, length in sides):
        raise SampleError(f"{what} must have samples of shape {shape}, got {got}")


def _array(what: str, value: Any) -> np.ndarray:
    """Any output as an array: of numbers, or of objects, which are texts or arrays."""
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], str):
        array = _objects(value)
    else:
        try:
            array = np.asarray(value)
        except ValueError:  # rows of different lengths
            array = _objects([np.asarray(row) for row in value])
    if array.dtype.kind == "U":
        array = array.astype(object)
    kinds = (str, np.ndarray)
    if array.dtype.kind in "biuf" or (
        array.dtype == object and all(isinstance(row, kinds) for row in array.flat)
    ):
        return array
    got = printable(repr(value))
    raise SampleError(f"{what} must be numbers, texts or arrays, got {array.dtype}: {got}")


def _objects(values: Sequence[Any]) -> np.ndarray:
    array = np.empty(len(values), object)
    for row, value in enumerate(values):
        array[row] = value
    return array


def _converted(what: str, array: np.ndarray, dtype: str) -> np.ndarray:
    if array.dtype == dtype:
        return array
    with np.errstate(invalid="ignore"):
        converted = array.astype(dtype)
    if converted.dtype.kind in "biu" and not np.array_equal(converted, array):
        raise SampleError(f"{what} has values that {dtype} cannot hold, got {array.dtype}")
    return converted
