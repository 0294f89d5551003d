"""Laws of messages: whatever a source is given, or finds, its error is short, printable, and one of
the family.
"""

from __future__ import annotations

import inspect
import json
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from helpers.hugging_face import saved
from helpers.mosaic import mds_folder, raw_folder
from helpers.photos import folder, jpeg
from helpers.records import example, frame, record_folder
from helpers.shards import shard_folder, tar_of
from helpers.tables import FORMATS, write

import fastfeed as ff
from fastfeed.errors import FastfeedError
from fastfeed.sources.notes import source_notes

LONGEST = 3000  # characters of a message
LONG = {"word": "x" * 20_000, "words": "two words " * 2_000, "controls": "a\x1b[2J\nb " * 2_000}
long_values = pytest.mark.parametrize("long", LONG.values(), ids=LONG)


def _photos(root):
    return folder(root, {"a": 2, "b": 2})


def _instances(root):
    (root / "i.json").write_text(json.dumps({"images": [], "annotations": [], "categories": []}))
    return root / "i.json"


# of every source: what makes one that is right
MAKERS = {
    "ImageFolder": lambda root: (ff.ImageFolder, {"root": _photos(root)}),
    "TarShards": lambda root: (ff.TarShards, {"shards": shard_folder(root, (2,))}),
    "TFRecords": lambda root: (ff.TFRecords, {"shards": record_folder(root, (2,))}),
    "MDSShards": lambda root: (ff.MDSShards, {"shards": mds_folder(root, (2,))}),
    "RawShards": lambda root: (ff.RawShards, {"shards": raw_folder(root, (2,))}),
    "Table": lambda root: (
        ff.Table,
        {
            "table": write(_photos(root) / "t.csv", {"path": ["a/0000.jpg"], "key": ["a"]}),
            "image": "path",
        },
    ),
    "HuggingFace": lambda root: (ff.HuggingFace, {"data": saved(root / "saved", [0, 1])}),
    "Mapped": lambda root: (ff.Mapped, {"dataset": [(np.zeros((4, 4, 3), np.uint8), 0)]}),
    "Files": lambda root: (ff.Files, {"paths": ["a.jpg"], "columns": {"key": ["a"]}}),
    "Arrays": lambda root: (ff.Arrays, {"images": np.zeros((2, 4, 4, 3), np.uint8)}),
    "Mixture": lambda root: (
        ff.Mixture,
        {"sources": [ff.ImageFolder(_photos(root))], "weights": [1]},
    ),
    "Objects": lambda root: (
        ff.Objects,
        {"source": ff.ImageFolder(_photos(root)), "boxes": [[]] * 4},
    ),
    "Objects.coco": lambda root: (
        ff.Objects.coco,
        {"images": _photos(root), "annotations": _instances(root)},
    ),
}


def _check(error):
    text = str(error)
    assert isinstance(error, FastfeedError), repr(error)[:500]
    assert len(text) < LONGEST, f"{len(text)} characters: {text[:500]}"
    assert text.replace("\n", "").isprintable(), text[:500]


@long_values
@pytest.mark.parametrize("kind", MAKERS)
def test_every_option_of_every_source(tmp_path, kind, long, monkeypatch):
    make, options = MAKERS[kind](tmp_path)
    names = [
        name for name in inspect.signature(make).parameters if name not in ("storage", "cache")
    ]
    assert set(options) <= set(names)
    refused = 0
    for name in names:
        for value in (long, [long, long], {long: 1}, [[long]]):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    make(**options | {name: value})
                except FastfeedError as error:
                    _check(error)
                    refused += 1
                except (TypeError, AttributeError, ValueError, OSError) as error:
                    assert len(str(error)) < LONGEST, f"{name}: {type(error)}"
    assert refused


