"""Sources whose photographs have the names and sizes of those that a job was made of, and other
pixels.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.preprocess.commands import preprocess
from helpers.shards import tar_of
from helpers.small_jobs import InlineEngine, recipe
from PIL import Image

from fastfeed.errors import ConfigError
from fastfeed.preprocess import run
from fastfeed.preprocess.engines import Engine
from fastfeed.preprocess.job import job as job_module
from fastfeed.sources.folder import ImageFolder

SMALL = ("--size", "16", "--shard-samples", "6")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        job_module,
        "engine_for",
        lambda engine, *_: InlineEngine() if isinstance(engine, str) else engine,
    )


def bitmaps(folder: str, seed: int, count: int = 10) -> None:
    """Of equal size, whatever is on them."""
    Path(folder).mkdir()
    dice = np.random.default_rng(seed)
    for i in range(count):
        bitmap(Path(folder, f"{i:04d}.bmp"), dice)


def bitmap(path: Path, dice: np.random.Generator) -> None:
    Image.fromarray(dice.integers(0, 256, (20, 24, 3), np.uint8)).save(path)


class Stops(InlineEngine):
    def run(self, task, pieces):  # type: ignore[no-untyped-def]
        yield from super().run(task, pieces[:1])
        raise KeyboardInterrupt


def make(source: str, engine: Engine | None = None) -> None:
    run(source, "shards", recipe(), engine=engine or InlineEngine())


def test_another_folder_is_refused() -> None:
    bitmaps("photos", 0)
    bitmaps("others", 1)
    assert preprocess("photos", "shards", *SMALL)[0] == 0
    assert preprocess("photos", "shards", *SMALL)[0] == 0
    for more in ((), ("--append",)):
        code, said = preprocess("others", "shards", *SMALL, *more)
        assert (
            code == 2
            and "source: others/0000.bmp has another content than shard-000000 was made of" in said
        )


def test_an_interrupted_job_is_not_continued_with_it() -> None:
    bitmaps("photos", 0)
    bitmaps("others", 1)
    with pytest.raises(KeyboardInterrupt):
        make("photos", Stops())
    with pytest.raises(ConfigError, match=r"others/0000.bmp has another content than shard-000000"):
        make("others")
    make("photos")


def test_another_tar_is_refused() -> None:
    for name, seed in (("a", 0), ("b", 1)):
        bitmaps(name, seed)
        members = [(path.name, path.read_bytes()) for path in sorted(Path(name).iterdir())]
        Path(name, "in.tar").write_bytes(tar_of(members))
    make("a/in.tar")
    make("a/in.tar")
    with pytest.raises(ConfigError, match="has another content than shard-000000"):
        make("b/in.tar")


def test_another_table_is_refused() -> None:
    for name, seed in (("a", 0), ("b", 1)):
        bitmaps(name, seed)
        Path(name, "t.csv").write_text(
            "path,label\n" + "".join(f"{i:04d}.bmp,x\n" for i in range(10))
        )
    make("a/t.csv")
    with pytest.raises(ConfigError, match="has another content than shard-000000"):
        make("b/t.csv")


def test_one_photograph_of_many_that_was_changed_in_its_place_is_noticed() -> None:
    """Its time of change differs, so it is among those that are read."""
    bitmaps("photos", 0, 200)
    make("photos")
    bitmap(Path("photos/0101.bmp"), np.random.default_rng(5))
    with pytest.raises(ConfigError, match=r"photos/0101.bmp has another content than shard-000016"):
        make("photos")


def test_few_are_read_and_a_copy_is_the_same_source(monkeypatch: pytest.MonkeyPatch) -> None:
    bitmaps("photos", 0, 200)
    make("photos")
    shutil.copytree("photos", "copy", copy_function=shutil.copyfile)
    read: list[int] = []
    original = ImageFolder.read

    def counted(self: ImageFolder, ids: list[int]) -> list[object]:
        read.extend(ids)
        return original(self, ids)

    monkeypatch.setattr(ImageFolder, "read", counted)
    make("photos")
    assert len(read) == 16 and {0, 199} <= {*read}
    read.clear()
    make("copy")
    assert len({*read}) <= 32


def test_appended_photographs_are_compared_too() -> None:
    bitmaps("photos", 0, 4)
    make("photos")
    bitmaps("more", 1, 4)
    for path in Path("more").iterdir():
        path.rename(f"photos/-{path.name}")  # before those that were there
    run("photos", "shards", recipe(), engine=InlineEngine(), append=True)
    make("photos")
    bitmap(Path("photos/-0002.bmp"), np.random.default_rng(5))
    with pytest.raises(
        ConfigError, match=r"photos/-0002.bmp has another content than shard-000001"
    ):
        make("photos")


def test_what_cannot_be_read_now_says_nothing() -> None:
    bitmaps("a", 0)
    Path("a/t.csv").write_text("path,label\n" + "".join(f"{i:04d}.bmp,x\n" for i in range(10)))
    make("a/t.csv")
    os.unlink("a/0000.bmp")
    make("a/t.csv")


def test_records_of_earlier_versions_have_no_sums() -> None:
    bitmaps("photos", 0)
    make("photos")
    for path in Path("shards/__job/records").glob("*.json"):
        document = json.loads(path.read_text())
        del document["sums"]
        path.write_text(json.dumps(document))
    make("photos")
