"""Arrays of uint16 and float32 are pixels as `Decode(dtype=...)` makes them of files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastfeed as ff
from fastfeed.errors import ConfigError, SpecError

N, HEIGHT, WIDTH = 5, 20, 24
OPS: dict[str, list[Any]] = {
    "window": [ff.RandomResizedCrop(16, filter="bicubic"), ff.RandomFlip(), ff.ToFloat()],
    "as it is": [],
    "moved": [ff.Resize((9, 11)), ff.Rotate(40, filter="nearest"), ff.ToLayout("CHW")],
    "border": [ff.RandomCrop(30, fill=(9, 8, 7), pad_if_needed=True), ff.Normalize.imagenet()],
    "views": [ff.MultiCrop([ff.View(8, 2), ff.View(6, 3)])],
}


def images(dtype: str, channels: int = 3) -> np.ndarray:
    values = np.random.default_rng(0).integers(0, 65_536, (N, HEIGHT, WIDTH, channels))
    return values.astype(dtype)


def npy(image: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, image)
    return file.getvalue()


def batches(source: ff.Source, ops: list[Any]) -> list[np.ndarray]:
    """The images of two epochs."""
    with ff.Feed(source, ops, batch=N, seed=2, threads=2) as feed:
        made = [[*map(np.array, b.views or (b.images,))] for b in feed.batches(epochs=2)]
        assert not feed.stats().bad
    return [views for batch in made for views in batch]


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize(
    ("dtype", "channels"), [("uint16", 3), ("float32", 3), ("float32", 1), ("uint16", 4)]
)
def test_a_feed_of_arrays_is_that_of_files(dtype, channels, name, tmp_path: Path):
    stored, ops = images(dtype, channels), OPS[name]
    if channels != 3:
        ops = [op for op in ops if not isinstance(op, ff.Normalize)]
    paths = [tmp_path / f"{i}.npy" for i in range(N)]
    for path, image in zip(paths, stored, strict=True):
        np.save(path, image)
    decode = ff.Decode(channels=channels, dtype=dtype)
    files = batches(ff.Files(paths), [decode, *(ops or [ff.CenterCrop((HEIGHT, WIDTH))])])
    for own, other in zip(batches(ff.Arrays(stored), ops), files, strict=True):
        assert own.dtype == other.dtype
        np.testing.assert_array_equal(own, other)


@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_a_transform_takes_arrays_next_to_files(dtype):
    stored = images(dtype)
    decode = ff.Decode(dtype=dtype)
    spec = ff.Spec((None, None, 3), dtype, "HWC")
    with ff.Feed(ff.Arrays(stored), OPS["window"], batch=N, shuffle=False, seed=2) as feed:
        wanted = next(iter(feed)).images
    for transform, items in (
        (ff.Transform([decode, *OPS["window"]], seed=2), [npy(stored[0]), *stored[1:]]),
        (ff.Transform(OPS["window"], seed=2, input_spec=spec), list(stored)),
        (ff.Transform.of(feed), list(stored)),
    ):
        with transform:
            made = transform(items, ids=range(N), epoch=0)
        assert not made.bad
        np.testing.assert_array_equal(made.images, wanted)


def test_a_saved_transform_checks_such_pixels(tmp_path: Path):
    spec = ff.Spec((HEIGHT, WIDTH, 3), "uint16", "HWC")
    transform = ff.Transform([ff.Resize((9, 11))], input_spec=spec)
    transform.save(tmp_path / "ops.json")
    image = images("uint16")[0]
    np.testing.assert_array_equal(
        ff.Transform.load(tmp_path / "ops.json").one(image), transform.one(image)
    )


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (np.zeros((5, 5, 3), np.uint8), "is an array of uint8, shape (5, 5, 3); it must be uint16"),
        (np.zeros((5, 5, 3, 1), np.float32), "shape (5, 5, 3, 1); it must be uint16 or float32"),
        (np.zeros((5, 5, 3), np.float32), 'Decode(dtype="uint16") takes files of 16 bits'),
        (np.zeros((5, 5, 4), np.uint16), "4 channels of uint16, and Decode takes 3"),
    ],
)
def test_items_of_another_kind_are_bad(item, text):
    with ff.Transform([ff.Decode(dtype="uint16"), ff.Resize((4, 4))]) as transform:
        made = transform([item, np.zeros((5, 5), np.uint16)])
    assert [*made.bad] == [0] and text in made.bad[0].detail


def test_what_works_on_bytes_is_refused():
    source = ff.Arrays(images("uint16"), range(N), classes=[*"abcde"])
    for op in (ff.Invert(), ff.MixUp()):
        with pytest.raises(SpecError, match=r"uint16\[.*, or uint8 arrays"):
            ff.Feed(source, [op], batch=2)
    with pytest.raises(ConfigError, match=r"makes gray or RGB of 8 bits, got HWC uint16\["):
        ff.Feed(source, [], batch=2, backend="dali")


def test_a_fingerprint_has_the_dtype(tmp_path: Path):
    stored = images("uint16")
    np.save(tmp_path / "images.npy", stored)
    mapped = ff.Arrays(np.load(tmp_path / "images.npy", mmap_mode="r"))
    assert isinstance(mapped.read([1])[0], np.memmap)
    assert mapped.fingerprint == ff.Arrays(stored).fingerprint
    assert mapped.fingerprint != ff.Arrays(stored.astype("float32")).fingerprint
