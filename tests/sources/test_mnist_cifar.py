"""MNIST's and CIFAR's files, made here byte by byte, whole and damaged."""

from __future__ import annotations

import contextlib
import gzip
import pickle
from pathlib import Path

import numpy as np
import pytest

from fastfeed.errors import ConfigError, SourceError
from fastfeed.sources import Arrays
from fastfeed.sources.mnist_cifar import read_idx

RNG = np.random.default_rng(0)
DIGITS, DIGIT_LABELS = (
    RNG.integers(0, 256, (5, 28, 28), np.uint8),
    np.array([3, 1, 4, 1, 5], np.uint8),
)
TINY, TINY_LABELS = RNG.integers(0, 256, (10, 3, 32, 32), np.uint8), np.arange(10) % 4
FRUIT = [b"apple", b"pear", b"plum", b"quince"]


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def mnist(folder: Path, prefix: str = "train", dot: str = "-", gz: bool = False) -> Path:
    for kind, array in (("images", DIGITS), ("labels", DIGIT_LABELS)):
        name = f"{prefix}-{kind}{dot}idx{array.ndim}-ubyte"
        content = idx(array)
        (folder / (name + ".gz" * gz)).write_bytes(gzip.compress(content) if gz else content)
    return folder


def cifar10_binary(folder: Path) -> Path:
    rows = np.concatenate([TINY_LABELS[:, None].astype(np.uint8), TINY.reshape(10, -1)], axis=1)
    for i in range(5):
        (folder / f"data_batch_{i + 1}.bin").write_bytes(rows[2 * i : 2 * i + 2].tobytes())
    (folder / "test_batch.bin").write_bytes(rows[:3].tobytes())
    (folder / "batches.meta.txt").write_text("airplane\nautomobile\nbird\ncat\n\n")
    return folder


def cifar10_pickle(folder: Path, protocol: int = 2) -> Path:
    def save(name: str, rows: slice) -> None:
        batch = {
            b"data": TINY[rows].reshape(-1, 3072),
            b"labels": TINY_LABELS[rows].tolist(),
            b"batch_label": b"x",
        }
        (folder / name).write_bytes(pickle.dumps(batch, protocol))

    for i in range(5):
        save(f"data_batch_{i + 1}", slice(2 * i, 2 * i + 2))
    save("test_batch", slice(3))
    (folder / "batches.meta").write_bytes(
        pickle.dumps({b"label_names": [b"airplane", b"automobile", b"bird", b"cat"]})
    )
    return folder


def cifar100_binary(folder: Path) -> Path:
    coarse = np.full((10, 1), 99, np.uint8)
    rows = np.concatenate(
        [coarse, TINY_LABELS[:, None].astype(np.uint8), TINY.reshape(10, -1)], axis=1
    )
    (folder / "train.bin").write_bytes(rows.tobytes())
    (folder / "test.bin").write_bytes(rows[:3].tobytes())
    return folder


def cifar100_pickle(folder: Path) -> Path:
    for name, n in (("train", 10), ("test", 3)):
        batch = {
            b"data": TINY[:n].reshape(n, -1),
            b"fine_labels": TINY_LABELS[:n].tolist(),
            b"coarse_labels": [0] * n,
        }
        (folder / name).write_bytes(pickle.dumps(batch))
    (folder / "meta").write_bytes(
        pickle.dumps({b"fine_label_names": FRUIT, b"coarse_label_names": [b"fruit"]})
    )
    return folder


def test_labels_that_no_name_has(tmp_path):
    folder = cifar10_pickle(tmp_path)
    (folder / "batches.meta").write_bytes(
        pickle.dumps({b"label_names": [b"airplane", b"automobile"]})
    )
    with pytest.raises(
        SourceError, match=r"^CIFAR: .* has labels 0 to 3 and 2 names of classes; damaged\?$"
    ):
        Arrays.cifar(folder)


def pixels(source: Arrays) -> np.ndarray:
    return np.stack(source.read(range(len(source))))


