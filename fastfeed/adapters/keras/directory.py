"""Keras's function that makes a data set of a folder, with a feed behind it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fastfeed.adapters.keras.forms import check_split, image_ops, label_ops, make_dataset
from fastfeed.arguments import checked
from fastfeed.errors import ConfigError, SourceError
from fastfeed.feed import Feed
from fastfeed.sources import Files, ImageFolder
from fastfeed.sources.splitting import KERAS_FORMATS, keras_order

_UNBATCHED = 32  # samples that a feed prepares at once where they are wanted one by one


@checked
def image_dataset_from_directory(
    directory: str | os.PathLike[str],
    labels: Any = "inferred",
    label_mode: Literal["int", "categorical", "binary"] | None = "int",
    class_names: Sequence[str] | None = None,
    color_mode: Literal["rgb", "grayscale"] = "rgb",
    batch_size: int | None = 32,
    image_size: Any = (256, 256),
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: Literal["training", "validation", "both"] | None = None,
    interpolation: str = "bilinear",
    follow_links: bool = False,
    crop_to_aspect_ratio: bool = False,
    pad_to_aspect_ratio: bool = False,
    data_format: Literal["channels_last", "channels_first"] | None = None,
    format: Literal["tf", "keras"] = "tf",
    verbose: bool = True,
    *,
    antialias: bool = True,
) -> Any:
    """The data set that Keras's function of this name makes, with a feed behind it.

    Arguments, files, classes, sides of a split, shapes and dtypes are those of
    `keras.utils.image_dataset_from_directory`. Several things differ: images are antialiased unless
    `antialias=False`, and rounded to whole levels; each epoch shuffles all files, not a buffer; a
    file that cannot be decoded is replaced by another one and listed, and does not end the epoch;
    hidden files are left out; images are turned as their EXIF orientation says, and transparent
    ones lie on white; ranks of a launcher share the files.

    Args:
        directory (str | os.PathLike[str]): Folder, local or remote (`s3://bucket/train`).
        labels (str | Sequence[int] | None): "inferred": the first folder below `directory` is the
            class. A list has the class numbers of all images, in the order of their paths. None:
            no labels. Default: "inferred".
        label_mode (str | None): "int": int32 (n,). "categorical": one-hot, float32 (n, classes).
            "binary", of two classes: float32 (n, 1). None: no labels. Default: "int".
        class_names (Sequence[str] | None): Names of folders in the order of their labels; others
            are left out. Default: None, all in alphanumerical order.
        color_mode (str): "rgb" or "grayscale", which has one channel. Default: "rgb".
        batch_size (int | None): Samples per batch, at least 1; the last batch of an epoch may have
            fewer. None yields single samples, with format="tf". Default: 32.
        image_size (int | tuple[int, int]): Height and width, pixels; an integer is both. Default:
            (256, 256).
        shuffle (bool): Shuffle in every epoch; False keeps the order of `file_paths`. Default:
            True.
        seed (int | None): Seed of the order and the split. Default: None, 0.
        validation_split (float | None): Share of files for validation, in (0, 1). Default: None.
        subset (str | None): "training", "validation", or "both" for a list of the two. Default:
            None, all files.
        interpolation (str): "bilinear", "bicubic", "lanczos3", "area" or "nearest". Default:
            "bilinear".
        follow_links (bool): Read folders that links in class folders lead to. Default: False.
        crop_to_aspect_ratio (bool): Resize the largest centered part that has the shape of
            `image_size`. Default: False.
        pad_to_aspect_ratio (bool): Add black borders to keep the shape of the whole image. Default:
            False.
        data_format (str | None): "channels_last" or "channels_first". Default: None, as Keras is
            configured.
        format (str): "tf" for a `tf.data.Dataset`; "keras" for data that `fit`, `evaluate` and
            `predict` take on any backend, without TensorFlow. Default: "tf".
        verbose (bool): Print the numbers of files and classes. Default: True.
        antialias (bool): False reads the nearest four pixels at any reduction, as Keras does,
            and takes "bilinear" and "nearest" alone. Default: True.

    Returns:
        The data set, or a list of two. It has `class_names` and `file_paths`, as Keras's, and
        `feed`, the `Feed` behind it.

    Raises:
        ConfigError: If an argument is wrong.
        SourceError: If there are no images, or the folder cannot be listed.
        MissingExtra: If Keras, or for format="tf" TensorFlow, is not installed.

    Example:
        >>> train, val = ff.keras.image_dataset_from_directory(  # doctest: +SKIP
        ...     "photos", validation_split=0.2, subset="both", seed=0, image_size=(224, 224)
        ... )
        >>> model.fit(train, validation_data=val, epochs=10)  # doctest: +SKIP
    """
    listed = _list_images(
        directory,
        labels if label_mode else None,
        class_names,
        seed=(seed or 0) if shuffle else None,
        follow_links=follow_links,
    )
    label_mode = label_mode if listed.labels is not None else None
    if label_mode == "binary" and len(listed.class_names) != 2:
        raise ConfigError.of("label_mode='binary': classes", "two", listed.class_names)
    if label_mode == "categorical":
        listed.check_one_hot()
    resize, images = image_ops(
        image_size,
        interpolation,
        color_mode,
        data_format,
        antialias,
        _fit(crop_to_aspect_ratio, pad_to_aspect_ratio),
        keeps_bytes=True,
    )
    ops = [*resize, *label_ops(label_mode, len(listed.class_names))]
    if verbose:
        classes = f" belonging to {len(listed.class_names)} classes" if label_mode else ""
        print(f"Found {len(listed.paths)} files{classes}.")
    _check_seed(validation_split, shuffle, seed)
    made = []
    for side, part in listed.sides(validation_split, subset).items():
        if verbose and side:
            print(f"Using {len(part.paths)} files for {side}.")
        feed = Feed(
            Files(part.paths, part.labels, label_kind="index" if label_mode else None),
            ops,
            batch=min(_UNBATCHED if batch_size is None else batch_size, len(part.paths)),
            shuffle=shuffle and not (side == "validation" and subset == "both"),
            seed=seed or 0,
            tail="pad",
        )
        yields = (images, "label") if label_mode else images
        data = make_dataset(feed, yields, format, unbatched=batch_size is None)
        data.class_names = list(listed.class_names) if label_mode else None
        data.file_paths = part.paths
        made.append(data)
    return made if subset == "both" else made[0]


def _fit(crop: bool, pad: bool) -> Literal["exact", "crop", "pad_floor"]:
    if crop and pad:
        raise ConfigError(
            "crop_to_aspect_ratio and pad_to_aspect_ratio are both True; pass one of them",
            field="pad_to_aspect_ratio",
        )
    return "crop" if crop else "pad_floor" if pad else "exact"


def _check_seed(validation_split: float | None, shuffle: bool, seed: int | None) -> None:
    """Refuse a split without a seed, as Keras does: two calls would have to agree on it."""
    if validation_split is not None and shuffle and seed is None:
        raise ConfigError(
            "validation_split of shuffled files needs a seed, got None; pass the same seed=0 for"
            ' both subsets, or subset="both"',
            field="seed",
        )


@dataclass(frozen=True, slots=True)
class _Listed:
    """Paths of images in the order in which Keras has them, with labels, or None."""

    paths: list[str]
    labels: Any  # int64 (n,), or None
    class_names: tuple[str, ...] = ()

    def sides(self, validation: float | None, subset: str | None) -> dict[str, _Listed]:
        """The parts that `subset` names; all files, called "", without a split."""
        check_split(validation, subset)
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

    def _part(self, side: str, rows: slice) -> _Listed:
        if not self.paths[rows]:
            raise ConfigError(
                f"the {side} side of {len(self.paths)} files is empty; pass another"
                " validation_split",
                field="validation_split",
            )
        labels = None if self.labels is None else self.labels[rows]
        return _Listed(self.paths[rows], labels, self.class_names)


def _list_images(
    directory: str | os.PathLike[str],
    labels: Any,
    class_names: Sequence[str] | None,
    *,
    seed: int | None,
    follow_links: bool,
) -> _Listed:
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
        numbers = _passed_labels(labels, len(names))[np.argsort(in_order)]
        classes = [str(label) for label in sorted(set(numbers.tolist()))]
    if not names:
        raise SourceError(f"no images in the class folders of {folder.root}: {', '.join(classes)}")
    join = "{}/{}".format if folder.remote else os.path.join
    paths = [join(str(folder.root), names[i]) for i in order.tolist()]
    return _Listed(paths, None if labels is None else numbers[order], tuple(classes))


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


def _passed_labels(labels: Any, count: int) -> np.ndarray:
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
