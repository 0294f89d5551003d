"""TarShards: what is a sample, what is its label, and what damaged shards give."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.shards import samples, shard_folder, tar_of
from helpers.tars import END, entry, header, labels, opened, served

from fastfeed.errors import ConfigError, SourceError
from fastfeed.sources import TarShards


def test_samples_and_labels(tmp_path):
    shard_folder(tmp_path, (3, 0, 2))
    source = TarShards(tmp_path)
    assert len(source) == 5
    assert source.read(range(5)) == [
        data for name, data in samples(range(5)) if name.endswith("jpg")
    ]
    assert labels(source) == [0, 1, 2, 0, 1]
    assert source.classes == ()
    assert source.notes == []
    assert source.bounds.tolist() == [0, 3, 3, 5]
    assert source.sizes(np.array([4, 0])).tolist() == [len(blob) for blob in source.read([4, 0])]
    assert source.shard(2) == str(tmp_path / "s-002.tar")
    assert source.uri(3) == f"{tmp_path}/s-002.tar#512:000003.jpg"
    assert str(source) == f"TarShards({tmp_path}/s-000.tar and 2 more): 5 images"


def test_labels_of_any_ids(tmp_path):
    source = opened(tmp_path / "a.tar", tar_of(samples(range(7))))
    for ids in (
        [6, 0, 6],
        np.array([6, 0, 6]),
        np.array([6, 0, 6], np.uint8),
        range(2),
        [],
        np.empty(0),
    ):
        for found, dtype in ((source.label(ids), np.int64), (source.sizes(ids), np.int64)):
            assert (found.shape, found.dtype) == ((len(ids),), dtype)
    assert source.label(np.array([6, 0, 5])).tolist() == [0, 0, 2]


# -- what belongs together


def tar(*names: str, ends: bytes = END) -> bytes:
    """Members that hold their own names; labels hold 1."""
    return (
        b"".join(entry(n, b"1" if n.lower().endswith(".cls") else n.encode()) for n in names) + ends
    )


GROUPS = {  # names of members -> images with labels; words that the notes have, in order
    "label first": ("1.cls 1.jpg 2.cls 2.jpg", "1.jpg+ 2.jpg+", []),
    "key up to the first dot": (
        "IMG.01.cls IMG.jpg IMG.02.jpg",
        "IMG.jpg",
        ["no .cls for IMG.jpg at 1536"],
    ),
    "a dot in a folder": ("v1.0/1.jpg v1.0/1.cls", "v1.0/1.jpg+", []),
    "same name in two folders": (
        "a/1.jpg b/1.cls b/1.jpg",
        "a/1.jpg b/1.jpg+",
        ["no .cls for a/1.jpg at 512"],
    ),
    "capitals": ("1.JPG 1.CLS", "1.JPG+", []),
    "label without image": ("1.cls 2.jpg 2.cls", "2.jpg+", ["no image for key 1, only cls"]),
    "image without label": ("1.jpg 2.jpg 2.cls", "1.jpg 2.jpg+", ["no .cls for 1.jpg at 512"]),
    "other members": ("1.txt 1.jpg 1.json 1.cls 1.npy", "1.jpg+", []),
    "twice the same, side by side": (
        "1.jpg 1.jpg 1.cls",
        "1.jpg 1.jpg+",
        ["no .cls for 1", "duplicate key 1 at 1536"],
    ),
    "twice, far apart": (
        "1.jpg 1.cls 2.jpg 2.cls 1.jpg 1.cls",
        "1.jpg+ 2.jpg+ 1.jpg+",
        ["duplicate key 1 at 4608"],
    ),
    "apart": (
        "1.jpg 2.jpg 1.cls",
        "1.jpg 2.jpg",
        ["no .cls for 1", "no .cls for 2", "duplicate key 1", "no image for"],
    ),
    "two images": (
        "1.png 1.jpg 1.cls",
        "1.png+",
        ["1.jpg at 1536 is not used: the image is 1.png; pass images="],
    ),
    "a mask": ("1.jpg 1.mask.png 1.cls", "1.jpg+", []),
    "resource forks": (
        "._1.jpg 1.jpg ._1.cls 1.cls",
        "1.jpg+",
        ["left out '._1.jpg' at 0: hidden", "left out '._1.cls'"],
    ),
    "without extension": (
        "1.jpg README 1.cls",
        "1.jpg+",
        ["left out 'README' at 1024: no extension"],
    ),
    "said of the shard": (
        "__meta__ __x__/2.jpg 1.jpg 1.cls",
        "1.jpg+",
        ["left out '__meta__'", "left out '__x__/2.jpg'"],
    ),
}


@pytest.mark.parametrize("what", GROUPS)
def test_what_a_sample_is(tmp_path, what):
    names, found, notes = GROUPS[what]
    source = opened(
        tmp_path / "a.tar", tar(*names.split(), *(() if "+" in found else ("z.jpg", "z.cls")))
    )
    images = [source.uri(i).split(":")[1] for i in range(len(source))]
    shown = [
        name + "+" * (label == 1)
        for name, label in zip(images, labels(source), strict=True)
        if name != "z.jpg"
    ]
    assert shown == found.split()
    assert len(source.notes) == len(notes)
    for note, words in zip(source.notes, notes, strict=True):
        assert note.startswith(f"{tmp_path}/a.tar: {words}")
    assert ("see .notes" in repr(source)) == bool(notes)
    unlabeled = {i for i, label in enumerate(labels(source)) if label < 0}
    assert {
        i for i, blob in enumerate(source.read(range(len(source)))) if not isinstance(blob, bytes)
    } == unlabeled


def test_which_images(tmp_path):
    names = ("1.jpg", "1.png", "2.png", "3.raw", "3.jpg")

    def read(**options):
        return list(served(opened(tmp_path / "a.tar", tar(*names), label=None, **options)))

    assert read() == ["1.jpg", "2.png", "3.jpg"]
    assert read(images=["png"]) == ["1.png", "2.png"]
    assert read(images=[".RAW"]) == ["3.raw"]
    with pytest.raises(
        ConfigError, match=r"images must be a list of extensions, got 'jpg'; pass \['jpg'\]"
    ):
        read(images="jpg")


# -- labels


def labeled(root: Path, *contents: bytes, **options) -> TarShards:
    kind = options.get("label", "cls").partition(":")[0]
    return opened(
        root,
        b"".join(entry(f"{i}.{kind}", c) + entry(f"{i}.jpg", b"x") for i, c in enumerate(contents))
        + END,
        **options,
    )


NUMBERS = {
    b"7": 7,
    b" 7\n": 7,
    b"007": 7,
    b"0": 0,
    b"\xef\xbb\xbf7": 7,
    b"16777215": 2**24 - 1,
    b"0" * 5000 + b"3": 3,
}
NONE = {  # no labels -> why
    b"": "got '', must be a number >= 0 or a string",
    b" \n": "got '',",
    b"-1": "got '-1',",
    b"\0\0": r"got '\x00\x00',",
    b"a\nb": r"got 'a\nb',",
    b"\xff": "'utf-8' codec can't decode byte 0xff",
    b"x" * (1 << 20) + b"x": "1048577 bytes, too long for a label",
}


@pytest.mark.parametrize("content", NUMBERS)
def test_labels_that_are_numbers(tmp_path, content):
    assert labels(labeled(tmp_path / "a.tar", content, b"5", label_kind="index")) == [
        NUMBERS[content],
        5,
    ]


def test_leading_zeros_make_names_unless_indices_are_asked_for(tmp_path):
    source = labeled(tmp_path / "a.tar", b"007", b"5")
    assert (source.classes, labels(source)) == (("007", "5"), [0, 1])
    assert source.notes == [
        "labels have leading zeros (as '007'): all are taken as names; pass label_kind='index' if"
        " they count"
    ]


@pytest.mark.parametrize("content", NONE)
def test_labels_that_are_none(tmp_path, content):
    """Their samples are failures, and the others' labels are what they were."""
    source = labeled(tmp_path / "a.tar", b"4", content)
    assert (labels(source), source.classes) == ([4, -1], ())
    assert list(served(source).values()) == [b"x", ("label_missing", int(source._index.offsets[1]))]
    assert str(source.read([1])[0]).endswith(": label_missing (the sample has no label)")
    assert f"no label in 1.cls at 2560: {NONE[content]}" in source.notes[0]


