"""An interrupted job is resumed over what it was planned for, whatever was added since: any source,
any target.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.photos import jpeg
from helpers.shards import tar_of
from helpers.small_jobs import InlineEngine, recipe

from fastfeed.errors import ConfigError
from fastfeed.preprocess import Report, run
from fastfeed.preprocess.inputs.source_spec import SourceSpec

NAMES = [f"{'ab'[k % 2]}/{k}.jpg" for k in range(14)]


class Interrupted(InlineEngine):
    """Builds one shard."""

    def run(self, task, pieces):  # type: ignore[no-untyped-def]
        yield from super().run(task, pieces[:1])
        raise KeyboardInterrupt


def folder(count: int) -> str:
    for k in range(count):
        path = Path("photos", NAMES[k])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(k))
    if count > 12:  # first of a new first class
        Path("photos/0").mkdir(exist_ok=True)
        Path("photos/0/0.jpg").write_bytes(jpeg(99))
    return "photos"


def table(count: int) -> str:
    folder(12)
    Path("photos/new.jpg").write_bytes(jpeg(77))
    rows = [f"{name},c{name[0]},{k}" for k, name in enumerate(NAMES[:12])]
    if count > 12:
        rows.insert(3, "new.jpg,a new class,99")
    Path("photos/t.csv").write_text("\n".join(["path,label,n", *rows]) + "\n")
    return "photos/t.csv"


def shards(count: int) -> str:
    Path("in").mkdir(exist_ok=True)
    for first in range(0, count, 6):
        members = [
            (f"{k}.{x}", c)
            for k in range(first, first + 6)
            for x, c in (("jpg", jpeg(k)), ("cls", b"%d" % k))
        ]
        Path(f"in/{first:03d}.tar").write_bytes(tar_of(members))
    return "in/*.tar"


SOURCES = {"folder": folder, "table": table, "shards": shards}


def go(place: str, target: str, engine: Any, **more: Any) -> Report:
    columns = ("n",) if place.endswith(".csv") else ()
    return run(SourceSpec(place, columns=columns), target, recipe(), engine=engine, **more)


@pytest.mark.parametrize(
    ("kind", "remote"),
    [
        *((kind, False) for kind in SOURCES),
        ("folder", True),
        *(pytest.param(kind, True, marks=pytest.mark.slow) for kind in SOURCES if kind != "folder"),
    ],
)
def test_it_is_resumed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    kind: str,
    remote: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    make: Callable[[int], str] = SOURCES[kind]
    target, more = "shards", dict[str, Any]()
    if remote:
        s3 = request.getfixturevalue("s3")
        s3.put(f"meanwhile-{kind}/other", b"x")
        target, more = f"s3://meanwhile-{kind}/shards", {"target_storage": s3.options}
    whole = go(make(12), "whole", InlineEngine())
    with pytest.raises(KeyboardInterrupt):
        go(make(12), target, Interrupted(), **more)
    place = make(18 if kind == "shards" else 14)
    report = go(place, target, InlineEngine(), **more)
    assert report.complete and report.tally.samples == 12 and report.classes == whole.classes
    if not remote:
        for path in Path("whole").glob("*.tar"):
            assert path.read_bytes() == Path("shards", path.name).read_bytes()
    assert " more image" in go(place, target, InlineEngine(), **more).notes[0]


@pytest.mark.parametrize("kind", ["table", "shards"])
def test_another_request_is_refused_over_more_photographs_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        go(SOURCES[kind](12), "shards", Interrupted())
    place = SOURCES[kind](18 if kind == "shards" else 14)
    with pytest.raises(ConfigError, match="captions or columns: "):
        run(
            SourceSpec(place, columns=("cls",) if kind == "shards" else ()),
            "shards",
            recipe(),
            engine=InlineEngine(),
        )


def test_a_retry_over_more_rows_is_of_its_own_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = table(12)
    Path("photos", NAMES[4]).write_bytes(jpeg(4)[:300])
    assert len(go(place, "shards", InlineEngine()).bad) == 1
    table(14)  # writes the photograph whole, too
    report = go(place, "shards", InlineEngine(), retry=("truncated",))
    assert report.complete and not report.bad and report.tally.samples == 12
