"""Names, notes and answers of servers with escape sequences: none reaches a log, a warning, a page
or a text.
"""

from __future__ import annotations

import io
import json
import logging
import warnings
from pathlib import Path

import numpy as np
import pytest
from helpers.commands import command_line
from helpers.photos import folder, jpeg
from helpers.shards import samples, tar_of

import fastfeed as ff
from fastfeed.decode.pillow_warnings import named, tell_current
from fastfeed.html_page import escape as escaped
from fastfeed.preprocess.model.record import BadSample
from fastfeed.printable import log, printable
from fastfeed.proof.report.sentences import shown
from fastfeed.sources.shards.known_counts import tell
from fastfeed.storage.clients import explain
from fastfeed.storage.retry import Health

BAD = "bad\x1b]0;owned\x07\x1b[2J\n2026 forged line\u202e\udcff"


def plain(text: str) -> bool:
    return (
        bool(text) and all(line.isprintable() for line in text.split("\n")) and "\n2026" not in text
    )


def test_a_feed_and_its_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "ok.jpg").write_bytes(jpeg(1, (24, 24)))
    (tmp_path / "a" / f"{BAD}.jpg").write_bytes(b"nothing")
    (tmp_path / "a" / f"{BAD}.doc").write_bytes(b"nothing")
    source = ff.ImageFolder(tmp_path)
    feed = ff.Feed(source, [ff.Resize((8, 8))], batch=2, shuffle=False, threads=1)
    with caplog.at_level(logging.DEBUG, "fastfeed"):
        for _ in feed:
            pass
    assert len(feed.stats().bad) == 1 and caplog.messages
    for text in (
        *caplog.messages,
        str(source),
        repr(source),
        str(feed),
        str(feed.stats()),
        str(feed.stats().bad[0]),
    ):
        assert plain(text), text


def test_shards_and_their_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTFEED_CACHE", str(tmp_path / "cache"))
    members = [
        *samples(range(2)),
        (f"{BAD[:-1]}.jpg".replace("\n", "n"), jpeg(1)),
        ("x.cls", b"\x1b[2J"),
    ]
    (tmp_path / "a.tar").write_bytes(tar_of(members))
    source = ff.TarShards(tmp_path / "a.tar")
    assert plain(str(source)) and plain(repr(source))


def test_every_record_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    log.warning("%s is full", BAD)
    log.getChild("part").warning("of another logger")
    assert caplog.messages[0] == f"{printable(BAD)} is full" and plain(caplog.messages[0])


def test_an_error_is_one_line_but_for_lists() -> None:
    error = ff.errors.SourceError(f"{BAD} is cut off:\n  {BAD}\ncopy it again, or leave {BAD} out")
    first, *rest = str(error).split("\n")
    shown = printable(BAD)
    assert first == f"{shown} is cut off:"
    # what follows a list is a line as well: its values are made printable where they are listed
    assert all(line.isprintable() for line in rest)
    assert str(ff.errors.ConfigError(f"no {BAD}")) == f"no {shown}"


COMMANDS: dict[str, tuple[str, ...]] = {
    "show": ("{root}/p", "--out", "{root}/x.png"),
    "plan": ("{root}/p", "--batch", "1", "--out", "{root}/x.png"),
    "plan, refused": ("{root}/p", "--batch", "2", "--out", "{root}/x.svg"),
    "index": ("{root}/p", "--out", "{root}/l.parquet"),
    "preprocess": ("{root}/p", "{root}/out", "--dry-run"),
    "preprocess, run": ("{root}/p", "{root}/out"),
    "preprocess, refused": ("{root}/p", "{root}/p"),
    "analyze": ("{root}/none",),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_in_a_folder_of_such_a_name(command: str, tmp_path: Path) -> None:
    root = tmp_path / BAD[:-1]
    folder(root / "p", {"a": 8, "b": 8}, (8, 8))
    words = [word.replace("{root}", str(root)) for word in COMMANDS[command]]
    done = command_line(command.partition(",")[0], *words)
    assert plain(done.stdout + done.stderr)


def test_status_and_verify_of_a_job(tmp_path: Path) -> None:
    root = tmp_path / BAD[:-1]
    folder(root / "p", {"a": 1}, (8, 8))
    command_line("preprocess", root / "p", root / "out")
    for verb in ("status", "verify", "stats"):
        done = command_line("preprocess", verb, root / "out")
        assert done.returncode == 0 and plain(done.stdout), verb


def test_the_log_of_shards_that_are_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    tell("TarShards", [BAD], [[f"the archive is cut off at 5{BAD}"]])
    assert all(map(plain, caplog.messages))


def test_what_pillow_says(caplog: pytest.LogCaptureFixture) -> None:
    with named(lambda: BAD):
        tell_current(UserWarning(f"Corrupt{BAD}"))
    assert caplog.messages and all(map(plain, caplog.messages))


def test_states(tmp_path: Path) -> None:
    feed = ff.Feed(ff.Arrays(np.zeros((8, 4, 4, 3), np.uint8)), [], batch=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        feed.restore(feed.state() | {"on_bad": BAD})
    assert caught and all(plain(str(warning.message)) for warning in caught)


def test_warnings_quote_the_callers_own_paths(tmp_path: Path) -> None:
    for name in ("1", "2", "10"):
        (tmp_path / BAD / name).mkdir(parents=True)
        (tmp_path / BAD / name / "a.jpg").write_bytes(jpeg(1, (8, 8)))
    with pytest.warns(UserWarning, match="sorted as texts") as caught:
        ff.ImageFolder(tmp_path / BAD)
    assert [(plain(str(warning.message)), warning.filename) for warning in caught] == [
        (True, __file__)
    ]


def test_servers(caplog: pytest.LogCaptureFixture) -> None:
    assert plain(explain(OSError(BAD)).unread.detail)
    assert plain(Health(f"http://{BAD}")._name)


@pytest.mark.parametrize("function", [shown, escaped], ids=lambda function: function.__module__)
def test_pages_and_reports(function) -> None:
    assert plain(function(BAD)) or (
        function is escaped and function(BAD).split("\n")[1].isprintable()
    )


def test_bad_samples_of_jobs() -> None:
    record = BadSample(0, BAD, "corrupt", BAD)
    assert plain(str(record))
    assert json.loads(json.dumps(BAD)) == BAD and io.StringIO(str(record)).read() == str(record)
