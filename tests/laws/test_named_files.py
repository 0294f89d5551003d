"""Law of every file that names other files: it comes from elsewhere, and names only what lies below
its own folder.

A new kind of such a file needs a row in KINDS.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from helpers.mosaic import mds_folder, mds_index
from helpers.photos import jpeg
from helpers.shards import tar_of
from helpers.tables import write
from helpers.web import Web, web

from fastfeed.errors import ConfigError, SourceError
from fastfeed.sources import ImageFolder, MDSShards, Objects, Source, Table, TarShards

SECRET = jpeg(7, (24, 31))


class Kind(NamedTuple):
    """A file that names others: the end of a name, the content of a file that it may name, and how
    it is opened.
    """

    suffix: str
    content: Callable[[Path], bytes]
    open: Callable[..., Source]
    options: tuple[str, ...] = ("allow_path", "allow_host", "allow_scheme")


def wids(folder: Path, **index: Any) -> str:
    (folder / "index.json").write_text(json.dumps({"wids_version": 1, **index}))
    return str(folder / "index.json")


def wids_url(folder: Path, name: str, **options: Any) -> Source:
    return TarShards(wids(folder, shardlist=[{"url": name}]), **options)


def wids_base(folder: Path, name: str, **options: Any) -> Source:
    base, _, url = name.rpartition("/")
    return TarShards(
        wids(folder, datasets=[{"base": base or ".", "shardlist": [{"url": url}]}]), **options
    )


def wids_source(folder: Path, name: str, **options: Any) -> Source:
    return TarShards(wids(folder, datasets=[{"source_url": name}]), **options)


def inner_wids(folder: Path) -> bytes:
    (folder / "inner.tar").write_bytes(tar())
    return json.dumps({"wids_version": 1, "shardlist": [{"url": "inner.tar"}]}).encode()


def mds(folder: Path, name: str, **options: Any) -> Source:
    (folder / "index.json").write_text(mds_index([name]))
    return MDSShards(folder, **options)


def mds_content(folder: Path) -> bytes:
    made = mds_folder(folder / "made", (2,))
    content = next(made.glob("*.mds")).read_bytes()
    shutil.rmtree(made)
    return content


def table(folder: Path, name: str, suffix: str = ".csv", **options: Any) -> Source:
    return Table(write(folder / f"t{suffix}", {"path": [name]}), image="path", **options)


def listing(folder: Path, name: str, **options: Any) -> Source:
    (folder / "l.csv").write_text(f"path,class,label,size,version\n{name},a,0,,\n")
    return ImageFolder(folder, listing=folder / "l.csv", allow_links=(), **options)


def coco(folder: Path, name: str, **options: Any) -> Source:
    document = {
        "images": [{"id": 1, "file_name": name}],
        "annotations": [],
        "categories": [{"id": 1, "name": "a"}],
    }
    (folder / "c.json").write_text(json.dumps(document))
    return Objects.coco(folder, folder / "c.json", **options)


def tar(*_: Path) -> bytes:
    return tar_of([("secret.jpg", SECRET), ("secret.cls", b"0")])


KINDS = {
    "csv": Kind(".jpg", lambda _: SECRET, table),
    "jsonl": Kind(
        ".jpg", lambda _: SECRET, lambda *args, **options: table(*args, ".jsonl", **options)
    ),
    "parquet": Kind(
        ".jpg", lambda _: SECRET, lambda *args, **options: table(*args, ".parquet", **options)
    ),
    "wids url": Kind(".tar", tar, wids_url),
    "wids base": Kind(".tar", tar, wids_base),
    "wids source_url": Kind(".json", inner_wids, wids_source),
    "mds": Kind(".mds", mds_content, mds),
    "listing": Kind(".jpg", lambda _: SECRET, listing, ()),
    "coco": Kind(".jpg", lambda _: SECRET, coco, ("allow_path",)),
}
ESCAPES = (
    "{private}/x{suffix}",
    "file://{private}/x{suffix}",
    "FILE://{private}/x{suffix}",
    "../private/x{suffix}",
    "a/../../private/x{suffix}",
    "link/x{suffix}",
    "file{suffix}",
    "{{.,..}}/private/x{suffix}",
    "{web}/x{suffix}",
    "local://{private}/x{suffix}",
    "//{host}/x{suffix}",
    "/dev/zero",
)


@pytest.fixture(autouse=True)
def places(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTFEED_CACHE", str(tmp_path_factory.mktemp("cache")))
    (tmp_path / "private").mkdir()
    (tmp_path / "set" / "a").mkdir(parents=True)


@pytest.fixture(scope="module")
def server() -> Iterator[Web]:
    with web({}) as serving:
        yield serving


def contents(source: Source) -> list[bytes]:
    return [
        data for data in source.read(range(len(source))) if isinstance(data, (bytes, memoryview))
    ]


def secret(kind: Kind, folder: Path) -> str:
    """Its file outside; with links to it, and to its folder, in the folder that is handed over."""
    path = folder / "private" / f"x{kind.suffix}"
    path.write_bytes(kind.content(folder / "private"))
    (folder / "set" / "link").symlink_to(folder / "private")
    (folder / "set" / f"file{kind.suffix}").symlink_to(path)
    return str(path)


@pytest.mark.parametrize("escape", ESCAPES)
@pytest.mark.parametrize("name", KINDS)
def test_nothing_outside_is_read(name: str, escape: str, tmp_path: Path, server: Web) -> None:
    kind = KINDS[name]
    secret(kind, tmp_path)
    server.files = {f"/x{kind.suffix}": (tmp_path / "private" / f"x{kind.suffix}").read_bytes()}
    before, asked = sorted((tmp_path / "private").rglob("*")), sum(server.asked.values())
    named = escape.format(
        private=tmp_path / "private",
        suffix=kind.suffix,
        web=server.url,
        host=server.url.removeprefix("http://"),
    )
    try:
        read = contents(kind.open(tmp_path / "set", named))
    except (SourceError, ConfigError):
        read = []
    assert not read
    assert sum(server.asked.values()) == asked
    assert sorted((tmp_path / "private").rglob("*")) == before


@pytest.mark.parametrize("name", KINDS)
def test_what_lies_below_is_read(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    content = kind.content(tmp_path / "set" / "a")
    (tmp_path / "set" / "a" / f"x{kind.suffix}").write_bytes(content)
    assert contents(kind.open(tmp_path / "set", f"a/x{kind.suffix}"))


@pytest.mark.parametrize(
    "name", [name for name, kind in KINDS.items() if "allow_path" in kind.options]
)
def test_what_is_allowed_is_read(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    path = secret(kind, tmp_path)
    for named in (path, "../private/" + Path(path).name, "link/" + Path(path).name):
        assert contents(kind.open(tmp_path / "set", named, allow_path=[tmp_path / "private"])), (
            named
        )


WEB = [name for name, kind in KINDS.items() if "allow_host" in kind.options]


@pytest.mark.parametrize("name", WEB)
def test_headers_go_to_hosts_that_the_caller_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, path = KINDS[name], f"/x{KINDS[name].suffix}"
    headers = {"Authorization": "Bearer secret", "X-Api-Key": "secret", "Cookie": "a=secret"}
    files = {path: kind.content(tmp_path / "private"), "/inner.tar": tar()}
    options: dict[str, Any] = {"allow_scheme": ["http"], "storage": {"headers": headers}}
    with web(files) as server:
        host = server.url.removeprefix("http://")
        assert contents(
            kind.open(tmp_path / "set", server.url + path, allow_host=[host], **options)
        )
        assert all(
            sent["authorization"] == "Bearer secret" and "x-api-key" in sent
            for sent in server.headers
        )
    # as if it were not on this machine
    monkeypatch.setattr("fastfeed.sources.access.is_public", lambda host: True)
    shutil.rmtree(tmp_path / "set")
    (tmp_path / "set").mkdir()
    with web(files) as server:
        assert contents(kind.open(tmp_path / "set", server.url + path, **options))
        assert server.headers and not any(
            {"authorization", "x-api-key", "cookie"} & {*sent} for sent in server.headers
        )
