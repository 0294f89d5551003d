"""Table: tables and images on a web server."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.photos import jpeg
from helpers.tables import image_bytes, labels, write
from helpers.web import Web, web

from fastfeed.errors import SourceError
from fastfeed.feed.feed import Feed
from fastfeed.ops import Resize
from fastfeed.sources import Storage, Table
from fastfeed.sources.tables import read_files as reading
from fastfeed.storage.reads import MappedRead
from fastfeed.storage.retry import RetryPolicy
from fastfeed.storage.shard_files import ShardReader

IMAGES = {f"/photos/{i}.jpg": b"image %d" % i for i in range(6)}
BLOBS = [bytes([i]) * 3000 for i in range(24)]


@pytest.fixture
def server() -> Iterator[Web]:
    with web(IMAGES) as served:
        yield served


def put(server: Web, folder: Path, name: str, columns: dict[str, list], **more: object) -> str:
    """A table on the server."""
    server.files[f"/{name}"] = write(folder / name, columns, **more).read_bytes()
    return f"{server.url}/{name}"


def allowed(server: Web) -> dict[str, Any]:
    """What lets a local table name images of this machine's server."""
    return {"allow_scheme": ["http"], "allow_host": [server.url.removeprefix("http://")]}


def impatient() -> Storage:
    return Storage(policy=RetryPolicy(deadline_s=5, backoff_s=0.001))


def test_images_by_url(tmp_path, server):
    paths = [
        f"{server.url}/photos/1.jpg",
        "2.jpg",
        None,
        f"{server.url}/gone.jpg",
        f"{server.url}/photos/1.jpg",
    ]
    (tmp_path / "2.jpg").write_bytes(b"a local one")
    source = Table(write(tmp_path / "t.csv", {"path": paths}), image="path", **allowed(server))
    assert source.remote
    found = source.read(range(5))
    assert found[:2] == [b"image 1", b"a local one"]
    assert [(f.uri, f.reason, f.detail) for f in found[2:4]] == [
        (f"{tmp_path}/t.csv#2", "not_found", "row 2: no path"),
        (f"{server.url}/gone.jpg", "not_found", ""),
    ]
    assert source.uri(4) == f"{server.url}/photos/1.jpg#row 4"
    assert [pending.result(5) for pending in source.fetch([4, 1, 0])] == [
        b"image 1",
        b"a local one",
        b"image 1",
    ]


@pytest.mark.parametrize("format", ["csv", "jsonl", "parquet"])
def test_a_table_next_to_its_images(tmp_path, server, format):
    columns = {"path": [f"./{i}.jpg" for i in range(6)], "kind": list("abcabc")}
    server.files["/photos/t." + format] = write(tmp_path / f"t.{format}", columns).read_bytes()
    source = Table(f"{server.url}/photos/t.{format}", image="path", label="kind")
    assert source.uri(3) == f"{server.url}/photos/3.jpg"
    assert (labels(source), source.read([5, 0])) == ([0, 1, 2, 0, 1, 2], [b"image 5", b"image 0"])
    again = pickle.loads(pickle.dumps(source))
    assert (again.read([1]), again.fingerprint) == ([b"image 1"], source.fingerprint)


def test_a_remote_table_with_a_root(tmp_path, server):
    table = put(server, tmp_path, "t.csv", {"path": ["0.jpg", "../photos/1.jpg"]})
    assert Table(table, image="path", root=f"{server.url}/photos/").read([0, 1]) == [
        b"image 0",
        b"image 1",
    ]
    (tmp_path / "0.jpg").write_bytes(b"a local one")
    local = Table(table, image="path", root=tmp_path)
    assert not local.remote
    assert local.read([0]) == [b"a local one"]
    absolute = Table(
        put(server, tmp_path, "u.csv", {"path": [f"{tmp_path}/0.jpg"]}),
        image="path",
        allow_path=[tmp_path],
    )
    assert absolute.read([0]) == [b"a local one"]


def test_an_empty_image(tmp_path, server):
    server.files["/photos/0.jpg"] = b""
    table = write(tmp_path / "t.csv", {"path": [f"{server.url}/photos/0.jpg"]})
    (bad,) = Table(table, image="path", **allowed(server)).read([0])
    assert bad.reason == "empty"


