"""Images below a folder, as Keras lists, labels and splits them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SourceError
from fastfeed.sources import ImageFolder
from fastfeed.sources.splitting import KERAS_FORMATS, keras_order


@dataclass(frozen=True, slots=True)
class Listed:
    """Paths of images in the order in which Keras has them, with labels, or None."""

    paths: list[str]
    labels: Any  # int64 (n,), or None
    class_names: tuple[str, ...] = ()

    def sides(self, validation: float | None, subset: str | None) -> dict[str, Listed]:
        """The parts that `subset` names; all files, called "", without a split."""
        if (validation is None) != (subset is None) or not 0 < (validation or 0.5) < 1:
            raise ConfigError(
                "validation_split must be in (0, 1) and go together with subset, got"
                f" validation_split={validation} and subset={subset!r}",
                field="validation_split",
            )
        if validation is None:
            return {"": self}
        cut = len(self.paths) - int(validation * len(self.paths))
        sides = {"training": slice(0, cut), "validation": slice(cut, None)}
        return {
            side: self._part(side, rows) for side, rows in sides.items() if subset in (side, "both")
        }

    def check_one_hot(self) -> None:
        """ConfigError if a label is not below the number of classes."""
        most = 0 if self.labels is None else int(self.labels.max())
        if most >= len(self.class_names):
            raise ConfigError(
                f'labels for label_mode="categorical" must be below {len(self.class_names)}, the'
                f" number of classes, got {most}; number them from 0",
                field="labels",
            )

    def _part(self, side: str, rows: slice) -> Listed:
        if not self.paths[rows]:
            raise ConfigError(
                f"the {side} side of {len(self.paths)} files is empty; pass another"
                " validation_split",
                field="validation_split",
            )
        labels = None if self.labels is None else self.labels[rows]
        return Listed(self.paths[rows], labels, self.class_names)


def list_images(
    directory: str | os.PathLike[str],
    labels: Any,
    class_names: Sequence[str] | None,
    *,
    seed: int | None,
    follow_links: bool,
) -> Listed:
    """All images of the formats that Keras reads.

    Args:
        directory: Folder, local or remote.
        labels: "inferred" from the first folder below it, one per path, or None.
        class_names: Those folders in the order of their labels; None for all, sorted.
        seed: Of the shuffle; None keeps the order of the paths.
        follow_links: Also list what links to folders inside of classes lead to.
    """
    inferred = isinstance(labels, str)
    if inferred and labels != "inferred":
        raise ConfigError.of("labels", 'a list of integers, "inferred" or None', labels)
    if class_names is not None and not inferred:
        raise ConfigError(
            f'class_names are for labels="inferred", got labels={labels!r}; leave one out',
            field="class_names",
        )
    folder = ImageFolder(directory, labeled=False, extensions=KERAS_FORMATS)
    names = folder.paths.tolist()
    if not folder.remote and not follow_links:
        names = _without_links(os.fspath(directory), names)
    classes: Sequence[str] = ()
    if inferred:
        classes = _class_folders(folder, names, class_names)
        number = {name: k for k, name in enumerate(classes)}
        names = [name for name in names if name.partition("/")[0] in number and "/" in name]
        numbers = np.array([number[name.partition("/")[0]] for name in names], np.int64)
    else:
        numbers = np.zeros(len(names), np.int64)
    order = keras_order(names, numbers, seed)
    if labels is not None and not inferred:
        in_order = keras_order(names, numbers, None)
        numbers = _given(labels, len(names))[np.argsort(in_order)]
        classes = [str(label) for label in sorted(set(numbers.tolist()))]
    if not names:
        raise SourceError(f"no images in the class folders of {folder.root}: {', '.join(classes)}")
    join = "{}/{}".format if folder.remote else os.path.join
    paths = [join(str(folder.root), names[i]) for i in order.tolist()]
    return Listed(paths, None if labels is None else numbers[order], tuple(classes))


def _class_folders(
    folder: ImageFolder, names: Sequence[str], requested: Sequence[str] | None
) -> Sequence[str]:
    """Names of the folders that are classes, also of local ones without images."""
    found = {name.partition("/")[0] for name in names if "/" in name}
    if not folder.remote:
        with os.scandir(folder.root) as entries:
            found |= {entry.name for entry in entries if entry.is_dir() and entry.name[0] != "."}
    if requested is None:
        return sorted(found)
    if len(set(requested)) < len(requested):
        raise ConfigError.of("class_names", "each folder once", list(requested))
    if missing := [name for name in requested if name not in found]:
        raise ConfigError.of(
            "class_names", f"folders in {folder.root} ({', '.join(sorted(found))})", missing
        )
    return list(requested)


def _given(labels: Any, count: int) -> np.ndarray:
    """Labels that were passed, one per path: int64 (n,)."""
    numbers = np.asarray(labels)
    if numbers.shape != (count,) or numbers.dtype.kind not in "iu":
        raise ConfigError(
            f"labels must be one integer for each of {count} images, got {numbers.dtype} of shape"
            f" {numbers.shape}",
            field="labels",
        )
    if count and numbers.min() < 0:
        raise ConfigError.of("labels", "integers from 0", int(numbers.min()))
    return numbers.astype(np.int64)


def _without_links(root: str, names: Sequence[str]) -> list[str]:
    """Paths that lead through no linked folder inside of a class."""
    linked: dict[str, bool] = {}

    def is_linked(folder: str) -> bool:
        if "/" not in folder:  # a class, which may be a link
            return False
        if folder not in linked:
            above = folder.rpartition("/")[0]
            linked[folder] = is_linked(above) or os.path.islink(os.path.join(root, folder))
        return linked[folder]

    return [name for name in names if not is_linked(name.rpartition("/")[0])]
