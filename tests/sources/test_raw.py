"""RawShards: NumPy's files of pixels, and what else may lie there under such a name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.mosaic import raw_folder
from helpers.photos import picture

from fastfeed.errors import ConfigError, SourceError
from fastfeed.sources import RawShards

HUGE = b"{'descr': '|u1', 'fortran_order': False, 'shape': (9999999999999999999, 4, 6, 3)}"
_MAGIC = b"\x93NUMPY\x01\x00"
PIXELS = np.stack([picture(i, (4, 6)) for i in range(3)])


def test_images_and_labels(tmp_path: Path) -> None:
    source = RawShards(raw_folder(tmp_path, (3, 2)), classes=("a", "b", "c"))
    assert (len(source), source.bounds.tolist()) == (5, [0, 3, 5])
    assert str(source.spec) == "uint8[20,30,3] HWC" or source.spec.shape == (20, 30, 3)
    for i, image in enumerate(source.read(range(5))):
        assert np.array_equal(image, picture(i, (20, 30)))
    assert source.label(np.array([4, 0, 2])).tolist() == [1, 0, 2]
    assert source.uri(4) == f"{tmp_path}/shard-000001.npy#1"
    assert (source.shard(1), source.sizes(np.array([0])).tolist()) == (
        f"{tmp_path}/shard-000001.npy",
        [1800],
    )


def test_shards_without_labels_and_without_images(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((0, 0, 0, 3), np.uint8))
    np.save(tmp_path / "a.labels.npy", np.zeros(0, np.int64))
    np.save(tmp_path / "b.npy", PIXELS)
    source = RawShards(tmp_path)
    assert (len(source), source.label(np.arange(3)).tolist(), source.spec.shape) == (
        3,
        [-1, -1, -1],
        (4, 6, 3),
    )
    assert np.array_equal(source.read([2])[0], PIXELS[2])


def test_several_labels_of_an_image(tmp_path: Path) -> None:
    lists = {"a": [[2, 0], [1, -1], [-1, -1]], "b": [[3], [0], [-1]], "c": np.zeros((0, 0))}
    for name, labels in lists.items():
        np.save(tmp_path / f"{name}.npy", PIXELS[: len(labels)])
        np.save(tmp_path / f"{name}.labels.npy", np.array(labels, np.int64))
    wanted = [[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0]]
    source = RawShards(tmp_path)
    assert source.label(np.arange(6)).tolist() == wanted
    named = RawShards(tmp_path, classes=("x", "y", "z", "w", "none"))
    assert named.label(np.array([3])).tolist() == [[0, 0, 0, 1, 0]]
    assert source.label_spec == ((4,), "float32")
    assert (named.label_spec.shape, named.label(np.array([0])).dtype) == ((5,), np.float32)
    with pytest.raises(SourceError, match="label 3, but there are 3 classes"):
        RawShards(tmp_path, classes=("x", "y", "z"))
    np.save(tmp_path / "b.labels.npy", np.zeros(3, np.int64))
    with pytest.raises(SourceError, match="some shards have one label per image, others several"):
        RawShards(tmp_path)


def test_gray(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", PIXELS[..., :1])
    assert RawShards(tmp_path).spec.shape == (4, 6, 1)


def test_a_shard_that_changes(tmp_path: Path) -> None:
    source = RawShards(raw_folder(tmp_path, (3, 2)))
    np.save(tmp_path / "shard-000001.npy", PIXELS)
    same, *others = source.read([2, 3, 4])
    assert np.array_equal(same, picture(2, (20, 30)))
    assert [str(found).partition(" (")[0] for found in others] == [
        f"{tmp_path}/shard-000001.npy#0: changed",
        f"{tmp_path}/shard-000001.npy#1: changed",
    ]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (PIXELS.astype(np.float32), "holds <f4"),
        (PIXELS[0], r"holds \|u1 \(4, 6, 3\)"),
        (np.zeros((2, 4, 6, 4), np.uint8), r"\(n, height, width, 3 or 1\) is needed"),
        (np.asfortranarray(PIXELS), "columns first"),
        (np.array([{"a": 1}]), r"holds \|O"),
        (
            PIXELS[:, :2],
            r"images of .*b.npy are 2 x 6 x 3, those before 4 x 6 x 3; all must have one size",
        ),
    ],
)
def test_other_arrays(tmp_path: Path, array: np.ndarray, message: str) -> None:
    np.save(tmp_path / "a.npy", PIXELS)
    np.save(tmp_path / "b.npy", array)
    with pytest.raises(SourceError, match=message):
        RawShards(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not an array: "),
        (b"\x93NUMPY\x01\x00\xff\xff{", "is not an array: "),
        (b"\x93NUMPY\x01\x00\x10\x00" + b"__import__('os')", "is not an array: "),
        (b"\x93NUMPY\x07\x00", "not NumPy's format"),
        (b"PK\x03\x04", "not NumPy's format"),
        (
            _MAGIC + len(HUGE).to_bytes(2, "little") + HUGE,
            r"announces [0-9]+ \+ 9999999999999999999 x 4 x 6 x 3",
        ),
    ],
)
def test_no_arrays(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(SourceError, match=message):
        RawShards(tmp_path)


def test_a_shard_that_is_cut_off(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", PIXELS)
    (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-1])
    with pytest.raises(
        SourceError, match=r"has 343 bytes, its header announces 128 \+ 3 x 4 x 6 x 3"
    ):
        RawShards(tmp_path)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.arange(2), r"holds <i8 \(2,\); int64 \(3,\) is needed, a label per image"),
        (np.zeros(3), r"holds <f8"),
        (np.array([0, 1, 2]), r"label 2, but there are 2 classes"),
        (np.array([0, -3, -1]), r"label -3; labels are >= 0, or -1 for none"),
    ],
)
def test_other_labels(tmp_path: Path, labels: np.ndarray, message: str) -> None:
    np.save(tmp_path / "a.npy", PIXELS)
    np.save(tmp_path / "a.labels.npy", labels)
    with pytest.raises(SourceError, match=message):
        RawShards(tmp_path, classes=("x", "y"))


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="nothing matches"):
        RawShards(tmp_path)
    np.save(tmp_path / "a.labels.npy", np.arange(3))
    with pytest.raises(SourceError, match=r"no images in .*, only .labels.npy"):
        RawShards(tmp_path)
    with pytest.raises(ConfigError, match="classes must be a list"):
        RawShards(tmp_path, classes="ab")