@pytest.mark.parametrize("gz", [False, True])
@pytest.mark.parametrize("dot", "-.")
@pytest.mark.parametrize(("split", "prefix"), [("train", "train"), ("test", "t10k")])
def test_mnist(tmp_path, split, prefix, dot, gz):
    source = Arrays.mnist(mnist(tmp_path, prefix, dot, gz), split)
    np.testing.assert_array_equal(pixels(source)[..., 0], DIGITS)
    assert source.label(np.arange(5)).tolist() == DIGIT_LABELS.tolist()


@pytest.mark.parametrize(
    ("make", "classes"),
    [
        (cifar10_binary, ("airplane", "automobile", "bird", "cat")),
        (cifar10_pickle, ("airplane", "automobile", "bird", "cat")),
        (cifar100_binary, ()),
        (cifar100_pickle, ("apple", "pear", "plum", "quince")),
    ],
)
def test_cifar(tmp_path, make, classes):
    folder = make(tmp_path)
    for split, n in (("train", 10), ("test", 3)):
        source = Arrays.cifar(folder, split)
        assert source.classes == classes
        np.testing.assert_array_equal(pixels(source), TINY[:n].transpose(0, 2, 3, 1))
        assert source.label(np.arange(n)).tolist() == TINY_LABELS[:n].tolist()


def test_cifar_pickle_as_it_was_published(tmp_path):
    """Written by Python 2 and NumPy 1: other module names, byte strings, protocol 2."""
    folder = cifar10_pickle(tmp_path)
    for path in folder.glob("*_batch*"):
        content = path.read_bytes()
        assert b"numpy._core.multiarray" in content
        path.write_bytes(content.replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))
    np.testing.assert_array_equal(pixels(Arrays.cifar(folder)), TINY.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("protocol", range(6))
def test_cifar_pickle_of_any_protocol(tmp_path, protocol):
    np.testing.assert_array_equal(
        pixels(Arrays.cifar(cifar10_pickle(tmp_path, protocol))), TINY.transpose(0, 2, 3, 1)
    )


class Malicious:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return (Path.touch, (self.target,))


class Evaluates:
    def __reduce__(self):
        return (eval, ("1 + 1",))


def test_a_malicious_pickle_runs_nothing(tmp_path):
    target = tmp_path / "was run"
    folder = cifar10_pickle(tmp_path)
    for bad in (Malicious(target), Evaluates()):
        (folder / "data_batch_2").write_bytes(pickle.dumps(bad))
        with pytest.raises(
            SourceError, match=r"CIFAR: cannot read .*data_batch_2: refused to load "
        ):
            Arrays.cifar(folder)
    assert not target.exists()


@pytest.mark.parametrize(
    "content",
    [
        [1, 2],
        None,
        {},
        {b"data": 1, b"labels": [1]},
        {b"data": TINY[:2], b"labels": [0, 1]},
        {b"data": TINY[:2].reshape(2, -1), b"labels": 7},
        {b"data": TINY[:2].reshape(2, -1), b"labels": ["a", None]},
    ],
    ids=lambda value: str(type(value)),
)
def test_a_pickle_of_something_else(tmp_path, content):
    folder = cifar10_pickle(tmp_path)
    (folder / "data_batch_2").write_bytes(pickle.dumps(content))
    with pytest.raises(SourceError) as error:
        Arrays.cifar(folder)
    assert str(error.value) == f"CIFAR: {folder / 'data_batch_2'} is not a CIFAR batch"


def test_a_truncated_pickle(tmp_path):
    folder = cifar10_pickle(tmp_path)
    whole = (folder / "data_batch_1").read_bytes()
    for cut in [*range(0, 400, 3), *range(400, len(whole), 1999), len(whole) - 1]:
        (folder / "data_batch_1").write_bytes(whole[:cut])
        with pytest.raises(SourceError, match="data_batch_1"):
            Arrays.cifar(folder)


def test_a_damaged_pickle(tmp_path):
    """Any byte may be wrong: pixels, or a SourceError, nothing else."""
    folder = cifar10_pickle(tmp_path)
    whole = (folder / "data_batch_1").read_bytes()
    for at in [*range(200), *range(len(whole) - 60, len(whole))]:
        (folder / "data_batch_1").write_bytes(
            whole[:at] + bytes([whole[at] ^ 0x15]) + whole[at + 1 :]
        )
        with contextlib.suppress(SourceError):
            Arrays.cifar(folder)


def test_truncated_idx(tmp_path):
    whole = idx(DIGITS)
    for cut in (0, 1, 3, 4, 5, 6, 8, 15, 16, 17, len(whole) - 1):
        (tmp_path / "x").write_bytes(whole[:cut])
        with pytest.raises(SourceError, match="idx: "):
            read_idx(tmp_path / "x")


def test_truncated_gzip(tmp_path):
    whole = gzip.compress(idx(DIGITS))
    for cut in (0, 1, 5, 11, 100, len(whole) - 1):
        (tmp_path / "x.gz").write_bytes(whole[:cut])
        with pytest.raises(SourceError, match="idx: "):
            read_idx(tmp_path / "x.gz")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (
            b"\0\0\x0d\1" + bytes(8),
            "idx: {path} must start with 00 00 08 (unsigned bytes), got 00 00 0d 01",
        ),
        (
            b"\x1f\x8b\x08\0",
            "idx: {path} must start with 00 00 08 (unsigned bytes), got 1f 8b 08 00",
        ),
        (b"", "idx: {path} must start with 00 00 08 (unsigned bytes), got nothing"),
        (idx(DIGITS) + b"x", "idx: {path} should hold 3920 bytes for shape (5, 28, 28), got 3921"),
        (idx(DIGITS)[:-1], "idx: {path} should hold 3920 bytes for shape (5, 28, 28), got 3919"),
    ],
    ids=["floats", "gzip", "empty", "too long", "too short"],
)
def test_refuses_idx(tmp_path, content, text):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(SourceError) as error:
        read_idx(tmp_path / "x")
    assert str(error.value) == text.format(path=tmp_path / "x")


