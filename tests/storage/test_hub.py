"""Data sets of the Hub, over a server that answers as it does: by redirects to another host."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

import pytest
from helpers.hugging_face import table, write_parquet
from helpers.needs import needs
from helpers.photos import folder
from helpers.web import Web, web

import fastfeed as ff
from fastfeed.errors import SourceError

pytestmark = needs("huggingface_hub")

REPOSITORY = "datasets/user/birds"


@contextmanager
def hub(root: Path) -> Iterator[tuple[Web, Web]]:
    """A repository with the files of a folder: the Hub, and the host of its files."""
    files = {f"/{p.relative_to(root)}": p.read_bytes() for p in root.rglob("*") if p.is_file()}
    folders = [p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_dir()]
    tree = [{"type": "directory", "oid": "d" * 40, "size": 0, "path": path} for path in folders]
    for path, data in files.items():
        oid = hashlib.sha1(data).hexdigest()
        tree.append({"type": "file", "oid": oid, "size": len(data), "path": path[1:]})

    def answer(path: str) -> bytes | None:
        path, _, query = unquote(path).partition("?")
        if path == f"/api/{REPOSITORY}":
            about = {"id": "user/birds", "sha": "a" * 40, "private": False, "tags": []}
            return json.dumps(about | {"siblings": []}).encode()
        if not path.startswith(f"/api/{REPOSITORY}/tree/main"):
            return None
        parent = PurePosixPath(path.partition("/tree/main")[2].strip("/"))
        every = "recursive=true" in query.lower()
        paths = {each["path"]: PurePosixPath(each["path"]).parents for each in tree}
        found = [each for each in tree if parent in (paths[each["path"]][: None if every else 1])]
        return json.dumps(found).encode()

    with web({}) as here, web(files) as there:
        here.answer = answer
        host = there.url.replace("127.0.0.1", "localhost")
        here.redirects = {f"/{REPOSITORY}/resolve/main{path}": host + path for path in files}
        yield here, there


def test_parquet_of_the_hub(tmp_path: Path):
    write_parquet(tmp_path / "data" / "train-00000-of-00001.parquet", table([0, 1, 2, 3]))
    local = ff.HuggingFace(tmp_path, split="train")
    with hub(tmp_path) as (here, there):
        options = {"endpoint": here.url, "token": "hf_secret"}
        source = ff.HuggingFace(f"hf://{REPOSITORY}", split="train", storage=options)
        assert source.classes == local.classes
        assert source.read([2, 0]) == local.read([2, 0])
        assert {sent.get("authorization") for sent in here.headers} == {"Bearer hf_secret"}
        assert {sent.get("authorization") for sent in there.headers} == {None}
        file = f"/{REPOSITORY}/resolve/main/data/train-00000-of-00001.parquet"
        del here.redirects[file]
        for status in (401, 403):
            here.refused[file] = status
            with pytest.raises(SourceError, match="permission denied"):
                ff.HuggingFace(f"hf://{REPOSITORY}", split="train", storage=options)


def test_ranges_of_files_of_the_hub(tmp_path: Path):
    photos = folder(tmp_path / "photos", {"a": 2, "b": 1}, (600, 800))
    sizes = [path.stat().st_size for path in photos.rglob("*.jpg")]
    with hub(tmp_path) as (here, there):
        source = ff.ImageFolder(f"hf://{REPOSITORY}/photos", storage={"endpoint": here.url})
        assert source.read([2]) == [(photos / "b" / "0000.jpg").read_bytes()]
        there.bytes = 0
        assert len(ff.where(source, min_side=600)) == 3
        assert there.bytes == 3 * ((16 << 10) + 1) < sum(sizes)  # its client reads a byte more
