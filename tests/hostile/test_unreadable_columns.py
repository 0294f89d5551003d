"""A column that cannot be read: its sample is bad, the column is named, and no other column of it
is lost.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.mosaic import mds_shard
from helpers.photos import folder, jpeg
from helpers.records import example, frame
from helpers.remotes import uploaded
from helpers.shards import tar_of

import fastfeed as ff
from fastfeed.errors import ConfigError, SampleError
from fastfeed.faults import Failure
from fastfeed.spec import ENCODED

LATIN1 = "un café".encode("latin-1")
TEXTS = [b"a red tent", LATIN1, b"a blue car", b"a boat"]
BAD = 1


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def tar(root: Path) -> Path:
    members = [
        (f"{i}.{extension}", data)
        for i, text in enumerate(TEXTS)
        for extension, data in (
            ("jpg", jpeg(i)),
            ("text", text),
            ("vector.npy", npy(np.arange(3.0) + i)),
        )
    ]
    (root / "a.tar").write_bytes(tar_of(members))
    return root / "a.tar"


def wids(root: Path) -> Path:
    index = {"wids_version": 1, "shardlist": [{"url": tar(root).name, "nsamples": len(TEXTS)}]}
    (root / "index.json").write_text(json.dumps(index))
    return root / "index.json"


def records(root: Path) -> Path:
    features = [
        {"image/encoded": jpeg(i), "text": text, "vector.npy": [0.0 + i, 1 + i, 2 + i]}
        for i, text in enumerate(TEXTS)
    ]
    (root / "a.tfrecord").write_bytes(b"".join(frame(example(feature)) for feature in features))
    return root / "a.tfrecord"


def mds(root: Path) -> Path:
    kinds = {"image": "jpeg", "text": "str", "vector.npy": "ndarray:float32:3"}
    samples = [
        {"image": jpeg(i), "text": text, "vector.npy": (np.arange(3, dtype="<f4") + i).tobytes()}
        for i, text in enumerate(TEXTS)
    ]
    (root / "a.mds").write_bytes(mds_shard(kinds, samples))
    return root / "a.mds"


KINDS: dict[str, tuple[Callable[[Path], Path], type]] = {
    "tar": (tar, ff.TarShards),
    "wids": (wids, ff.TarShards),
    "tfrecord": (records, ff.TFRecords),
    "mds": (mds, ff.MDSShards),
}


@pytest.fixture(params=KINDS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> ff.Source:
    make, kind = KINDS[request.param]
    return kind(make(tmp_path), label=None, columns=["text", "vector.npy"])


def batch_of(source: ff.Source, **options: Any) -> tuple[ff.Batch, tuple[Failure, ...]]:
    with ff.Feed(source, [ff.Resize((8, 8))], batch=len(source), shuffle=False, **options) as feed:
        return next(iter(feed)), feed.stats().bad


def test_the_sample_is_bad_and_the_column_named(opened: ff.Source) -> None:
    batch, (failure,) = batch_of(opened, on_bad="mask")
    assert (failure.id, failure.stage, failure.reason) == (BAD, "read", "corrupt")
    assert failure.detail.startswith("text: ")
    assert batch.weights.tolist() == [1, 0, 1, 1]
    assert batch.columns["text"].tolist() == ["a red tent", "", "a blue car", "a boat"]


def test_no_other_column_is_lost(opened: ff.Source) -> None:
    expected = [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]
    assert batch_of(opened, on_bad="mask")[0].columns["vector.npy"].tolist() == expected
    assert opened.columns(np.arange(4))["vector.npy"].tolist() == expected  # type: ignore[attr-defined]


def test_another_sample_takes_its_place_with_its_columns(opened: ff.Source) -> None:
    batch, _ = batch_of(opened)
    other = int(batch.ids[BAD])
    assert other != BAD
    assert batch.columns["text"][BAD].encode() == TEXTS[other]
    assert batch.columns["vector.npy"][BAD].tolist() == [other, other + 1, other + 2]


def test_the_run_ends_where_that_was_asked_for(opened: ff.Source) -> None:
    with pytest.raises(SampleError, match=r"sample 1 is bad in stage read: .*: corrupt \(text: "):
        batch_of(opened, on_bad="raise")


def test_a_partner_in_mixing_is_replaced_as_well(opened: ff.Source) -> None:
    source = ff.Objects(opened, boxes=[[[0, 0, 4, 4]]] * 4)
    with ff.Feed(source, [ff.Resize((8, 8)), ff.Mosaic()], batch=4, shuffle=False) as feed:
        batch = next(iter(feed))
    assert batch.ids[BAD] != BAD
    assert batch.columns["vector.npy"][:, 0].tolist() == batch.ids.tolist()


def test_a_job_has_it_among_its_bad_samples(opened: ff.Source) -> None:
    good, bad, *_ = opened.extra_columns(range(4))  # type: ignore[attr-defined]
    assert good == {"text": "a red tent", "vector.npy": [0, 1, 2]}
    assert isinstance(bad, Failure)
    assert bad.detail.startswith("text: ")


@pytest.mark.parametrize("wrap", ["mixture", "objects"])
def test_sources_of_sources_say_so_too(opened: ff.Source, wrap: str, tmp_path: Path) -> None:
    if wrap == "objects":
        source: Any = ff.Objects(opened, boxes=[[[0, 0, 4, 4]]] * 4)
    else:
        (tmp_path / "other").mkdir()
        source = ff.Mixture(
            {
                "a": ff.TFRecords(records(tmp_path / "other"), label=None, columns=["text"]),
                "b": opened,
            }
        )
    count = source.sources[0].__len__() if wrap == "mixture" else 0
    with ff.Feed(
        source, [ff.Resize((8, 8))], batch=len(source), shuffle=False, on_bad="mask"
    ) as feed:
        batch = next(iter(feed))
        bad = {failure.id: failure for failure in feed.stats().bad}
    assert set(bad) == {count + BAD, BAD}
    assert all(failure.detail.startswith("text: ") for failure in bad.values())
    assert [batch.columns["text"][row] == "" for row in range(len(batch))] == (
        batch.weights == 0
    ).tolist()


def test_a_text_too_long(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(
        tar_of([("0.jpg", jpeg(0)), ("0.txt", b"x" * 1_200_000), ("0.json", b"{}")])
    )
    (values,) = ff.TarShards(tmp_path, label=None, columns=["txt", "json"]).column_values([0]) or []
    assert (values["txt"].reason, values["json"]) == ("bomb", {})
    assert values["txt"].detail == "txt: 1200000 bytes, the limit is 1048576"


@pytest.mark.parametrize(
    "content",
    [
        npy(np.arange(6.0))[:-1],
        npy(np.arange(6.0)).replace(b"(6,)", b"(99999999999,)".ljust(4)),
        npy(np.arange(6.0))[:40],
        b"\x93NUMPY\x01\x00\x10\x00{'descr': '|O', ",
        b"no array",
        b"",
        npy(np.array([{}], object)),
    ],
)
def test_arrays_that_are_none(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(
        tar_of([("0.jpg", jpeg(0)), ("0.npy", content), ("0.txt", b"text")])
    )
    (values,) = ff.TarShards(tmp_path, label=None, columns=["npy", "txt"]).column_values([0]) or []
    assert (values["npy"].reason, values["txt"]) == ("corrupt", "text")


def test_columns_of_remote_shards(tmp_path: Path) -> None:
    tar(tmp_path)
    source = ff.TarShards(f"{uploaded(tmp_path)}/a.tar", label=None, columns=["text"])
    batch, (failure,) = batch_of(source, on_bad="mask")
    assert (failure.id, failure.reason) == (BAD, "corrupt")
    assert batch.columns["text"].tolist() == ["a red tent", "", "a blue car", "a boat"]


class Flaky(ff.TarShards):
    """Storage gives a column at the second try only."""

    tries = 0

    def column_values(self, ids: Sequence[int]) -> list[dict[str, Any]] | None:
        rows = super().column_values(ids)
        self.tries += len(ids)
        if rows and self.tries <= len(TEXTS):
            rows[0]["text"] = Failure(
                int(ids[0]), self.uri(ids[0]), "read", "io_error", "text: reset"
            )
        return rows


def test_storage_that_fails_once_is_asked_again(tmp_path: Path) -> None:
    source = Flaky(tar(tmp_path), label=None, columns=["text:bytes"])
    batch, bad = batch_of(source)
    assert (batch.columns["text"].tolist(), bad) == (TEXTS, ())


@pytest.mark.parametrize(
    ("kind", "name"), [("tar", "caption"), ("tfrecord", "caption"), ("mds", "caption")]
)
def test_a_name_that_no_sample_has_is_refused(kind: str, name: str, tmp_path: Path) -> None:
    make, source = KINDS[kind]
    with pytest.raises(ConfigError, match=rf"no .*column '{name}'.*text.*vector\.npy"):
        source(make(tmp_path), label=None, columns=["text", name])


def test_a_name_that_some_samples_lack(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(
        tar_of([("0.jpg", jpeg(0)), ("1.jpg", jpeg(1)), ("1.txt", b"a boat")])
    )
    batch, bad = batch_of(ff.TarShards(tmp_path, label=None, columns=["txt"]), on_bad="raise")
    assert (batch.columns["txt"].tolist(), bad) == (["", "a boat"], ())


class Own:
    """A source of one's own; what it has besides is given."""

    spec, classes, fingerprint = ENCODED, (), "own"

    def __init__(self, files: list[Path], **methods: Any) -> None:
        self.files = files
        for name, method in methods.items():
            setattr(self, name, method)

    def __len__(self) -> int:
        return len(self.files)

    def uri(self, i: int) -> str:
        return str(self.files[i])

    def read(self, ids: Sequence[int]) -> list[Any]:
        return [self.files[i].read_bytes() for i in ids]

    def label(self, ids: np.ndarray) -> np.ndarray:
        return np.zeros(len(ids), np.int64)


