"""Mapped: Python data sets, item by item."""

from __future__ import annotations

import pickle
import threading
import time
from typing import Any

import numpy as np
import pytest
from helpers.needs import require
from helpers.photos import jpeg
from helpers.remotes import uploaded
from PIL import Image

import fastfeed as ff
from fastfeed.errors import ConfigError
from fastfeed.sources import Mapped


def pixels(i: int) -> np.ndarray:
    return np.full((6, 8, 3), 20 * i, np.uint8)


class Items:
    """A data set of these items; one that is an exception is raised."""

    def __init__(self, items: list[Any], **attributes: Any) -> None:
        self.items = items
        self.asked: list[int] = []
        self.__dict__.update(attributes)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> Any:
        self.asked.append(i)
        if isinstance(self.items[i], Exception):
            raise self.items[i]
        return self.items[i]


def labels(source: Mapped) -> list[Any]:
    return source.label(np.arange(len(source))).tolist()


# -- images


def tensor(array: np.ndarray) -> Any:
    require("torch")
    import torch

    return torch.from_numpy(array.transpose(2, 0, 1).copy())


IMAGES: dict[str, Any] = {
    "array": lambda array: array,
    "Pillow": Image.fromarray,
    "RGBA": lambda array: Image.fromarray(array).convert("RGBA"),
    "torch": tensor,
}


@pytest.mark.parametrize("kind", IMAGES)
def test_pixels_of_every_kind(kind):
    source = Mapped(Items([(IMAGES[kind](pixels(i)), i) for i in range(3)]))
    assert source.spec == ff.Spec((None, None, 3), "uint8", "HWC")
    for i, image in enumerate(source.read([0, 1, 2])):
        np.testing.assert_array_equal(image, pixels(i), strict=True)


def test_gray_images():
    gray = [Image.fromarray(pixels(i)[..., 0]) for i in range(2)]
    assert Mapped(Items(gray), image=None, label=None).spec.channels == 1
    mixed = Mapped(Items([pixels(0), gray[1]]), image=None, label=None)
    np.testing.assert_array_equal(mixed.read([1])[0], pixels(1), strict=True)


def test_bytes_paths_and_structs(tmp_path):
    blob = jpeg(1, (20, 30))
    (tmp_path / "a.jpg").write_bytes(blob)
    remote = uploaded(tmp_path)
    for image in (
        blob,
        bytearray(blob),
        str(tmp_path / "a.jpg"),
        tmp_path / "a.jpg",
        f"{remote}/a.jpg",
        {"bytes": blob, "path": None},
        {"bytes": None, "path": str(tmp_path / "a.jpg")},
    ):
        source = Mapped(Items([{"img": image, "y": 3}]), image="img", label="y")
        assert source.spec.encoded and source.read([0]) == [blob] and labels(source) == [3]
    lost = Mapped(Items([str(tmp_path / "no.jpg")]), image=None, label=None)
    assert lost.read([0])[0].reason == "not_found"


def test_images_of_one_size_need_no_resize():
    dataset = Items([(pixels(i), i) for i in range(4)])
    with ff.Feed(Mapped(dataset, size=(6, 8)), [], batch=4, shuffle=False) as feed:
        assert next(iter(feed)).images[:, 0, 0, 0].tolist() == [0, 20, 40, 60]
    with pytest.raises(ConfigError, match="size is of images that are pixels already"):
        Mapped(Items([jpeg(0, (9, 9))]), image=None, label=None, size=(9, 9))


# -- labels


@pytest.mark.parametrize(
    ("given", "options", "spec", "expected"),
    [
        ([2, 0, 1], {}, ((), "int64"), [2, 0, 1]),
        ([np.int16(2), np.array(0), True], {}, ((), "int64"), [2, 0, 1]),
        (["b", "a", "b"], {"classes": ["a", "b"]}, ((), "int64"), [1, 0, 1]),
        ([0.5, np.float64(1), 2.5], {}, ((), "float32"), [0.5, 1, 2.5]),
        ([[1, 2], [3, 4], (5, 6)], {}, ((2,), "float32"), [[1, 2], [3, 4], [5, 6]]),
        ([9, 9, 9], {"labels": [1, 0, 2]}, ((), "int64"), [1, 0, 2]),
        ([9, 9, 9], {"labels": ["y", "x", "y"]}, ((), "int64"), [1, 0, 1]),
        ([9, 9, 9], {"label": None}, ((), "int64"), [-1, -1, -1]),
        ([9, 9, 9], {"label_kind": "none"}, ((), "int64"), [-1, -1, -1]),
    ],
)
def test_labels(given, options, spec, expected):
    source = Mapped(Items([(pixels(i), label) for i, label in enumerate(given)]), **options)
    assert source.label_spec == spec
    assert labels(source) == labels(pickle.loads(pickle.dumps(source))) == expected


def test_labels_and_columns_are_read_with_the_image():
    dataset = Items([(pixels(i), i % 2, f"t{i}") for i in range(4)])
    source = Mapped(dataset, columns={"text": 2})
    dataset.asked.clear()
    source.read([0, 1, 2, 3])
    assert labels(source) == labels(source) == [0, 1, 0, 1]
    texts = [{"text": f"t{i}"} for i in range(4)]
    assert source.column_values([0, 1, 2, 3]) == texts
    assert dataset.asked == [0, 1, 2, 3]
    assert source.column_values([3]) == texts[3:]  # they were handed over


