"""How long storage is waited for is what was asked, from its first failure on, whatever it
answers.
"""

from __future__ import annotations

import random
import re
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.photos import jpeg
from helpers.services import FOREVER, Service, read
from helpers.sites import Site, served
from helpers.tars import entry

import fastfeed as ff
from fastfeed.errors import ConfigError, SourceError, StorageError
from fastfeed.feed.faults import outages
from fastfeed.sources import Storage
from fastfeed.storage.reads import Unread
from fastfeed.storage.retry import Health, RetryPolicy, patience

QUICK = RetryPolicy(backoff_s=0.001, max_backoff_s=0.002)
MANY = 1 << 20


@pytest.fixture(autouse=True)
def no_jitter(monkeypatch):
    monkeypatch.setattr(random, "random", lambda: 0.5)


@pytest.mark.parametrize("seconds", [0.5, 5.0, 30.0])
@pytest.mark.parametrize(
    "reply", [(0, OSError("503")), (0, ConnectionRefusedError("Connection refused"))]
)
def test_a_read_fails_when_the_patience_of_its_feed_ends(seconds, reply):
    with patience(seconds):
        answer, at = read(Service(reply), health=Health("http://h"))
    assert isinstance(answer, Unread)
    assert 0 < at <= seconds, "56 s by the read's own policy"


def test_silence_is_a_failure_after_the_patience_too():
    """An attempt may take 20 s; but two at least, or all slow reads would fail."""
    for seconds, end in ((5.0, 5.0), (0.1, 2.0)):
        with patience(seconds):
            assert read(Service((FOREVER, b"")), health=Health("http://h"))[1] == end


def test_a_feed_that_waits_longer_than_a_read_changes_nothing():
    own = read(Service((0, OSError("503"))))
    for seconds in (60.0, 900.0, float("inf")):
        with patience(seconds):
            assert read(Service((0, OSError("503")))) == own


def table(folder: Path, url: str) -> ff.Table:
    rows = folder / "photos.csv"
    rows.write_text("image,label\n" + "".join(f"{url}/{i}.jpg,c{i}\n" for i in range(4)))
    host = url.partition("://")[2]
    return ff.Table(rows, image="image", label="label", allow_host=[host], allow_scheme=["http"])


@pytest.mark.parametrize("answer", ["503", "429", "refused"])
def test_the_feed_raises_after_the_seconds_it_was_given(tmp_path, monkeypatch, answer):
    monkeypatch.setattr(outages, "_PAUSES", (0.0, 0.01))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{free.getsockname()[1]}"
    statuses = {f"/{i}.jpg": [int(answer)] * MANY for i in range(4)} if answer.isdigit() else {}
    with served(Site({}, statuses=statuses)) as site:
        source = table(tmp_path, nowhere if answer == "refused" else site.url)
        with ff.Feed(source, [ff.Resize((8, 8))], batch=1, outage=0.2, threads=1) as feed:
            for _ in range(2):  # the next iteration waits again
                with pytest.raises(StorageError, match=r"waits longer than 0\.2 s") as raised:
                    next(iter(feed))
                waited = int(re.search(r"has not answered for (\d+) s", str(raised.value))[1])  # type: ignore[index]
                assert waited < 30, "it was 60, the time of a read"


SOURCES = {
    "tar": lambda url, storage: ff.TarShards(f"{url}/a.tar", storage=storage),
    "tars": lambda url, storage: ff.TarShards([f"{url}/a.tar", f"{url}/b.tar"], storage=storage),
    "tfrecord": lambda url, storage: ff.TFRecords(
        f"{url}/a.tfrecord", image="image", storage=storage
    ),
    "table": lambda url, storage: ff.Table(f"{url}/a.csv", image="image", storage=storage),
    "parquet": lambda url, storage: ff.Table(f"{url}/a.parquet", image="image", storage=storage),
}


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("status", [429, 503])
def test_a_source_whose_storage_is_busy_does_not_blame_the_path(kind, status):
    names = ("/a.tar", "/b.tar", "/a.tfrecord", "/a.csv", "/a.parquet")
    with served(Site({}, statuses={name: [status] * MANY for name in names})) as site:
        storage = Storage(policy=replace(QUICK, attempts=3))
        with pytest.raises((SourceError, ConfigError)) as raised:
            SOURCES[kind](site.url, storage)
        assert "check the path" not in str(raised.value)
        assert str(status) in str(raised.value)


def test_a_source_waits_for_its_storage_as_a_read_does():
    packed = b"".join(entry(f"{i}.jpg", jpeg(i)) for i in range(4)) + bytes(1024)
    busy = {"/a.tar": [503] * 14}
    with served(Site({"/a.tar": packed}, statuses=busy)) as site:
        source = ff.TarShards(f"{site.url}/a.tar", label=None, storage=Storage(policy=QUICK))
        assert len(source) == 4
        with pytest.raises(SourceError, match=r"b\.tar.*check the path"):
            ff.TarShards(f"{site.url}/b.tar", storage=Storage(policy=QUICK))
