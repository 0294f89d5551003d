"""What a table may name: folders, hosts and schemes, and what the refusal of others says."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from helpers.tables import write
from helpers.web import web

from fastfeed.errors import ConfigError
from fastfeed.sources import Table
from fastfeed.sources.access import Access, is_public


def table(folder: Path, *paths: str) -> Path:
    return write(folder / "t.csv", {"path": list(paths)})


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A folder with an image and a table's place in it; a secret next to it."""
    (tmp_path / "set" / "a").mkdir(parents=True)
    (tmp_path / "set" / "in.jpg").write_bytes(b"in")
    (tmp_path / "secret").write_bytes(b"secret")
    return tmp_path / "set"


@pytest.mark.parametrize(
    "how", ["{0}/secret", "file://{0}/secret", "FILE://{0}/secret", "../secret", "a/../../secret"]
)
def test_paths_outside_of_the_folder(mine: Path, how: str) -> None:
    path = how.format(mine.parent)
    source = Table(table(mine, "in.jpg", path), image="path")
    good, bad = source.read([0, 1])
    assert good == b"in"
    assert (bad.reason, "--allow-path" in bad.detail, "secret" in bad.detail) == (
        "not_allowed",
        True,
        False,
    ), bad
    addresses = source.addresses(np.arange(2))
    assert addresses is None or addresses.ids.tolist() == [0, -1]
    with pytest.raises(ConfigError) as error:
        Table(table(mine, path, path), image="path")
    begin = (
        f"Table: no row of {mine}/t.csv is allowed: all of its 2 rows point outside the table's"
        " folder, or to an "
    )
    assert str(error.value).startswith(begin) and ". If you trust it, pass allow_path=" in str(
        error.value
    )
    assert f"allow_path=['{mine.parent}'] (--allow-path {mine.parent})" in str(error.value)
    allowed = Table(table(mine, path), image="path", allow_path=[mine.parent])
    assert pickle.loads(pickle.dumps(allowed)).read([0]) == [b"secret"]


def test_links_that_lead_out_are_refused_and_others_followed(mine: Path) -> None:
    (mine / "out.jpg").symlink_to(mine.parent / "secret")
    (mine / "deep").symlink_to(mine.parent)
    (mine / "same.jpg").symlink_to(mine / "in.jpg")
    source = Table(table(mine, "out.jpg", "deep/secret", "same.jpg"), image="path")
    refused = source.read([0, 1])
    assert [failure.reason for failure in refused] == ["not_allowed"] * 2
    assert f"a link to {mine.parent}/secret" in refused[0].detail
    assert source.read([2]) == [b"in"]
    assert source.addresses(np.arange(3)).ids.tolist() == [-1, -1, 2]
    assert Table(table(mine, "deep/secret"), image="path", allow_path=[str(mine.parent)]).read(
        [0]
    ) == [b"secret"]


def test_a_folder_that_is_itself_a_link(mine: Path) -> None:
    (mine.parent / "link").symlink_to(mine)
    assert Table(table(mine.parent / "link", "in.jpg"), image="path").read([0]) == [b"in"]


def test_root_is_where_a_table_reads(mine: Path) -> None:
    listed = table(mine.parent, "in.jpg", str(mine / "in.jpg"), str(mine.parent / "secret"))
    good, same, bad = Table(listed, image="path", root=mine).read([0, 1, 2])
    assert (good, same, bad.reason) == (b"in", b"in", "not_allowed")


HOSTS = [
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f.1",
    "0177.0.0.1",
    "localhost",
    "LOCALHOST.",
    "a.localhost",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "10.0.0.1",
    "192.168.1.1",
    "172.16.0.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "[fe80::1]",
    "[fc00::1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "224.0.0.1",
    "１２７.0.0.1",
]


@pytest.mark.parametrize("host", HOSTS)
def test_private_hosts(host: str) -> None:
    assert not is_public(host)
    access = Access.of(["t.csv"], [""])
    refusal = access.refusal(f"https://{host}/x.jpg")
    assert refusal is not None and "--allow-host" in refusal.detail
    assert access.refusal(f"https://{host}:8443/x.jpg") is not None