def test_labels_that_are_texts(tmp_path):
    source = labeled(tmp_path / "a.tar", b"rose", b"daisy\n", "日本".encode(), b"rose")
    assert (source.classes, labels(source)) == (("daisy", "rose", "日本"), [1, 0, 2, 1])
    assert str(source).endswith("a.tar): 4 images of 3 classes")


def test_texts_and_numbers(tmp_path):
    """As names, of which numbers are some; said, because one damaged number would make names of
    all.
    """
    source = labeled(tmp_path / "a.tar", b"10", b"9", b"b", b"", b"9")
    assert (source.classes, labels(source)) == (("10", "9", "b"), [0, 1, 2, -1, 1])
    assert (
        source.notes[0] == "labels are numbers (as '10') and texts (as 'b'): all are taken as names"
    )


def test_texts_in_one_shard_and_numbers_in_another(tmp_path):
    labeled(tmp_path / "a.tar", b"10", b"9", b"")
    labeled(tmp_path / "b.tar", b"b", b"a")
    labeled(tmp_path / "c.tar", b"c", b"10", b"9")
    source = TarShards(tmp_path)
    assert source.classes == ("10", "9", "a", "b", "c")
    assert labels(source) == [0, 1, -1, 3, 2, 4, 0, 1]
    assert TarShards([tmp_path / "b.tar"]).classes == ("a", "b")
    assert TarShards([tmp_path / "a.tar"]).classes == ()


