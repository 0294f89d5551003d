"""Data sets of folders as Keras's own functions make them: compared element by element with these."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.needs import LazyModule, require
from helpers.photos import picture
from PIL import Image

import fastfeed as ff
from fastfeed.errors import ConfigError

keras: Any = LazyModule("keras")
tf: Any = LazyModule("tensorflow")
SIZES = [(40, 56), (56, 40), (21, 33), (64, 64), (9, 12)]
IN_ORDER = {"shuffle": False, "batch_size": 4, "image_size": (24, 32)}


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    """17 images of classes a, b, c, c-d and one without any, in nested folders and loose."""
    root = tmp_path_factory.mktemp("keras") / "photos"
    names = [
        "a/1.jpg",
        "a/x/1.png",
        "a/x-y.jpg",
        "a/x y/2.BMP",
        "b/é.png",
        "b/UPPER.JPG",
        "c/1.gif",
    ]
    names += [f"b/{i}.png" for i in range(4)] + [f"c-d/{i}.jpg" for i in range(4)]
    names += ["c/0.png", "loose.png", "a/left_out.webp"]
    for seed, name in enumerate(names):
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture(seed, SIZES[seed % len(SIZES)])).save(file)
    (root / "empty").mkdir()
    return root


def ours(root: Path, **options: Any) -> Any:
    return ff.keras.image_dataset_from_directory(root, verbose=False, **options)


def both(root: Path, **options: Any) -> list[tuple[Any, Any]]:
    """The data sets that Keras makes, and ours."""
    require("keras", "tensorflow")
    theirs = keras.utils.image_dataset_from_directory(root, verbose=False, **options)
    made = ours(root, antialias=False, **options)
    return [(theirs, made)] if not isinstance(made, list) else list(zip(theirs, made, strict=True))


def parts(element: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Images and labels of an element."""
    images, labels = element if isinstance(element, tuple) else (element, None)
    return images.numpy().astype(np.float64), None if labels is None else labels.numpy()


