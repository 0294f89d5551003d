"""`fastfeed preprocess` where names and archives come from strangers: shown as they are, nothing
lost in silence.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.commands import CliRunner
from helpers.photos import jpeg
from helpers.shards import tar_of
from helpers.small_jobs import InlineEngine

from fastfeed.cli import app
from fastfeed.errors import ConfigError
from fastfeed.preprocess.engines.named import divide_memory
from fastfeed.preprocess.job import job as job_module
from fastfeed.preprocess.model.recipe import Limits


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(job_module, "engine_for", lambda *_: InlineEngine())


def fastfeed(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["preprocess", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_names_are_shown_as_they_are():
    photos = Path("[red]photos") / ":x:"
    photos.mkdir(parents=True)
    (photos / "good.jpg").write_bytes(jpeg(1))
    (photos / "[b]:smile:.jpg").write_bytes(b":x: [bold]")
    (photos / "\x1b[31mred\x07\n.jpg").write_bytes(b"no")
    out = fastfeed("[red]photos", "to :smile:", "--size", "24")
    assert "[red]photos/:x:/[b]:smile:.jpg: not_image (it is text)" in out
    assert "\\x1b[31mred\\x07\\n.jpg: not_image" in out and "\x1b" not in out
    assert "fastfeed preprocess preview 'to :smile:'" in out
    assert "to :smile:/__job/preview/index.html" in fastfeed("preview", "to :smile:")


def test_what_of_a_source_is_not_among_its_photographs_is_said():
    Path("photos").mkdir()
    for i, name in enumerate(("a.jpg", "b.jpg", "c.cr2", "d.xml", "e.xml")):
        (Path("photos") / name).write_bytes(jpeg(i))
    said = "left out 2 .xml files, such as d.xml"
    out = fastfeed("photos", "from-folder", "--size", "24")
    assert (
        f"of the source: {said}\n" in out and "of the source: left out 1 .cr2 file: c.cr2\n" in out
    )
    assert said not in fastfeed("photos", "from-folder", "--size", "24"), (
        "nothing was left to be read"
    )
    whole = tar_of(
        [
            (f"{i}.{kind}", data)
            for i in range(3)
            for kind, data in (("jpg", jpeg(i)), ("cls", b"1"))
        ]
    )
    Path("cut.tar").write_bytes(whole[: len(whole) // 2])
    report = json.loads(fastfeed("cut.tar", "from-tar", "--size", "24", "--json"))
    assert report["notes"][0].startswith("cut.tar: cut off at ")


def test_a_list_alone_is_no_strangers_job():
    """A run that was stopped while it listed its source leaves the list; that is no reason to
    refuse.
    """
    Path("photos").mkdir()
    (Path("photos") / "a.jpg").write_bytes(jpeg(1))
    Path("shards/__job").mkdir(parents=True)
    Path("shards/__job/listing.lock").touch()
    assert "nothing is written" in fastfeed("photos", "shards", "--size", "24", "--dry-run")
    assert "1 of 1 shards" in fastfeed("photos", "shards", "--size", "24")


def test_errors_name_the_option():
    with pytest.raises(ConfigError, match=r"^memory must be a number of bytes > 0, .* got 'lots'$"):
        divide_memory("lots", 2)
    with pytest.raises(ConfigError, match=r"^formats must be one of JPEG, PNG, .*, got 'JPG'$"):
        Limits(formats=("png", "jpg"))
