"""What storage says of objects, what it lists, and how it connects."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import fsspec
import pytest
from helpers.lakes import DATA, Lake, storage

from fastfeed.errors import ConfigError, MissingExtra, SourceError
from fastfeed.storage.reads import ByteRange, Stat, Unread
from fastfeed.storage.storage import Storage


def test_memory():
    system = fsspec.filesystem("memory")
    system.pipe_file("/test-storage/x/1.bin", DATA)
    system.pipe_file("/test-storage/2.bin", b"two")
    store = Storage()
    assert store.read([ByteRange("memory://test-storage/x/1.bin", 5, 50)]) == [DATA[5:50]]
    found = store.find("memory://test-storage/*.bin")
    assert [(uri, stat.size) for uri, stat in found] == [("memory://test-storage/2.bin", 3)]
    assert store.stat([uri for uri, _ in found]) == [stat for _, stat in found], (
        "looked at or listed, it is the same"
    )
    assert [uri for uri, _ in store.find("memory://test-storage")] == [
        "memory://test-storage/2.bin",
        "memory://test-storage/x/1.bin",
    ]
    assert [info["uri"] for info in store.folder("memory://test-storage")] == [
        "memory://test-storage/2.bin",
        "memory://test-storage/x",
    ]


def test_a_file_of_this_machine(tmp_path):
    (tmp_path / "a b.bin").write_bytes(DATA)
    uri = f"file://{tmp_path}/a b.bin"
    store = Storage()
    assert store.read([ByteRange(uri, 1, 2)]) == [DATA[1:2]]
    assert store.find(f"file://{tmp_path}/*.bin") == [(uri, store.stat([uri])[0])]


def test_stat():
    lake = Lake(files={"a/b": DATA, "a/c/d": b"x"})
    found = storage(lake).stat(["lake://a/b", "lake://a/none", "lake://a/c"])
    assert found[0] == Stat(1000, str(hash(DATA)))
    assert found[1] == Unread("not_found")
    assert found[2] == Unread("not_found", "it is a folder")
    lake.sizes = False
    assert storage(lake).stat(["lake://a/b"])[0].detail == "the server does not say how large it is"


def test_stat_tries_again():
    lake = Lake(broken={"info": [OSError("busy"), TimeoutError()]})
    assert storage(lake).stat(["lake://a/b"])[0].size == 1000
    lake.broken["info"] = [OSError("busy")] * 1000
    assert storage(lake).stat(["lake://a/b"])[0].detail.startswith("busy (attempt 5,")


FILES = {"a/z.tar": b"1", "a/b.tar": b"22", "a/c/d.tar": b"333", "a/c/e.txt": b"", "a.tar": b"4"}


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("lake://a/*.tar", ["a/b.tar", "a/z.tar"]),
        ("lake://a/[bc].tar", ["a/b.tar"]),
        ("lake://a", ["a/b.tar", "a/c/d.tar", "a/c/e.txt", "a/z.tar"]),
        ("lake://a/**/*.tar", ["a/b.tar", "a/c/d.tar", "a/z.tar"]),
        ("lake://a/nothing*", []),
        ("lake://none/*.tar", []),
        ("lake://none", []),
    ],
)
def test_find(place, found):
    listed = storage(Lake(FILES)).find(place)
    assert [(uri, stat.size) for uri, stat in listed] == [
        (f"lake://{name}", len(FILES[name])) for name in found
    ]
    assert all(stat.version == str(hash(FILES[uri[7:]])) for uri, stat in listed)


def test_folder():
    listed = storage(Lake(FILES)).folder("lake://a")
    assert [(info["uri"], info["type"]) for info in listed] == [
        ("lake://a/b.tar", "file"),
        ("lake://a/c", "directory"),
        ("lake://a/z.tar", "file"),
    ]


def test_a_listing_that_fails():
    lake = Lake(FILES, broken={"ls": [OSError("busy")] * 3})
    assert len(storage(lake).find("lake://a/*.tar")) == 2
    lake.broken["ls"] = [PermissionError("not yours")]
    with pytest.raises(
        SourceError, match=r"^cannot list lake://a/\*.tar: permission denied: not yours$"
    ):
        storage(lake).find("lake://a/*.tar")
    with pytest.raises(SourceError, match=r"^cannot list lake://none: no file there$"):
        storage(lake).folder("lake://none")


# -- connecting


def test_no_such_protocol():
    with pytest.raises(
        ConfigError, match=r"cannot open nope://x/y: Protocol not known: nope; fsspec.available_pro"
    ):
        Storage().read([ByteRange("nope://x/y")])


def test_no_such_option():
    with pytest.raises(
        ConfigError,
        match=r"cannot open lake://x: .*missing 1 required positional argument: 'water'",
    ):
        Storage().read([ByteRange("lake://x")])


def test_chains_are_refused():
    with pytest.raises(
        ConfigError, match="chained URLs are not supported; leave simplecache:: out"
    ):
        Storage().read([ByteRange("simplecache::memory://x")])


@pytest.mark.parametrize(
    ("uri", "extra"), [("gs://b/x", "gcs"), ("gcs://b/x", "gcs"), ("s3://b/x", "s3")]
)
def test_a_missing_client(monkeypatch, uri, extra):
    def missing(*_: object, **__: object) -> None:
        raise ImportError("not installed")

    monkeypatch.setattr("fastfeed.storage.clients.get_filesystem_class", missing)
    with pytest.raises(MissingExtra, match=rf"pip install 'fastfeed\[{extra}\]'"):
        Storage().stat([uri])


def test_it_connects_once(monkeypatch):
    made = []
    monkeypatch.setattr(
        "helpers.lakes.LakeFileSystem.__init__",
        lambda self, water, **_: made.append(time.sleep(0.01)),
    )
    store = storage(Lake())
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: store._endpoints.at(f"lake://bucket{i}/x"), range(30)))
    assert len(made) == 1


def test_hosts_are_told_apart(monkeypatch):
    """Where the address names a server, each has its own connection."""
    monkeypatch.setattr(
        "helpers.lakes.LakeFileSystem._get_kwargs_from_urls",
        lambda uri: {"host": uri[7:].partition("/")[0]},
    )
    store = storage(Lake())
    first, second, again = (
        store._endpoints.at(f"lake://{host}/x")[0] for host in ("one", "two", "one")
    )
    assert first is again
    assert first is not second


def test_secrets_are_not_shown():
    shown = repr(
        Storage({"key": "k1", "secret": "s1", "client_kwargs": {"x": "c1"}, "anon": False})
    )
    assert shown == "Storage(key=..., secret=..., client_kwargs=..., anon=False)"


def test_places_in_flight():
    with pytest.raises(ConfigError, match="in_flight must be >= 1, got 0"):
        Storage(in_flight=0)