def test_classes_that_are_given(tmp_path):
    source = labeled(tmp_path / "a.tar", b"rose", b"daisy", classes=("tulip", "rose", "daisy"))
    assert (source.classes, labels(source)) == (("tulip", "rose", "daisy"), [1, 2])
    source = labeled(tmp_path / "b.tar", b"1", b"0", classes=("tulip", "rose"))
    assert (source.classes, labels(source)) == (("tulip", "rose"), [1, 0])
    for contents, classes, text in (
        ((b"rose", b"aster"), ("rose",), "TarShards: labels that are not in classes: aster"),
        (tuple(b"%c" % i for i in b"abcdefg"), ("a",), "not in classes: b, c, d, e, f and 1 more"),
        (
            (b"1", b"2"),
            ("a", "b"),
            "TarShards: label 2 is not in classes, which have numbers 0 to 1",
        ),
    ):
        with pytest.raises(SourceError, match=text):
            labeled(tmp_path / "c.tar", *contents, classes=classes)
    for classes in ("rose", ("rose", "rose")):
        with pytest.raises(ConfigError, match="classes must be a list of names, each once, got"):
            labeled(tmp_path / "d.tar", b"rose", classes=classes)


JSON = {  # content of a JSON member -> label by "json:a.b", or why there is none
    b'{"a": {"b": 7}}': 7,
    b'{"a": {"b": "7"}}': 7,
    b'{"a": {"c": 7}}': "no field 'b' of 'a.b'",
    b'{"a": "b"}': "no field 'b' of 'a.b'",
    b'{"b": 7}': "no field 'a' of 'a.b'",
    b"[7]": "no field 'a' of 'a.b'",
    b'{"a": {"b": 7.0}}': 7,
    b'{"a": {"b": 7.5}}': "got 7.5, must be a number >= 0 or a string",
    b'{"a": {"b": -7}}': "got -7, must be",
    b'{"a": {"b": true}}': "got True, must be",
    b'{"a": {"b": null}}': "got None, must be",
    b'{"a": {"b": "\\ud800"}}': r"got '\ud800', must be",
    json.dumps({"a": {"b": ["x" * 999]}}).encode(): "got ['" + "x" * 100,
    b'{"a": {"b": 7': "Expecting ',' delimiter",
    b'{"a": {"b": ' + b"7" * 5000 + b"}}": "Exceeds the limit (4300",
    b"[" * 100_000: "maximum recursion depth exceeded",
}


@pytest.mark.parametrize("content", JSON, ids=lambda content: content[:30])
def test_labels_in_json(tmp_path, content):
    source = labeled(
        tmp_path / "a.tar", b'{"a": {"b": 5}}', content, label="json:a.b", label_kind="index"
    )
    expected = JSON[content]
    assert labels(source) == [5, expected if isinstance(expected, int) else -1]
    assert (
        source.notes == []
        if isinstance(expected, int)
        else f"no label in 1.json at 2560: {expected}" in source.notes[0]
    )


def test_json_texts(tmp_path):
    source = labeled(tmp_path / "a.tar", b'{"a": "rose"}', b'{"a": "daisy"}', label="json:a")
    assert (source.classes, labels(source)) == (("daisy", "rose"), [1, 0])


def test_no_label_is_asked_for(tmp_path):
    source = opened(tmp_path / "a.tar", tar("1.jpg", "2.cls", "2.jpg"), label=None)
    assert (labels(source), source.classes, source.notes) == ([-1, -1], (), [])
    assert source.read([0, 1]) == [b"1.jpg", b"2.jpg"]


@pytest.mark.parametrize("label", ["", "json", "cls:a", ":a", "json:"])
def test_labels_that_cannot_be_meant(tmp_path, label):
    with pytest.raises(
        ConfigError,
        match="label must be an extension such as 'cls', a field such as 'json:landmark_id'",
    ):
        opened(tmp_path / "a.tar", tar("1.jpg"), label=label)


def test_all_labels_are_missing(tmp_path):
    text = (
        f"TarShards: no sample has a label\n  {tmp_path}/a.tar: no .txt for 1.jpg at 512; pass"
        " label='json:field' or the extension that holds it, or label=None for images without; the"
        " members of a sample must be adjacent"
    )
    with pytest.raises(SourceError) as caught:
        opened(tmp_path / "a.tar", tar("1.jpg", "1.cls"), label="txt")
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("data", "note"),
    [
        (b"", "empty file"),
        (bytes(10240), None),
        (b"hello" * 200, "no tar file at 0: nothing after it can be read"),
        (tar("1.cls"), "no image for key 1, only cls"),
        (
            header("1.jpg", kind=b"2") + END,
            "left out '1.jpg' at 0: a link to no file of the archive",
        ),
    ],
)
def test_no_image_at_all(tmp_path, data, note):
    with pytest.raises(SourceError) as caught:
        opened(tmp_path / "a.tar", data)
    said = f"\n  {tmp_path}/a.tar: {note}" if note else ""
    assert (
        str(caught.value)
        == f"TarShards: no images in 1 shards, the first is {tmp_path}/a.tar{said}"
    )


def test_compressed_shards_are_refused(tmp_path):
    with pytest.raises(SourceError) as caught:
        opened(tmp_path / "a.tar", b"\x1f\x8b" + bytes(600))
    assert str(caught.value).startswith(
        f"{tmp_path}/a.tar is compressed with gzip: samples in it cannot be found"
    )
