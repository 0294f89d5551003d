"""Labels of samples in a source: the number of a class, or those of several classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.preprocess.model.record import Label
from fastfeed.sources.base import Optionals, Source
from fastfeed.spec import LabelSpec

_AT_ONCE = 1 << 24  # numbers of multi-hot vectors


def is_multi(source: Source) -> bool:
    """True if samples have several classes: multi-hot vectors of as many numbers."""
    spec = Optionals(source).label_spec
    return bool(source.classes) and spec == LabelSpec((len(source.classes),), "float32")


def check_labels(source: Source) -> None:
    """ConfigError unless labels are the numbers of classes."""
    spec = Optionals(source).label_spec
    if spec == LabelSpec((0,), "float32"):
        raise ConfigError(
            "preprocess needs a class in at least one of the labels, got only empty lists; correct"
            " the lists, or name another label (--label)",
            field="label",
        )
    if not is_multi(source):
        spec.require_class(
            "preprocess", "open the source without a label, and with columns=[...] for these"
        )


def labels_of(source: Source, ids: Sequence[int] | np.ndarray) -> list[Label]:
    """The label of each sample."""
    ids = np.asarray(ids, np.int64)
    if is_multi(source):
        return list(_lists(source, ids))
    return [label if label >= 0 else None for label in source.label(ids).tolist()]


def _lists(source: Source, ids: np.ndarray) -> Iterator[tuple[int, ...]]:
    step = max(_AT_ONCE // len(source.classes), 1)
    for first in range(0, len(ids), step):
        flags = source.label(ids[first : first + step]) > 0
        classes = np.nonzero(flags)[1].tolist()
        stop = 0
        for count in flags.sum(axis=1).tolist():
            start = stop
            stop += count
            yield tuple(classes[start:stop])


def label_names(label: Label, classes: Sequence[str]) -> list[str]:
    """Names of a label's classes; of a class without a name its number."""
    numbers = label if isinstance(label, tuple) else () if label is None else (label,)
    return [classes[k] if k < len(classes) else str(k) for k in numbers]


def label_codes(source: Source, ids: np.ndarray) -> tuple[np.ndarray, tuple[tuple[int, ...], ...]]:
    """Numbers of labels, equal for equal ones: int64 (n,), -1 for none; and the classes of each.

    Without several classes per sample these are () and a number is that of the class.
    """
    if not is_multi(source):
        return source.label(ids), ()
    return coded(labels_of(source, ids))


def coded(labels: Sequence[Label]) -> tuple[np.ndarray, tuple[tuple[int, ...], ...]]:
    """As `label_codes`, of lists of classes."""
    code: dict[Label, int] = {}
    codes = [code.setdefault(label, len(code)) if label else -1 for label in labels]
    return np.array(codes, np.int64), tuple(code)  # pyright: ignore[reportReturnType]