def test_a_table_that_is_not_there(server):
    for name in ("t.csv", "t.parquet"):
        with pytest.raises(SourceError) as error:
            Table(f"{server.url}/{name}", image="path")
        assert str(error.value).startswith(f"Table: cannot open {server.url}/{name}: ")


def test_a_long_table_is_read_in_pieces(tmp_path, server, monkeypatch):
    monkeypatch.setattr(reading, "_BLOCK", 100)
    columns = {
        "path": [f"{i}.jpg" for i in range(500)],
        "text": ["ä\n" * (i % 7) for i in range(500)],
    }
    for name in ("t.csv", "t.jsonl"):
        source = Table(put(server, tmp_path, name, columns), image="path", columns=["text"])
        assert source.columns(np.arange(500))["text"].tolist() == columns["text"]
        parts = [stop - start for path, start, stop in server.parts if path == f"/{name}"]
        assert max(parts) == 100 and sum(parts) == len(server.files[f"/{name}"])
    server.files["/t.csv"] = server.files["/t.csv"].rstrip(b"\r\n")
    assert len(Table(f"{server.url}/t.csv", image="path")) == 500


def test_a_table_that_becomes_shorter_while_it_is_read(tmp_path, server, monkeypatch):
    monkeypatch.setattr(reading, "_BLOCK", 100)
    table = put(server, tmp_path, "t.csv", {"path": [f"{i}.jpg" for i in range(500)]})
    whole, _ = reading.find_table(table, impatient())
    server.replace("/t.csv", server.files["/t.csv"][:1000])
    with pytest.raises(SourceError, match=f"^Table: cannot read {table}: "):
        list(reading.read_files(whole, "path", {}, None, impatient()).__next__().parts)


# -- images in Parquet


def held(server: Web, folder: Path, per_group: int, **more: object) -> Table:
    server.files["/t.parquet"] = image_bytes(
        folder / "t.parquet", BLOBS, per_group, label=list(range(24))
    ).read_bytes()
    return Table(f"{server.url}/t.parquet", image="image", label="label", **more)


def test_row_groups_are_fetched_once(tmp_path, server):
    source = held(server, tmp_path, 4)
    assert source.remote
    server.parts.clear()
    assert source.read([23, 20, 4, 5, 21]) == [BLOBS[i] for i in (23, 20, 4, 5, 21)]
    assert len(server.parts) == 2, "two row groups"
    pending = source.fetch(range(24))
    assert [p.result(5) for p in pending] == BLOBS
    assert len(server.parts) == 6
    assert all(4 * 3000 < stop - start < 4 * 3100 for _, start, stop in server.parts), (
        "nothing but images"
    )


