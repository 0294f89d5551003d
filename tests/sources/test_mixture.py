"""Several sources as one: ids, labels, failures and what sources say of their samples."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.feeds import NUMBERS
from helpers.photos import broken, folder
from helpers.shards import shard_folder

from fastfeed.errors import ConfigError
from fastfeed.sources import Arrays, ImageFolder, Mixture, TarShards


class Said:
    """A source of numbers that says more of each: columns and, where told, weights and boxes."""

    def __init__(self, weights: bool = False, boxes: bool = False, **columns: np.ndarray) -> None:
        self._arrays = Arrays(NUMBERS, np.arange(50))
        self.spec, self.classes, self.fingerprint = self._arrays.spec, (), "said"
        self._weights, self._boxes, self._columns = weights, boxes, columns

    def __len__(self) -> int:
        return 50

    def __getattr__(self, name: str) -> Any:
        return getattr(self._arrays, name)

    def weights(self, ids: np.ndarray) -> np.ndarray | None:
        return (np.asarray(ids) / 10).astype(np.float32) if self._weights else None

    def boxes(self, ids: np.ndarray) -> np.ndarray | None:
        return np.tile([1.0, 2.0, 3.0, 4.0], (len(ids), 1)) if self._boxes else None

    def columns(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        return {name: column[ids] for name, column in self._columns.items()}


@pytest.fixture
def both(tmp_path: Path) -> Mixture:
    photos = ImageFolder(folder(tmp_path / "photos", {"b": 3, "c": 2}))
    return Mixture(
        {
            "photos": photos,
            "tar": TarShards(shard_folder(tmp_path / "tar", (2, 4)), classes=("a", "b", "d")),
        }
    )


def test_ids_follow_one_another(both: Mixture):
    photos, tar = both.sources
    assert len(both) == 11
    assert both.read(range(11)) == photos.read(range(5)) + tar.read(range(6))
    assert both.read([10, 0, 5]) == [tar.read([5])[0], photos.read([0])[0], tar.read([0])[0]]
    assert [both.uri(i) for i in (4, 5)] == [photos.uri(4), tar.uri(0)]
    assert both.bounds.tolist() == [0, 5, 7, 11]
    assert [both.shard(k) for k in range(3)] == ["photos", tar.shard(0), tar.shard(1)]
    assert both.sizes(np.array([5, 0]))[0] == len(tar.read([0])[0])


def test_classes_are_merged_by_name(both: Mixture):
    assert both.classes == ("a", "b", "c", "d")
    names = [both.classes[label] for label in both.label(np.arange(11))]
    assert names == ["b"] * 3 + ["c"] * 2 + ["a", "b", "d", "a", "b", "d"]


def test_failures_carry_the_id_here(tmp_path: Path):
    root = folder(tmp_path, {"a": 3})
    (root / "a" / "0001.jpg").write_bytes(b"")
    (root / "a" / "0002.jpg").write_bytes(broken("truncated"))
    one = ImageFolder(root)
    failure = Mixture([one, one]).read([4])[0]
    assert (failure.id, failure.reason, failure.uri) == (4, "empty", one.uri(1))


def test_what_sources_say(both: Mixture):
    plain = Arrays(NUMBERS, np.arange(50))
    years, more = np.arange(1900, 1950), np.linspace(0, 1, 50)
    mixed = Mixture(
        [Said(weights=True, year=years, more=more), Said(boxes=True, year=years.astype(np.float64))]
    )
    ids = np.array([60, 7, 99])
    assert mixed.weights(ids).tolist() == pytest.approx([1, 0.7, 1])
    np.testing.assert_array_equal(mixed.boxes(ids), [[1, 2, 3, 4], [np.nan] * 4, [1, 2, 3, 4]])
    assert {name: column.tolist() for name, column in mixed.columns(ids).items()} == {
        "year": [1910, 1907, 1949]
    }
    assert mixed.columns(np.empty(0, np.int64))["year"].shape == (0,)
    none = Mixture([plain, Said()])
    assert none.weights(ids) is None and none.boxes(ids) is None and none.columns(ids) == {}


def test_remote_and_local_are_begun_together(both: Mixture):
    class Remote:
        spec, classes, remote, fingerprint = both.spec, both.classes, True, "remote"

        def __init__(self) -> None:
            self.begun: list[int] = []

        def __len__(self) -> int:
            return 4

        def label(self, ids: np.ndarray) -> np.ndarray:
            return np.zeros(len(ids), np.int64)

        def fetch(self, ids: Any) -> list[Future[bytes]]:
            self.begun += ids
            futures: list[Future[bytes]] = [Future() for _ in ids]
            for future, i in zip(futures, ids, strict=True):
                future.set_result(bytes([i]))
            return futures

    remote = Remote()
    mixed = Mixture([both, remote])  # type: ignore[list-item]
    assert mixed.remote and not both.remote
    pending = mixed.fetch([0, 12, 10, 14])
    assert remote.begun == [1, 3]
    assert [one.result() for one in pending] == [*both.read([0]), b"\1", *both.read([10]), b"\3"]


GRAY, NAMED = Arrays(NUMBERS[..., 0]), Arrays(NUMBERS, np.zeros(50, int), classes=["a", "b"])
REFUSED = [
    (lambda a: Mixture([]), "Mixture needs at least one source, got none"),
    (lambda a: Mixture([a, a], [1]), "weights must be 2 numbers above 0, one per source, got [1]"),
    (lambda a: Mixture([a, a], [1, 0]), "leave a source out instead of giving it 0"),
    (lambda a: Mixture([a, a], [1, float("nan")]), "weights must be 2 numbers above 0"),
    (lambda a: Mixture({"x": a}, {"y": 1.0}), "weights must name the sources x, got y"),
    (
        lambda a: Mixture({"x": a, "gray": GRAY}),
        "all sources must yield the same, got HWC uint8[8, 8, 3]",
    ),
    (lambda a: Mixture({"x": a, "n": NAMED}), "source 'x' has no class names"),
]


@pytest.mark.parametrize(("make", "text"), REFUSED, ids=[text[:30] for _, text in REFUSED])
def test_refuses(make: Any, text: str):
    with pytest.raises(ConfigError) as error:
        make(Arrays(NUMBERS, np.arange(50)))
    assert text in str(error.value)


def targets(labels, kind=None, classes=()):
    pixels = np.zeros((len(labels), 4, 4), np.uint8)
    return Arrays(pixels, labels, label_kind=kind, classes=classes)


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        ([0.5, 1.5], [2.5], None),
        (np.ones((2, 3)), np.zeros((1, 3)), None),
        (["a", "b"], ["c"], "text"),
    ],
)
def test_targets_of_one_kind_are_mixed(one, other, kind):
    mixture = Mixture([targets(one, kind), targets(other, kind)])
    found = mixture.label(np.array([2, 0, 1]))
    wanted = np.concatenate([np.asarray(other), np.asarray(one)])
    assert found.tolist() == wanted.tolist()
    assert found.dtype == (object if kind == "text" else np.float32)
    assert mixture.label_spec == mixture.sources[0].label_spec and not mixture.classes


def test_classes_of_multi_hot_labels_are_merged():
    one = targets([["dog"], ["cat"]], "multi")
    other = targets([["wolf", "dog"]], "multi")
    mixture = Mixture([one, other])
    assert mixture.classes == ("cat", "dog", "wolf")
    assert mixture.label_spec == ((3,), "float32")
    assert mixture.label(np.arange(3)).tolist() == [[0, 1, 0], [1, 0, 0], [0, 1, 1]]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (targets([0.5]), targets([1])),
        (targets([0.5]), targets(np.ones((1, 2)))),
        (targets([["a"]], "multi"), targets([0], classes=("a",))),
        (targets(["a"], "text"), targets([0.5])),
    ],
)
def test_targets_of_several_kinds_are_refused(one, other):
    with pytest.raises(ConfigError, match="labels of all sources must be of one kind and shape"):
        Mixture([one, other])