def test_each_optional_method_counts_alone(tmp_path: Path) -> None:
    files = sorted(folder(tmp_path / "p", {"a": 4}).rglob("*.jpg"))
    assert batch_of(Own(files, columns=lambda ids: {"n": ids * 2}))[0].columns["n"].tolist() == [
        0,
        2,
        4,
        6,
    ]
    weights = np.array([1, 0.5, 2, 0], np.float32)
    assert (
        batch_of(Own(files, weights=lambda ids: weights[ids]))[0].weights.tolist()
        == weights.tolist()
    )
    boxes = batch_of(Own(files, boxes=lambda ids: np.tile([0.0, 0, 8, 8], (len(ids), 1))))[0]
    assert not np.array_equal(boxes.images, batch_of(Own(files))[0].images)
    mask = np.full((40, 56), 3, np.uint8)
    masked = batch_of(Own(files, masks=lambda ids: [mask] * len(ids)))[0]
    assert masked.masks is not None
    assert set(np.unique(masked.masks)) == {3}
    mixed = ff.Mixture(
        {
            "a": Own(files, columns=lambda ids: {"n": ids}),
            "b": Own(files, columns=lambda ids: {"n": ids}),
        }
    )
    assert sorted(batch_of(mixed)[0].columns["n"].tolist()) == [0, 0, 1, 1, 2, 2, 3, 3]
    objects = ff.Objects(Own(files, columns=lambda ids: {"n": ids}), boxes=[[[0, 0, 4, 4]]] * 4)
    assert batch_of(objects)[0].columns["n"].tolist() == [0, 1, 2, 3]


def test_objects_need_their_room(tmp_path: Path) -> None:
    files = sorted(folder(tmp_path / "p", {"a": 2}).rglob("*.jpg"))
    with pytest.raises(ConfigError, match=r"Own has objects\(\), but not `most`; add it"):
        ff.Feed(Own(files, objects=lambda ids: None), [ff.Resize((8, 8))], batch=2)