def _of_table(root, long, format):
    for name in ("a", "b"):
        (root / f"{name}.jpg").write_bytes(jpeg(0, (8, 8)))
    yield {"image": [long, "b.jpg"], "label": ["a", "b"]}, {}
    yield {"image": ["a.jpg", "b.jpg"], "label": [long, "b"]}, {"classes": ["c"]}
    yield {"image": ["a.jpg", "b.jpg"], "label": [long, "b"]}, {"label": "label", "weight": "label"}
    yield {"image": ["a.jpg", "b.jpg"], "label": [long, "b"]}, {"box": "label", "label": None}
    yield (
        {"image": ["a.jpg", "b.jpg"], long: ["a", "b"], "label": ["a", "b"]},
        {"columns": ["nothing"]},
    )
    yield {"image": ["a.jpg", "b.jpg"], long: ["a", "b"], "label": ["a", "b"]}, {"weight": long}


@long_values
@pytest.mark.parametrize("format", FORMATS)
def test_every_value_of_a_table(tmp_path, format, long):
    for columns, options in _of_table(tmp_path, long, format):
        table = write(tmp_path / f"t.{format}", columns)
        _of_source(
            lambda table=table, options=options: ff.Table(
                table, **{"image": "image", "label": "label"} | options
            )
        )


@long_values
def test_every_value_of_shards(tmp_path, long):
    photo = jpeg(0, (8, 8))
    for label in ({"key": long}, {"key": [long]}, {long: 1}):
        members = [("a.jpg", photo), ("a.json", json.dumps(label).encode())]
        (tmp_path / "a.tar").write_bytes(tar_of(members))
        for options in ({}, {"classes": ["a"]}):
            _of_source(
                lambda options=options: ff.TarShards(
                    tmp_path / "a.tar", label="json:key", **options
                )
            )
    for values in ({"key": long.encode()}, {long: b"a"}):
        (tmp_path / "a.tfrecord").write_bytes(frame(example({"image/encoded": photo, **values})))
        _of_source(lambda: ff.TFRecords(tmp_path / "a.tfrecord", label="key"))


@long_values
def test_every_name_of_a_class(tmp_path, long):
    name = long.replace("/", "_")[:60]
    source = ff.ImageFolder(folder(tmp_path / "p", {name: 1, "b": 1}))
    _of_source(lambda: ff.ImageFolder(Path(source.root), classes=["b"]))
    _of_source(lambda: ff.Arrays(np.zeros((1, 2, 2), np.uint8), [7], classes=[long]))


def _of_source(make):
    """Errors, notes and failures."""
    try:
        source = make()
    except FastfeedError as error:
        _check(error)
        return
    for failure in source.read(range(len(source))):
        if isinstance(failure, ff.Failure):
            assert len(str(failure)) < LONGEST and str(failure).isprintable()
    for note in source_notes(source):
        assert len(note) < LONGEST, note[:500]


# a value cut in an f-string, which says neither that nor how long it is; a warning that is not made
# printable, a log or a console of its own
OWN_WAYS = re.compile(
    r":(?:[<>^]\d*)?\.\d+\}|\{[^{}]*\[:\d{2,}\](?:![rsa])?\}|warnings\.warn\(|getLogger\(\"fastfeed"
)


def test_own_ways_are_seen():
    for line in (
        'f"{a!r:.60}"',
        'f"{a:>8.60}"',
        'f"{a[:60]!r}"',
        'f"{a.b(c)[:60]}"',
        "warnings.warn(a)",
        'logging.getLogger("fastfeed").info(a)',
    ):
        assert OWN_WAYS.search(line), line
    assert not OWN_WAYS.search(
        'f"{a:.2f} {a!r:>10} {a:.0%} {a[0]} {a[:8].hex()} {printable(a, 80)}"; b[:60]'
    )


def test_values_are_cut_and_warnings_issued_by_one_module():
    package = Path(ff.__file__).parent
    texts = {
        path: path.read_text("utf-8")
        for path in package.rglob("*.py")
        if path != package / "printable.py"
    }
    assert len(texts) > 300
    found = [
        f"{path.name}: {own[0]}" for path, text in texts.items() for own in OWN_WAYS.finditer(text)
    ]
    assert not found, f"use fastfeed.printable: {found}"