LISTED = [
    {"shuffle": False},
    {"seed": 3},
    {"validation_split": 0.3, "subset": "training", "seed": 7},
    {"validation_split": 0.3, "subset": "both", "seed": 7},
    {"validation_split": 0.26, "subset": "both", "shuffle": False},
    {"class_names": ["c", "a", "c-d"], "seed": 5},
    {"label_mode": None, "seed": 1},
    {"labels": None, "shuffle": False},
    {"labels": [i // 3 for i in range(17)], "seed": 2},
]


@pytest.mark.slow
@pytest.mark.parametrize("options", LISTED, ids=str)
def test_files_classes_and_sides_are_those_of_keras(photos: Path, options: dict[str, Any]):
    for theirs, made in both(photos, image_size=(8, 8), **options):
        assert made.file_paths == list(theirs.file_paths)
        assert made.class_names == theirs.class_names
        assert len(made) == len(theirs) and int(made.cardinality()) == int(theirs.cardinality())
        assert made.element_spec == theirs.element_spec


CROP = {"crop_to_aspect_ratio": True}
SHOWN = [
    ({}, 1.01),
    ({"label_mode": "categorical", **CROP}, 1.01),
    ({"label_mode": "binary", "class_names": ["c-d", "b"]}, 1.01),
    ({"label_mode": None, "batch_size": None}, 1.01),
    ({"pad_to_aspect_ratio": True}, 1.01),
    ({"interpolation": "nearest", "pad_to_aspect_ratio": True, "image_size": 16}, 0),
    ({"interpolation": "nearest", "image_size": 16}, 0),
    ({"interpolation": "nearest", **CROP, "image_size": 16}, 0),
    ({"data_format": "channels_first"}, 1.01),
    ({"labels": [5, 7] * 8 + [5]}, 1.01),
    # libpng's gray, from other shares of red, green and blue than JPEG's
    ({"color_mode": "grayscale", "class_names": ["b", "c-d"]}, 8),
    (
        {"color_mode": "grayscale", "data_format": "channels_first", "class_names": ["b"]},
        8,
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("options", "levels"), SHOWN, ids=str)
def test_elements_are_those_of_keras(photos: Path, options: dict[str, Any], levels: float):
    """Of JPEGs within 5 levels: TensorFlow decodes with the fast DCT, which rounds more.

    A part that is cut out blends with what is next to it in the image, in Keras with nothing.
    """
    ((theirs, made),) = both(photos, **{**IN_ORDER, **options})
    assert made.element_spec == theirs.element_spec
    names = iter(made.file_paths)
    edge = slice(2, -2) if "crop_to_aspect_ratio" in options else slice(None)
    for one, other in zip(theirs, made, strict=True):
        (wanted, classes), (found, labels) = parts(one), parts(other)
        assert np.array_equal(classes, labels)
        for differences in np.abs(wanted - found).reshape(-1, *made_shape(made)):
            is_jpeg = next(names).lower().endswith(".jpg")
            assert differences[edge, edge].max() <= (max(levels, 5) if is_jpeg else levels)


def made_shape(data: Any) -> tuple[int, ...]:
    """Shape of one image of a data set."""
    spec = data.element_spec
    return tuple((spec[0] if isinstance(spec, tuple) else spec).shape[-3:])


@pytest.mark.slow
def test_jpegs_differ_from_keras_by_the_dct_alone(photos: Path):
    require("tensorflow")
    path = photos / "c-d" / "3.jpg"
    pixels = tf.io.decode_jpeg(path.read_bytes(), dct_method="INTEGER_ACCURATE")
    feed = ff.Feed(ff.Files([path]), [ff.Resize((24, 32), "linear")], batch=1)
    wanted = tf.image.resize(pixels, (24, 32)).numpy()
    assert np.abs(wanted - next(iter(feed)).images[0]).max() <= 1.01


@pytest.mark.slow
def test_antialiased_images_are_pillows(photos: Path):
    require("tensorflow")
    data = ours(photos, **IN_ORDER, interpolation="area", class_names=["b"])
    wanted = [
        Image.open(name).convert("RGB").resize((32, 24), Image.Resampling.BOX)
        for name in data.file_paths
        if name.endswith(".png")
    ]
    found = np.concatenate([images.numpy() for images, _ in data])
    found = found[[name.endswith(".png") for name in data.file_paths]]
    assert np.abs(found - np.stack([np.asarray(image) for image in wanted])).max() <= 1


@pytest.mark.slow
def test_links_to_folders_are_followed_as_keras_does(photos: Path, tmp_path: Path):
    root = shutil.copytree(photos, tmp_path / "photos")
    (root / "c" / "linked").symlink_to(root / "b")
    (root / "class").symlink_to(root / "a" / "x")
    for follow in (False, True):
        ((theirs, made),) = both(root, shuffle=False, follow_links=follow)
        assert made.file_paths == list(theirs.file_paths)
        assert len(made.file_paths) == 17 + 6 * follow


class Epochs:
    """Samples of each epoch of a fit, by a callback."""

    def __init__(self, data: Any) -> None:
        self.steps: list[int] = []
        self.positions: list[tuple[int, int]] = []
        self.callback = keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, logs: self.steps.append(0),
            on_train_batch_end=lambda batch, logs: self._count(),
            on_epoch_end=lambda epoch, logs: self._note(data.feed.state()),
        )

    def _count(self) -> None:
        self.steps[-1] += 1

    def _note(self, state: dict[str, Any]) -> None:
        self.positions.append((state["epoch"], state["step"]))


def fitted(data: Any, feed: Any = None, **options: Any) -> Epochs:
    """Train a small network on a data set."""
    net = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(5),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    net.compile("sgd", loss, run_eagerly=True)
    epochs = Epochs(feed or data)
    net.fit(data, verbose=0, shuffle=False, callbacks=[epochs.callback], **options)
    return epochs


@pytest.mark.slow
def test_fit_sees_whole_epochs(photos: Path):
    """No batch is lost to a look at its shapes, and nothing runs out of data."""
    require("keras", "tensorflow")
    data, val = (ours(photos, image_size=(8, 8), batch_size=3, seed=s) for s in (0, 1))
    found = fitted(data, epochs=3, validation_data=val, validation_freq=2)
    assert found.steps == [6] * 3
    assert found.positions == [(1, 0), (2, 0), (3, 0)]
    assert val.feed.state()["epoch"] == 1
    data.feed.seek(5)
    assert fitted(data, epochs=6, initial_epoch=5).positions == [(6, 0)]
    found = fitted(data.repeat(), data, epochs=3, steps_per_epoch=2)
    assert found.steps == [2] * 3 and found.positions[-1] == (7, 0)
    data.feed.seek(0, 3)
    with pytest.raises(Exception, match="yields whole epochs, and its feed stands at step 3"):
        list(data)
    assert len(data.map(lambda images, labels: images).prefetch(1)) == 6


@pytest.mark.slow
def test_any_backend_takes_the_keras_format(photos: Path):
    require("keras")
    data = ours(photos, image_size=(8, 8), batch_size=3, format="keras")
    assert data.class_names == ["a", "b", "c", "c-d", "empty"]
    found = fitted(data, epochs=5, initial_epoch=3)
    assert found.steps == [6, 6] and found.positions == [(4, 0), (5, 0)]


ROWS = {
    "filename": ["a/x/1.png", "b/0.png", "gone.png", "c/0.png", "b/1.png", "c-d/0.jpg", "b/2.png"],
    "class": ["a", "b", "b", "c", "b", "c", "b"],
    "two": ["x", "y", "x", "x", "y", "y", "y"],
    "tags": [["p"], ["q", "p"], ["p"], ["q"], ["q", "p"], ["p"], ["p"]],
    "price": [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5],
    "age": [1, 2, 3, 4, 5, 6, 7],
    "trust": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0],
}
FRAMES: list[tuple[dict[str, Any], float | None]] = [
    ({}, None),
    ({"class_mode": "binary", "y_col": "two", "weight_col": "trust"}, None),
    ({"class_mode": "sparse", "classes": ["c", "b"]}, None),
    ({"y_col": "tags"}, None),
    ({"class_mode": "raw", "y_col": ["price", "age"]}, None),
    ({"class_mode": "multi_output", "y_col": ["price", "age"]}, None),
    ({"class_mode": "input", "color_mode": "grayscale"}, None),
    ({"class_mode": None, "subset": "training"}, 0.4),
    ({"class_mode": "raw", "y_col": "age", "subset": "validation"}, 0.4),
]


def leaves(item: Any) -> list[np.ndarray]:
    """Arrays of a batch."""
    if isinstance(item, (tuple, list)):
        return [array for part in item for array in leaves(part)]
    return [np.asarray(item)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*(invalid image|left out):UserWarning")
@pytest.mark.parametrize(("options", "validation"), FRAMES, ids=str)
def test_rows_of_a_table_are_those_of_keras(photos: Path, options: Any, validation: float | None):
    require("keras", "pandas")
    import pandas
    from keras.src.legacy.preprocessing.image import ImageDataGenerator

    options = {"target_size": (16, 12), "batch_size": 4, "shuffle": False, **options}
    generator = ImageDataGenerator(validation_split=validation or 0.0)
    frame = pandas.DataFrame(ROWS)
    theirs = generator.flow_from_dataframe(frame, str(photos), **options)
    made = ff.keras.flow_from_dataframe(frame, photos, validation_split=validation, **options)
    assert made.filenames == theirs.filenames and made.n == theirs.n
    assert made.class_indices == getattr(theirs, "class_indices", {})
    items = list(made.get_numpy_iterator())
    for wanted, found in zip([theirs[k] for k in range(len(theirs))], items, strict=True):
        for one, other in zip(leaves(wanted), leaves(found), strict=True):
            assert other.shape == one.shape
            assert np.abs(other - one.astype(float)).max() <= (4 if one.ndim == 4 else 1e-6)


def test_a_table_without_pandas(photos: Path):
    require("keras")
    with pytest.warns(UserWarning, match="1 rows are left out, whose file does not exist"):
        data = ff.keras.flow_from_dataframe(ROWS, photos, target_size=8, batch_size=5, seed=1)
    assert data.class_indices == {"a": 0, "b": 1, "c": 2} and data.n == 6
    (images, labels), (rest, _) = data.get_numpy_iterator()
    assert images.shape == (5, 8, 8, 3) and images.dtype == np.float32 and len(rest) == 1
    assert labels.sum(axis=1).tolist() == [1] * 5


WRONG_FRAMES = [
    ({"x_col": "path"}, "a column must be one of filename, class.* got 'path'"),
    ({"class_mode": "binary"}, r"classes must be two, got \['a', 'b', 'c'\]"),
    ({"y_col": "age"}, "classes must be texts or lists of texts, got 1; use class_mode='raw'"),
    ({"subset": "training"}, "go together with subset, got validation_split=None"),
    ({"subset": "validation", "validation_split": 0.1}, "the validation side is empty"),
]


@pytest.mark.filterwarnings("ignore:.*left out:UserWarning")
@pytest.mark.parametrize(("options", "text"), WRONG_FRAMES, ids=str)
def test_wrong_columns_say_what_to_write(photos: Path, options: dict[str, Any], text: str):
    with pytest.raises(ConfigError, match=text):
        ff.keras.flow_from_dataframe(ROWS, photos, **options)


def test_what_it_prints_is_what_keras_prints(photos: Path, capsys: pytest.CaptureFixture[str]):
    require("tensorflow")
    ff.keras.image_dataset_from_directory(
        photos, validation_split=0.25, subset="both", seed=1, image_size=8
    )
    assert capsys.readouterr().out.splitlines() == [
        "Found 16 files belonging to 5 classes.",
        "Using 12 files for training.",
        "Using 4 files for validation.",
    ]


WRONG = [
    ({"label_mode": "binary"}, r"label_mode='binary': classes must be two, got \('a'"),
    ({"class_names": ["z"]}, r"class_names must be folders in .*a, b, c, c-d, empty.*got \['z'\]"),
    ({"class_names": ["a"], "labels": None}, "leave one out"),
    ({"labels": [1, 2]}, "one integer for each of 17 images, got int64 of shape"),
    ({"labels": "a"}, "labels must be a list of integers"),
    ({"labels": [-1] + [0] * 16}, "labels must be integers from 0, got -1"),
    ({"labels": [3, 5] * 8 + [3], "label_mode": "categorical"}, "below 2, the number of classes"),
    ({"class_names": ["a", "a"]}, "class_names must be each folder once"),
    ({"subset": "training"}, "go together with subset, got validation_split=None"),
    ({"validation_split": 0.2, "seed": 1}, "got validation_split=0.2 and subset=None"),
    ({"validation_split": 2.0, "subset": "both", "seed": 1}, "validation_split must be in"),
    ({"validation_split": 0.2, "subset": "both"}, "needs a seed, got None; pass the same"),
    (
        {"validation_split": 0.01, "subset": "both", "seed": 1},
        "the validation side of 16 files is empty",
    ),
    ({"crop_to_aspect_ratio": True, "pad_to_aspect_ratio": True}, "pass one of them"),
    ({"interpolation": "gaussian"}, "interpolation must be one of bilinear"),
    (
        {"interpolation": "area", "antialias": False},
        "one of bilinear, nearest with antialias=False, got 'area'",
    ),
    ({"color_mode": "rgba"}, "color_mode must be 'rgb' or 'grayscale', got 'rgba'"),
    ({"format": "grain"}, "format must be 'tf' or 'keras', got 'grain'"),
    ({"format": "keras", "batch_size": None}, 'batch_size=None is for format="tf"'),
]


@pytest.mark.parametrize(("options", "text"), WRONG, ids=str)
def test_wrong_arguments_say_what_to_write(photos: Path, options: dict[str, Any], text: str):
    with pytest.raises(ConfigError, match=text):
        ours(photos, **{"data_format": "channels_last", **options})