def test_mnist_parts_must_belong_together(tmp_path):
    mnist(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(DIGIT_LABELS[:4]))
    with pytest.raises(SourceError) as error:
        Arrays.mnist(tmp_path)
    assert (
        str(error.value)
        == f"MNIST: images and labels in {tmp_path} must have the same length, got (5, 28, 28) and"
        " (4,); download both again"
    )


@pytest.mark.parametrize(
    ("size", "what"),
    [
        (0, "must be a multiple of 3073 bytes, got 0; download it again"),
        (3072, "must be a multiple of 3073 bytes, got 3072; download it again"),
    ],
)
def test_torn_cifar_binary(tmp_path, size, what):
    folder = cifar10_binary(tmp_path)
    (folder / "data_batch_3.bin").write_bytes(bytes(size))
    with pytest.raises(SourceError) as error:
        Arrays.cifar(folder)
    assert (
        str(error.value)
        == f"CIFAR: the size of {folder / 'data_batch_3.bin'} {what} if it is truncated"
    )


@pytest.mark.parametrize("read", [Arrays.mnist, Arrays.cifar])
def test_refuses_other_splits(tmp_path, read):
    with pytest.raises(ConfigError) as error:
        read(tmp_path, "val")
    assert str(error.value) == 'split must be "train" or "test", got \'val\''


def test_refuses_other_folders(tmp_path):
    with pytest.raises(SourceError) as error:
        Arrays.mnist(tmp_path)
    assert (
        str(error.value)
        == f"MNIST: {tmp_path} does not hold train-images-idx3-ubyte (or .gz); pass the folder with"
        " the four idx files"
    )
    with pytest.raises(SourceError) as error:
        Arrays.cifar(tmp_path)
    assert (
        str(error.value)
        == f"CIFAR: {tmp_path} holds neither data_batch_1[.bin] nor train[.bin]; is it the unpacked"
        " folder?"
    )
    with pytest.raises(SourceError) as error:
        Arrays.cifar(tmp_path / "gone")
    assert (
        str(error.value) == f"CIFAR: no folder {tmp_path / 'gone'}; pass the one that was unpacked"
    )