def test_targets_of_the_data_set():
    dataset = Items([(pixels(i), i) for i in range(3)], targets=[0, 1, 2], classes=["a", "b", "c"])
    source = Mapped(dataset)
    dataset.asked.clear()
    assert labels(source) == [0, 1, 2] and not dataset.asked
    assert source.classes == ("a", "b", "c")
    changed = Mapped(Items([(pixels(i), i + 5) for i in range(3)], targets=[0, 1, 2]))
    assert labels(changed) == [5, 6, 7]  # by a target_transform, for example


def test_balanced_reads_all_labels():
    dataset = Items([(pixels(i), int(i == 0)) for i in range(8)])
    ops = [ff.Resize((4, 4))]
    source = Mapped(dataset, classes=["a", "b"])
    with ff.Feed(source, ops, batch=8, shuffle=ff.Balanced()) as feed:
        assert sorted(next(iter(feed)).labels.tolist()) == [0] * 4 + [1] * 4


# -- columns


def test_columns_of_every_kind():
    items = [
        {"image": pixels(i), "label": i, "text": f"t{i}", "size": [i, 2], "n": i} for i in range(4)
    ]
    source = Mapped(Items(items), "image", "label", ["text", "size", "n"])
    with ff.Feed(source, [ff.Resize((4, 4))], batch=4, shuffle=False) as feed:
        columns = next(iter(feed)).columns
    assert columns["text"].tolist() == ["t0", "t1", "t2", "t3"]
    np.testing.assert_array_equal(columns["size"], [[0, 2], [1, 2], [2, 2], [3, 2]])
    assert columns["n"].tolist() == [0, 1, 2, 3]
    by_place = Mapped(Items([(pixels(0), 1, "c")]), columns={"caption": 2})
    assert by_place.columns(np.array([0]))["caption"].tolist() == ["c"]


# -- failures


def test_an_exception_is_the_failure_of_its_sample():
    items: list[Any] = [(pixels(i), i) for i in range(6)]
    items[2] = ValueError("a broken item")
    items[4] = (pixels(4), "a text")
    items[5] = (pixels(5).astype(np.float32), 5)
    source = Mapped(Items(items), columns={"y": 1})
    for i, text in (
        (2, "ValueError: a broken item"),
        (4, "'a text' is not in classes"),
        (5, "an image of float32[6, 8, 3]; uint8 is needed, channels last: leave transforms"),
    ):
        failure = source.read([i])[0]
        assert isinstance(failure, ff.Failure) and failure.uri == f"Items[{i}]"
        assert failure.reason == "internal" and text in failure.detail
    with ff.Feed(source, [ff.Resize((4, 4))], batch=6, shuffle=False) as feed:
        batch = next(iter(feed))
    assert set(batch.labels.tolist()) <= {0, 1, 3} and len(batch) == 6
    assert batch.columns["y"].tolist() == batch.labels.tolist()


def test_items_of_another_kind_are_bad():
    source = Mapped(Items([(pixels(0), 1), (jpeg(0, (9, 9)), 1), (pixels(2), 0.5)]))
    assert "a label of another kind" in source.read([2])[0].detail
    with ff.Feed(source, [ff.Resize((4, 4))], batch=3, shuffle=False) as feed:
        assert next(iter(feed)).ids.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("dataset", "options", "text"),
    [
        (iter([]), {}, "needs a data set with __len__ and __getitem__, got list_iterator"),
        (Items([]), {}, "none of the first 0 items of Items can be used: it is empty"),
        (Items([(pixels(0), 1)]), {"label": 2}, "LookupError: no 2 in an item of type tuple"),
        (Items([{"a": 1}]), {"image": "b"}, "no 'b' in an item of type dict with 'a'"),
        (Items([(3, 1)]), {}, "an image of int, which is no image"),
        (Items([(pixels(0), "cat")]), {}, "label 'cat' is not in classes"),
        (Items([(pixels(0), 1)]), {"labels": [1, 2]}, "one label per image, got 2 for 1 images"),
        (Items([(pixels(0), 1)]), {"columns": "x"}, "columns must be a list of names, got 'x'"),
    ],
)
def test_refused(dataset, options, text):
    with pytest.raises(ConfigError) as error:
        Mapped(dataset, **options)
    assert text in str(error.value)


# -- threads and processes


class Busy(Items):
    """Notes how many threads are in `__getitem__` at once."""

    inside = 0
    most = 0

    def __getitem__(self, i: int) -> Any:
        self.inside += 1
        self.most = max(self.most, self.inside)
        if self.meeting is not None:
            self.meeting.wait(20)
        else:
            time.sleep(0)
        self.inside -= 1
        return self.items[i]


@pytest.mark.parametrize("parallel", [False, True])
def test_one_thread_at_a_time_unless_parallel(parallel):
    items = [(pixels(i), i) for i in range(8)]
    dataset = Busy(items, meeting=None)
    source = Mapped(dataset, parallel=parallel)
    dataset.meeting = threading.Barrier(2) if parallel else None
    threads = [threading.Thread(target=source.read, args=([i],)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert dataset.most >= 2 if parallel else dataset.most == 1


def test_prints_its_cost():
    source = Mapped(Items([(pixels(0), 0)], classes=["a", "b"]))
    assert repr(source) == "Mapped(Items): 1 images of 2 classes, HWC uint8[?, ?, 3], by Python"
