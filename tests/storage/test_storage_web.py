"""Reads from web servers, with and without ranges, by fsspec's own client on the loopback."""

from __future__ import annotations

import pytest
from helpers.lakes import DATA, QUICK
from helpers.sites import Site, served
from helpers.web import web

from fastfeed.storage.reads import ByteRange, Stat, Unread
from fastfeed.storage.retry import RetryPolicy
from fastfeed.storage.storage import Storage

pytest.importorskip("aiohttp", reason="needs aiohttp: pip install aiohttp")


@pytest.fixture
def site():
    with served(Site({"/a.bin": DATA, "/x/b.bin": b"small"})) as site:
        yield site


@pytest.fixture
def store() -> Storage:
    return Storage(policy=QUICK)


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("whole", [None, Stat(1000, "v")])
def test_ranges(site, store, ranges, whole):
    site.ranges = ranges
    spans = [(0, 1000), (0, 10), (990, 1000), (500, 501), (990, None), (0, None)]
    found = store.read(
        [ByteRange(f"{site.url}/a.bin", start, stop, whole) for start, stop in spans]
    )
    assert found == [DATA[start:stop] for start, stop in spans]


def test_not_there(site, store):
    assert (
        store.read([ByteRange(f"{site.url}/none"), ByteRange(f"{site.url}/none", 0, 5)])
        == [Unread("not_found")] * 2
    )
    assert store.stat([f"{site.url}/none"]) == [Unread("not_found")]
    assert site.asked["GET /none"] == 3, "none was tried again; a look asks twice, HEAD first"


def test_beyond_the_end(site, store):
    assert store.read([ByteRange(f"{site.url}/a.bin", 1000, 1001)])[0].reason == "truncated"
    assert store.read([ByteRange(f"{site.url}/a.bin", 990, 1010)])[0].reason == "truncated"
    assert (
        store.read([ByteRange(f"{site.url}/a.bin", 1000, 1001, Stat(2000, "v"))])[0].reason
        == "changed"
    )


def test_errors_that_pass(site, store):
    site.statuses["/a.bin"] = [500, 503, 429]
    assert store.read([ByteRange(f"{site.url}/a.bin", 0, 10)]) == [DATA[:10]]
    site.statuses["/a.bin"] = [503] * 2  # HEAD and GET of the first look
    assert store.stat([f"{site.url}/a.bin"])[0].size == 1000


def test_errors_that_do_not_pass(site, store):
    site.statuses["/a.bin"] = [403, 400]
    assert store.read([ByteRange(f"{site.url}/a.bin")])[0].detail.startswith(
        "permission denied: 403"
    )
    assert store.read([ByteRange(f"{site.url}/a.bin")])[0].detail.startswith(
        "ClientResponseError: 400"
    )
    assert site.asked["GET /a.bin"] == 2


def test_connections_are_used_again(site):
    store = Storage(in_flight=4, policy=RetryPolicy(hedge=False))
    assert store.read([ByteRange(f"{site.url}/a.bin", i, i + 5) for i in range(200)]) == [
        DATA[i : i + 5] for i in range(200)
    ]
    assert site.connections <= 4


def test_the_client_does_not_limit_what_is_in_flight():
    """aiohttp would queue beyond 100, and the time in its queue would look like a slow server's."""
    with served(Site({"/a.bin": DATA}, gather=150)) as site:
        store = Storage(in_flight=150, policy=RetryPolicy(hedge=False))
        assert store.read([ByteRange(f"{site.url}/a.bin", 0, 5)] * 150) == [DATA[:5]] * 150


def test_stat_and_find(site, store):
    site.files["/x/"] = b'<html><a href="b.bin">b</a> <a href="/a.bin">a</a></html>'
    ((uri, stat),) = store.find(f"{site.url}/x/*.bin")
    assert (uri, stat.size) == (f"{site.url}/x/b.bin", 5)
    assert stat.version
    assert store.stat([uri]) == [stat]
    site.files["/x/b.bin"] = b"other"
    assert store.stat([uri]) != [stat]


def test_no_server_listens(store):
    with served(Site({})) as site:
        pass
    unread = store.read([ByteRange(f"{site.url}/a.bin")])[0]
    assert unread.reason == "io_error"
    assert "Cannot connect to host 127.0.0.1" in unread.detail


@pytest.mark.parametrize(
    "secrets",
    [
        {"headers": {"Authorization": "s", "X-Api-Key": "s", "Cookie": "a=s"}},
        {"client_kwargs": {"headers": {"X-Api-Key": "s"}, "cookies": {"a": "s"}}},
    ],
)
def test_headers_do_not_follow_a_redirect_to_another_origin(secrets):
    names = {"authorization", "x-api-key", "cookie"}
    with web({"/a.bin": DATA}) as here, web({"/a.bin": DATA}) as there:
        here.redirects = {"/away": f"{there.url}/a.bin", "/back": "/a.bin"}
        store = Storage(secrets, policy=QUICK)
        for path in ("away", "back", "away"):
            assert store.read([ByteRange(f"{here.url}/{path}", 5, 9)]) == [DATA[5:9]]
        assert len(here.headers) == 4 and all(names & {*sent} for sent in here.headers)
        assert len(there.headers) == 2 and not any(names & {*sent} for sent in there.headers)
        assert all(sent["range"] == "bytes=5-8" for sent in there.headers)
