"""Functions on named fields of whole batches, as ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.ops.base import Kind, check_integer
from fastfeed.ops.function import MOST_DRAWS
from fastfeed.printable import function_name
from fastfeed.runtime.batch import column_field
from fastfeed.spec import Spec

__all__ = ["Map"]

REPLACED = ("label", "weight", "masks")  # fields of every batch that a Map may give new values
TEXT = "str"  # dtype of texts
_SIZES = {"int": (8, 16, 32, 64), "uint": (8, 16, 32, 64), "float": (16, 32, 64)}
_NUMBERS = ("bool", *(f"{kind}{bits}" for kind, sizes in _SIZES.items() for bits in sizes))


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Map:
    """Your own function on fields of a whole batch: tokens of captions, `label - 1`, class maps.

    It is called once per batch, in the feed's threads, after the images are finished and mixed,
    and sees what the trainer sees. It may be anywhere in the list; several run in their order, and
    a later one may take what an earlier one gave. Calls for several batches may overlap.

    The function gets the values of its fields as positional arguments: NumPy arrays of n rows,
    which it must not change, and a list of n for texts and other objects. With `draws`, random
    numbers follow as the last one, a pure function of seed, epoch and sample. It returns n values per
    output: an array, a list of numbers, of texts, or of arrays of different lengths; for several
    outputs a tuple of these, or a mapping that has them by name, as tokenizers do.

    If it raises, the feed raises SampleError with that error as its cause. Under
    `Feed(on_error="bad")` it is called again for each sample alone, and those that raise count as
    bad, with the reason `op_failed`. The function can also name bad samples itself:
    `raise ff.errors.SampleError("no such word", rows=[3])`. The batch is then finished with others
    in their place, as `Feed(on_bad=...)` says. Where samples are mixed, any error is raised.

    Args:
        function (Callable): Takes a value per input, returns one per output.
        *inputs (str): Names of fields: a key of `feed.fields`, or an output of an earlier Map. At
            least one, unless it draws numbers.
        out (str | Sequence[str]): Names of its outputs. "label", "weight" and "masks" replace these
            fields (weights are float32, 0 for padding and masked samples); a column's name replaces the
            column in the batch's fields; other names are new fields.
        shape (tuple | Mapping | None): Shape of one sample, () for a number or text, None for a
            length that differs; a mapping has one per output. Default: None, found when somebody
            asks for `feed.fields`: by a call with label, weight, id and columns of up to 16
            samples (of one, if that fails), and zeros for pixels and boxes.
        dtype (str | Mapping | None): Dtype to convert to, a NumPy name or "str"; a mapping has one
            per output. Default: None, that of the values.
        draws (int): Random numbers per sample, in [0, 65536]: the function's last argument is then
            float64 (n, draws) in [0, 1). Default: 0.

    Raises:
        ConfigError: If `function` is not callable, `draws` is out of range, or a name, shape or
            dtype is not one.

    Example:
        >>> source = ff.Arrays(np.zeros((2, 1, 1, 3), np.uint8), [1, 2])
        >>> ops = [ff.Map(lambda label: label - 1, "label", out="label")]
        >>> next(iter(ff.Feed(source, ops, batch=2, shuffle=False))).labels
        array([0, 1])
    """

    function: Callable[..., Any]
    inputs: tuple[str, ...]
    out_names: tuple[str, ...]
    shapes: tuple[tuple[int | None, ...] | None, ...]  # per output
    dtypes: tuple[str | None, ...]
    draws: int

    kind: ClassVar[Kind] = "map"

    def __init__(
        self,
        function: Callable[..., Any],
        *inputs: str,
        out: str | Sequence[str],
        shape: Any = None,
        dtype: Any = None,
        draws: int = 0,
    ) -> None:
        names: tuple[Any, ...] = tuple(out) if isinstance(out, (tuple, list)) else (out,)
        if not callable(function):
            raise ConfigError(f"Map needs a function of whole batches, got {function!r}")
        _check_names(inputs, names, bool(draws))
        check_integer("Map draws", draws, 0, MOST_DRAWS)
        values = {
            "function": function,
            "inputs": inputs,
            "out_names": names,
            "shapes": tuple(map(_shape, names, _per_output("shape", shape, names))),
            "dtypes": tuple(map(_dtype, names, _per_output("dtype", dtype, names))),
            "draws": draws,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of the constructor by name, for `save_ops`; those of `*inputs` as a tuple."""
        return {
            "function": self.function,
            "inputs": self.inputs,
            "out": self.out_names,
            "shape": dict(zip(self.out_names, self.shapes, strict=True)),
            "dtype": dict(zip(self.out_names, self.dtypes, strict=True)),
            "draws": self.draws,
        }

    def out(self, spec: Spec) -> Spec:
        return spec

    def __repr__(self) -> str:
        parts = [function_name(self.function), *map(repr, self.inputs)]
        options = {"out": self.out_names, "shape": self.shapes, "dtype": self.dtypes}
        for name, values in options.items():
            if any(value is not None for value in values):
                parts.append(f"{name}={values[0] if len(values) == 1 else values!r}")
        if self.draws:
            parts.append(f"draws={self.draws}")
        return f"Map({', '.join(parts)})"


def _check_names(inputs: Sequence[Any], out: Sequence[Any], draws: bool) -> None:
    for what, names in (("inputs", inputs), ("out", out)):
        is_missing = not names and not (draws and what == "inputs")
        if is_missing or not all(isinstance(name, str) and name for name in names):
            raise ConfigError.of(
                f"Map {what}",
                "names of fields, one or more",
                tuple(names),
                'write Map(function, "caption", out="tokens")',
            )
    if len(set(out)) < len(out):
        raise ConfigError.of("Map out", "names, each once", tuple(out))
    for name in out:
        if name not in REPLACED and column_field(name) != name:
            raise ConfigError(
                f"Map cannot replace {name!r}; it can replace {', '.join(REPLACED)} and columns:"
                f" use another name, such as out={name + '_mapped'!r}"
            )


def _per_output(option: str, value: Any, names: Sequence[str]) -> list[Any]:
    """The value of an option for each output."""
    if not isinstance(value, Mapping):
        return [value] * len(names)
    if unknown := [name for name in value if name not in names]:
        raise ConfigError(f"Map {option} names {unknown!r}, the outputs are {tuple(names)!r}")
    return [value.get(name) for name in names]


def _shape(name: str, shape: Any) -> tuple[int | None, ...] | None:
    if shape is None:
        return () if name == "weight" else None
    sides = shape if isinstance(shape, (tuple, list)) else (shape,)
    if not all(side is None or (type(side) is int and side >= 0) for side in sides):
        raise ConfigError.of(
            "Map shape",
            "the shape of one sample, such as () or (77,), None for a length that differs",
            shape,
        )
    return tuple(sides)


def _dtype(name: str, dtype: Any) -> str | None:
    if name == "weight":
        return "float32"
    if dtype is None:
        return None
    if dtype is str:
        return TEXT
    if isinstance(dtype, (type, np.dtype)) and np.dtype(dtype).name in _NUMBERS:
        return np.dtype(dtype).name
    if not isinstance(dtype, str) or dtype not in (TEXT, *_NUMBERS):
        raise ConfigError.of("Map dtype", f'"str", {", ".join(_NUMBERS)}', dtype)
    return dtype
