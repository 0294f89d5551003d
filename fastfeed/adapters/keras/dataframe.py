"""Keras's function that makes a data set of a table, with a feed behind it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from fastfeed.adapters.keras.forms import check_split, image_ops, label_ops, make_dataset
from fastfeed.arguments import checked
from fastfeed.errors import ConfigError, SourceError
from fastfeed.feed import Feed
from fastfeed.printable import warn
from fastfeed.sources import Table
from fastfeed.sources.label_values import LabelKind

_FORMATS = (".png", ".jpg", ".jpeg", ".bmp", ".ppm", ".tif", ".tiff")  # that Keras takes here
ClassMode = Literal["binary", "categorical", "input", "multi_output", "raw", "sparse"]


@checked
def flow_from_dataframe(
    dataframe: Any,
    directory: str | os.PathLike[str] | None = None,
    x_col: str = "filename",
    y_col: str | Sequence[str] = "class",
    weight_col: str | None = None,
    target_size: Any = (256, 256),
    color_mode: Literal["rgb", "grayscale"] = "rgb",
    classes: Sequence[str] | None = None,
    class_mode: ClassMode | None = "categorical",
    batch_size: int = 32,
    shuffle: bool = True,
    seed: int | None = None,
    subset: Literal["training", "validation"] | None = None,
    interpolation: str = "nearest",
    validate_filenames: bool = True,
    *,
    validation_split: float | None = None,
) -> Any:
    """The data that `flow_from_dataframe` of Keras makes, with a feed behind it.

    Rows, classes, sides of a split, shapes and values are those of Keras; images are scaled as
    Pillow does. Random transforms and `rescale` of the generator belong into the model, as layers.

    Args:
        dataframe (Any): A DataFrame of pandas or Polars, or a dict of lists.
        directory (str | os.PathLike[str] | None): Folder that paths begin at. Default: None, the
            working folder.
        x_col (str): Column of paths. Default: "filename".
        y_col (str | Sequence[str]): Column of classes or numbers; several for class_mode
            "multi_output" and "raw". Default: "class".
        weight_col (str | None): Column of sample weights >= 0. Default: None.
        target_size (int | tuple[int, int]): Height and width, pixels; an integer is both. Default:
            (256, 256).
        color_mode (str): "rgb" or "grayscale", which has one channel. Default: "rgb".
        classes (Sequence[str] | None): Names of classes in the order of their numbers; rows of
            others are left out. Default: None, all names, sorted.
        class_mode (str | None): Labels, float32: "categorical": one-hot (n, classes), or multi-hot
            of lists of names; "binary" and "sparse": class numbers (n,); "raw": numbers of `y_col`;
            "multi_output": a tuple of columns; "input": the images. None: no labels. Default:
            "categorical".
        batch_size (int): Samples per batch, at least 1; the last batch of an epoch may have fewer.
            Default: 32.
        shuffle (bool): Shuffle in every epoch; False keeps the order of the table. Default: True.
        seed (int | None): Seed of the order. Default: None, 0.
        subset (str | None): "training" or "validation", the first rows. Default: None, all rows.
        interpolation (str): "nearest", "bilinear", "bicubic", "lanczos" or "box". Default:
            "nearest".
        validate_filenames (bool): Leave out rows whose file does not exist or has another
            extension than those that Keras reads, with a warning. Default: True.
        validation_split (float | None): Share of rows for validation, in (0, 1); Keras has it at
            the generator. Default: None.

    Returns:
        Data for `fit`, `evaluate` and `predict` of any backend. It has `class_indices`,
        `filenames`, `samples` and `n`, as Keras's, and `feed`, the `Feed` behind it.

    Raises:
        ConfigError: If an argument is wrong, or a column is missing.
        SourceError: If no row is left.
        MissingExtra: If Keras is not installed.

    Example:
        >>> train = ff.keras.flow_from_dataframe(  # doctest: +SKIP
        ...     frame, "photos", y_col="animal", validation_split=0.2, subset="training"
        ... )
        >>> model.fit(train, epochs=10)  # doctest: +SKIP
    """
    frame = _Frame(dataframe, x_col, y_col, weight_col, class_mode, os.fspath(directory or ""))
    frame.choose(classes, validate_filenames)
    frame.take_side(subset, validation_split)
    resize, images = image_ops(target_size, interpolation, color_mode, None)
    kinds = {"binary": "sparse", "sparse": "sparse", "categorical": "categorical"}
    kind = None if frame.has_lists else kinds.get(class_mode or "")
    feed = Feed(
        frame.source(),
        [*resize, *label_ops(kind, len(frame.classes))],
        batch=min(batch_size, len(frame.rows)),
        shuffle=shuffle,
        seed=seed or 0,
        tail="pad",
    )
    item: list[Any] = [images]
    if class_mode is not None:
        own = {"input": images, "multi_output": tuple(frame.outputs)}
        item.append(own.get(class_mode, "label"))
    if weight_col is not None:
        item.append("weight")
    data = make_dataset(feed, tuple(item) if len(item) > 1 else images, "keras")
    data.class_indices = {name: k for k, name in enumerate(frame.classes)}
    data.filenames = [frame.names[i] for i in frame.rows]
    data.samples = len(frame.rows)
    data.n = data.samples
    return data


class _Frame:
    """Columns of a table, and the rows that are kept."""

    def __init__(
        self,
        table: Any,
        x_col: str,
        y_col: str | Sequence[str],
        weight_col: str | None,
        mode: ClassMode | None,
        root: str,
    ) -> None:
        labels = [y_col] if isinstance(y_col, str) else list(y_col)
        self.names = _column(table, x_col)
        self.labels = [] if mode in (None, "input") else [_column(table, name) for name in labels]
        self.outputs = [f"output_{k}" for k in range(len(self.labels))]
        self.classes: list[str] = []
        self.rows = list(range(len(self.names)))
        self._weights = None if weight_col is None else _column(table, weight_col)
        self._mode = mode
        self._root = root

    @property
    def has_lists(self) -> bool:
        """True if samples have several classes."""
        named = self._mode == "categorical"
        return named and any(isinstance(self.labels[0][i], (list, tuple)) for i in self.rows)

    def choose(self, classes: Sequence[str] | None, validate: bool) -> None:
        """Leave out rows without a file, and those without one of the classes."""
        if validate:
            self.rows = [i for i in self.rows if _is_image(self._path(i))]
            if missing := len(self.names) - len(self.rows):
                warn(
                    f"flow_from_dataframe: {missing} rows are left out, whose file does not exist or"
                    f" is none of {', '.join(_FORMATS)}",
                    UserWarning,
                    stacklevel=4,
                )
        if self._mode in ("binary", "categorical", "sparse"):
            self._choose_classes(classes)
        if not self.rows:
            raise SourceError("flow_from_dataframe: no row is left; look at directory and x_col")

    def _choose_classes(self, classes: Sequence[str] | None) -> None:
        kept = {i: _listed(self.labels[0][i]) for i in self.rows}
        found = {name for names in kept.values() for name in names}
        self.classes = sorted(found) if classes is None else list(dict.fromkeys(classes))
        if self._mode == "binary" and len(self.classes) != 2:
            raise ConfigError.of("class_mode='binary': classes", "two", self.classes)
        for i, names in kept.items():
            known = [name for name in names if name in self.classes]
            self.labels[0][i] = (
                known if isinstance(self.labels[0][i], (list, tuple)) else "".join(known)
            )
        self.rows = [i for i in self.rows if self.labels[0][i]]

    def take_side(self, subset: str | None, validation: float | None) -> None:
        """Keep the rows of a side: the first ones are for validation."""
        check_split(validation, subset)
        if validation is not None:
            cut = int(validation * len(self.rows))
            self.rows = self.rows[:cut] if subset == "validation" else self.rows[cut:]
        if not self.rows:
            raise ConfigError(
                f"the {subset} side is empty; pass another validation_split",
                field="validation_split",
            )

    def source(self) -> Table:
        """The rows that are kept, as a source."""
        columns = dict(zip(self.outputs, self.labels, strict=True))
        kind: LabelKind = "value" if self._mode == "raw" else "multi" if self.has_lists else "name"
        labels = None if not columns or self._mode == "multi_output" else self.outputs
        if self._weights is not None:
            columns["weights"] = self._weights
        table = {name: [values[i] for i in self.rows] for name, values in columns.items()}
        return Table(
            {"paths": [self._path(i) for i in self.rows], **table},
            image="paths",
            label=labels[0] if labels and len(labels) == 1 else labels,
            label_kind=kind,
            classes=self.classes or None,
            columns=self.outputs if self._mode == "multi_output" else (),
            weight=None if self._weights is None else "weights",
        )

    def _path(self, row: int) -> str:
        return os.path.join(self._root, str(self.names[row]))


def _column(table: Any, name: str) -> list[Any]:
    names = getattr(table, "columns", table)
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise ConfigError.of("dataframe", "a DataFrame or a dict of lists", table)
    listed = [one for one in names if isinstance(one, str)]
    if not isinstance(name, str) or name not in listed:
        allowed = f"one of {', '.join(listed)}"
        raise ConfigError.of("flow_from_dataframe: a column", allowed, name)
    return list(table[name])


def _listed(label: Any) -> list[str]:
    """Names of the classes of a row."""
    names = list(label) if isinstance(label, (list, tuple)) else [label]
    if not all(isinstance(name, str) for name in names):
        raise ConfigError.of(
            "flow_from_dataframe: classes", "texts or lists of texts", label, "use class_mode='raw'"
        )
    return names


def _is_image(path: str) -> bool:
    return path.lower().endswith(_FORMATS) and os.path.isfile(path)