@pytest.mark.parametrize("host", ["example.com", "8.8.8.8", "[2606:4700::1111]"])
def test_public_hosts(host: str) -> None:
    assert is_public(host)
    assert Access.of(["t.csv"], [""]).refusal(f"https://{host}/x.jpg") is None


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("http://example.com/x.jpg", "--allow-scheme http"),
        ("ftp://example.com/x.jpg", "--allow-scheme ftp --allow-host example.com"),
        ("local:///etc/passwd", "--allow-scheme local"),
        ("simplecache::file:///etc/passwd", "--allow-scheme simplecache::file"),
        ("https://example.com@127.0.0.1/x.jpg", "user name"),
        ("https://example.com:80@127.0.0.1/x.jpg", "user name"),
        ("https://example.com\\@127.0.0.1/x.jpg", "user name"),
        ("https://127.0.0.1\\.example.com/x.jpg", "no valid host"),
        ("https:///x.jpg", "no valid host"),
        ("https://a b/x.jpg", "no valid host"),
    ],
)
def test_addresses_that_are_refused(uri: str, why: str) -> None:
    refusal = Access.of(["t.csv"], [""]).refusal(uri)
    assert refusal is not None and why in refusal.detail, refusal


def test_the_tables_own_server_and_no_other(tmp_path: Path) -> None:
    """Redirects and relative paths that leave it count as well."""
    with web({"/a.jpg": b"a"}) as own, web({"/b.jpg": b"b"}) as other:
        host = other.url.removeprefix("http://")
        own.files["/t.csv"] = (
            f"path\na.jpg\n{own.url}/a.jpg\n{other.url}/b.jpg\n../{host}/b.jpg\n".encode()
        )
        source = Table(f"{own.url}/t.csv", image="path")
        read = source.read(range(4))
        assert (
            read[:2] == [b"a", b"a"]
            and [failure.reason for failure in read[2:]] == ["not_allowed"] * 2
        )
        assert not other.asked
        assert f"--allow-host {host}" in read[2].detail
        assert Table(f"{own.url}/t.csv", image="path", allow_host=[host]).read([2]) == [b"b"]


def test_names_that_resolve_to_private_addresses(
    mine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from aiohttp.resolver import DefaultResolver

    with web({"/a.jpg": b"a"}) as server:
        port = int(server.url.rpartition(":")[2])

        async def resolve(self: object, host: str, port: int = 0, family: int = 0) -> list[dict]:
            return [
                {
                    "hostname": host,
                    "host": "127.0.0.1",
                    "port": port,
                    "family": 2,
                    "proto": 6,
                    "flags": 0,
                }
            ]

        monkeypatch.setattr(DefaultResolver, "resolve", resolve)
        url = f"http://photos.example.com:{port}/a.jpg"
        for cache in (None, tmp_path / "cache"):
            (bad,) = Table(table(mine, url), image="path", allow_scheme=["http"], cache=cache).read(
                [0]
            )
            assert (
                bad.reason,
                "photos.example.com is 127.0.0.1, a private address" in bad.detail,
            ) == ("not_allowed", True)
        assert not server.asked
        named = Table(
            table(mine, url), image="path", allow_scheme=["http"], allow_host=["photos.example.com"]
        )
        assert named.read([0]) == [b"a"]


def test_arguments_are_checked(mine: Path) -> None:
    listed = table(mine, "in.jpg")
    for options, text in (
        ({"allow_path": [3]}, "Table: allow_path must be a list of texts, got [3]"),
        (
            {"allow_host": ["http://x"]},
            "allow_host must be a host, or host:port, without a scheme, got 'http://x'",
        ),
    ):
        with pytest.raises(ConfigError) as error:
            Table(listed, image="path", **options)
        assert text in str(error.value)
    assert Table(listed, image="path", allow_path=str(mine), allow_scheme="http://").read([0]) == [
        b"in"
    ]