class Fetches:
    """Counts the row groups that were begun, and holds them up while `go_on` is not set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.waiting, self.go_on = 0, threading.Event(), threading.Event()
        self.go_on.set()
        fetch = ShardReader.fetch

        def counted(*place: Any) -> Any:
            self.count += 1
            return MappedRead(fetch(*place), self._wait)

        monkeypatch.setattr(ShardReader, "fetch", counted)

    def _wait(self, data: Any) -> Any:
        self.waiting.set()
        self.go_on.wait()
        return data


def test_no_more_than_half_of_the_memory_is_on_its_way(tmp_path, server, monkeypatch):
    # five row groups
    source, fetches = (held(server, tmp_path, 4, memory=60_000), Fetches(monkeypatch))
    pending = source.fetch(range(24))
    assert fetches.count == 2
    assert [p.result(5) for p in pending] == BLOBS
    assert fetches.count == 6


def test_what_no_one_waits_for_makes_room(tmp_path, server, monkeypatch):
    # two row groups
    source, fetches = (held(server, tmp_path, 4, memory=24_000), Fetches(monkeypatch))
    (first,) = source.fetch([0])
    source.fetch([4])
    assert fetches.count == 1
    first.cancel()
    source.fetch([4])
    assert fetches.count == 2


def test_a_wait_may_end_before_the_row_group_is_there(tmp_path, server, monkeypatch):
    source, fetches = held(server, tmp_path, 4), Fetches(monkeypatch)
    fetches.go_on.clear()
    one, other = source.fetch([0, 1])
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(one.result)
        fetches.waiting.wait()
        for _ in range(3):
            with pytest.raises(NotYet):
                other.result(0)
        fetches.go_on.set()
        assert (found.result(), other.result(5)) == (BLOBS[0], BLOBS[1])
    assert fetches.count == 1


def test_a_row_group_that_is_gone(tmp_path, server):
    source = held(server, tmp_path, 4)
    data = server.files.pop("/t.parquet")
    assert [(f.id, f.reason) for f in source.read([0, 1])] == [(0, "not_found"), (1, "not_found")]
    server.files["/t.parquet"] = data
    assert source.read([8]) == [BLOBS[8]]


def test_footers_and_labels_of_many_files(tmp_path, server):
    for k in range(6):
        name = f"part-{k:02}.parquet"
        path = image_bytes(tmp_path / name, BLOBS[k : k + 4], 2, kind=["x", f"y{k % 3}", None, "x"])
        server.files[f"/{name}"] = path.read_bytes()
    source = Table(server.url + "/part-{00..05}.parquet", image="image", label="kind")
    assert source.classes == ("x", "y0", "y1", "y2")
    assert labels(source) == [code for k in range(6) for code in (0, 1 + k % 3, -1, 0)]
    assert source.read([0, 23, 4]) == [BLOBS[0], BLOBS[8], BLOBS[1]]


def test_one_of_many_files_is_damaged(tmp_path, server):
    for k in range(6):
        server.files[f"/{k}.parquet"] = image_bytes(
            tmp_path / "t.parquet", BLOBS[:4], 2
        ).read_bytes()
    server.files["/4.parquet"] = server.files["/4.parquet"][:-1]
    with pytest.raises(SourceError, match=f"^Table: {server.url}/4.parquet ends with "):
        Table(server.url + "/{0..5}.parquet", image="image")


# -- the cache


def test_images_are_taken_from_the_cache_while_they_are_the_same(tmp_path, server):
    table = write(tmp_path / "t.csv", {"path": [f"{server.url}/photos/{i}.jpg" for i in range(6)]})
    source = Table(table, image="path", cache=tmp_path / "cache", **allowed(server))
    for _ in range(2):
        assert source.read(range(6)) == list(IMAGES.values())
    assert sum(n for asked, n in server.asked.items() if asked.startswith("GET")) == 6, "once each"
    server.replace("/photos/3.jpg", b"another")
    assert source.read([2, 3]) == [b"image 2", b"another"]
    server.files.pop("/photos/2.jpg")
    assert [failure.reason for failure in source.read([2])] == ["not_found"]
    pending = source.fetch([5])[0]
    assert pending.result(5) == b"image 5"
    assert pending.done()
    source.fetch([4])[0].cancel()


def test_row_groups_are_taken_from_the_cache(tmp_path, server):
    held(server, tmp_path, 4, cache=tmp_path / "cache").read(range(24))
    before = server.bytes
    assert (
        Table(f"{server.url}/t.parquet", image="image", cache=tmp_path / "cache").read(range(24))
        == BLOBS
    )
    assert server.bytes == before


def test_a_feed_reads_ahead(tmp_path, server):
    blobs = [jpeg(i, (40, 40)) for i in range(24)]
    server.files["/t.parquet"] = image_bytes(
        tmp_path / "t.parquet", blobs, 6, label=list(range(24))
    ).read_bytes()
    server.files |= {f"/{i}.jpg": blob for i, blob in enumerate(blobs)}
    listed = write(
        tmp_path / "t.csv",
        {"path": [f"{server.url}/{i}.jpg" for i in range(24)], "label": list(range(24))},
    )
    batches = []
    for table, image in ((f"{server.url}/t.parquet", "image"), (listed, "path")):
        with Feed(
            Table(table, image=image, label="label", **allowed(server)),
            [Resize((8, 8))],
            batch=8,
            seed=1,
            threads=2,
        ) as feed:
            batches.append(
                [(batch.labels.tolist(), batch.images.tobytes()) for batch in feed.batches(0)]
            )
    assert batches[0] == batches[1]
    assert sorted(label for labels, _ in batches[0] for label in labels) == list(range(24))
