"""Tables as other tools write them: images in base64, structs with paths alone, dictionaries,
nested columns.
"""

from __future__ import annotations

import base64
import csv
import json
import pickle
from urllib.parse import quote_from_bytes

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.photos import jpeg
from helpers.remotes import uploaded as remote
from helpers.tables import write

import fastfeed as ff
from fastfeed.errors import SourceError
from fastfeed.faults import Failure
from fastfeed.sources.detect import detect_kind
from fastfeed.sources.tables import row_group_images
from fastfeed.sources.tables.parquet_footer import row_groups

PHOTOS = [jpeg(k, (16, 16)) for k in range(3)]
TEXTS = [base64.b64encode(photo).decode() for photo in PHOTOS]
HF = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
MASK = ff.FaultPolicy("mask", max_share=1.0)


def _table(folder, format, images, **options):
    table = write(folder / f"t.{format}", {"image": images, "label": ["a", "b", "a"]})
    return ff.Table(table, image="image", label="label", **options)


def _parquet(folder, images, name="image", column="image", **options):
    pq.write_table(
        pa.table({column: images, "label": ["a", "b", "a"]}), folder / "t.parquet", **options
    )
    return ff.Table(folder / "t.parquet", image=name, label="label")


def write_images(path, images):
    table = pa.table({"image": images})
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table)


def _served(source):
    """By the feed, which reads local files in another way than `read`."""
    with ff.Feed(
        source, [ff.Resize((8, 8))], batch=len(source), shuffle=False, threads=1, on_bad=MASK
    ) as feed:
        next(iter(feed))
        return [str(failure) for failure in feed.stats().bad]


# -- images in base64


@pytest.mark.parametrize("format", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize(
    "write_as",
    [
        lambda text, photo: text,
        lambda text, photo: f"data:image/jpeg;base64,{text}",
        lambda text, photo: f"DATA:image/jpeg;name=a.jpg;BASE64,{text[:64]}\n{text[64:]}",
        lambda text, photo: f"data:image/jpeg,{quote_from_bytes(photo)}",
    ],
    ids=["base64", "data", "lines", "percent"],
)
def test_images_in_base64_are_read(tmp_path, format, write_as):
    source = _table(tmp_path, format, [write_as(*pair) for pair in zip(TEXTS, PHOTOS, strict=True)])
    assert source.read([2, 0]) == [PHOTOS[2], PHOTOS[0]]
    assert source.uri(2) == f"{tmp_path}/t.{format}#2"
    assert _served(source) == []


def test_large_fields_of_csv_are_read(tmp_path):
    large = jpeg(0, (640, 640), quality=100)
    assert len(base64.b64encode(large)) > 131_072
    source = _table(tmp_path, "csv", [base64.b64encode(large).decode(), *TEXTS[1:]])
    assert source.read([0, 1]) == [large, PHOTOS[1]]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("data:image/jpeg;base64,/9j/%%%", "corrupt (base64: "),
        ("data:image/jpeg;base64", "corrupt (a data URI without a comma)"),
        ("data:image/jpeg;base64,", "empty"),
        ("x" * 300_000, "not_found (300,"),
        ("/" + "two words " * 30_000, "not_found ("),
    ],
    ids=["characters", "comma", "empty", "word", "words"],
)
def test_what_is_no_image_is_a_short_message(tmp_path, text, reason):
    source = _table(tmp_path, "jsonl", [text, TEXTS[1], TEXTS[2]], allow_path=["/"])
    failures = [x for x in source.read([0]) if isinstance(x, Failure)]
    assert all(reason in str(failure) and len(str(failure)) < 400 for failure in failures)
    bad = _served(source)
    assert (
        len(bad) == 1
        and len(bad[0]) < 400
        and f"{tmp_path}/t.jsonl#0" in bad[0]
        and reason in bad[0]
    )


def test_paths_that_look_like_base64_are_paths(tmp_path):
    names = ["AAAA" + "x" * 60 + ".jpg", "R0lGODs.jpg", "iVBORw0KGgo"]
    for name, photo in zip(names, PHOTOS, strict=True):
        (tmp_path / name).write_bytes(photo)
    assert _table(tmp_path, "csv", names).read([0, 1, 2]) == PHOTOS


# -- shapes of Parquet


def _paths(folder):
    for k, photo in enumerate(PHOTOS):
        (folder / f"{k}.jpg").write_bytes(photo)
    return [{"bytes": None, "path": f"{k}.jpg"} for k in range(3)]


@pytest.mark.parametrize("groups", [1, 3])
def test_structs_of_paths_alone_are_paths(tmp_path, groups):
    source = _parquet(tmp_path, pa.array(_paths(tmp_path), HF), row_group_size=groups)
    assert source.read([2, 0, 1]) == [PHOTOS[2], *PHOTOS[:2]]
    assert source.uri(1) == str(tmp_path / "1.jpg")
    assert _served(source) == []


def test_structs_with_a_path_and_no_bytes_at_all(tmp_path):
    source = _parquet(tmp_path, pa.array([{"path": row["path"]} for row in _paths(tmp_path)]))
    assert source.read([0, 1, 2]) == PHOTOS


@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("where", ["local", "remote"])
def test_structs_with_bytes_in_some_rows_and_paths_in_others(tmp_path, groups, where):
    rows = _paths(tmp_path)
    rows[0] = {"bytes": PHOTOS[0], "path": "nothing.jpg"}
    source = _parquet(tmp_path, pa.array(rows, HF), row_group_size=groups)
    if where == "remote":
        source = ff.Table(remote(tmp_path) + "/t.parquet", image="image", label="label")
    assert source.read([2, 0, 1]) == [PHOTOS[2], *PHOTOS[:2]]
    assert source.uri(1).endswith("/t.parquet#1")
    assert pickle.loads(pickle.dumps(source)).read([1]) == [PHOTOS[1]]
    assert _served(source) == []


@pytest.mark.parametrize("format", ["parquet", "arrow"])
@pytest.mark.parametrize("order", ["abc", "bca", "cab"])
def test_files_with_paths_alone_among_files_with_bytes(tmp_path, format, order):
    """As `datasets` writes shards: which rows have bytes differs from one to the next."""
    named = _paths(tmp_path)
    content = [{"bytes": PHOTOS[0], "path": "lost.jpg"}, {"bytes": None, "path": None}]
    for name, rows in {"a": named[:2], "b": [*content, named[1]], "c": [named[2], None]}.items():
        write_images(tmp_path / f"{name}.{format}", pa.array(rows, HF))
    held = {
        "a": PHOTOS[:2],
        "b": [PHOTOS[0], "not_found", PHOTOS[1]],
        "c": [PHOTOS[2], "not_found"],
    }
    source = ff.Table([tmp_path / f"{name}.{format}" for name in order], image="image")
    images = source.read(range(len(source)))
    got = [image if isinstance(image, bytes) else image.reason for image in images]
    assert got == [image for name in order for image in held[name]]
    assert len(_served(source)) == 2
    rest = [tmp_path / f"{name}.{format}" for name in order if name != "b"]
    assert ff.Table(rest, image="image").paths is not None


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_files_of_other_kinds_than_those_with_bytes_are_named(tmp_path, order):
    pq.write_table(pa.table({"image": pa.array([{"bytes": PHOTOS[0]}])}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"image": ["0.jpg"]}), tmp_path / "b.parquet")
    files = [tmp_path / f"{name}.parquet" for name in order]
    with pytest.raises(SourceError) as error:
        ff.Table(files, image="image")
    text = f"'image' is of one kind in {files[0]} and of another in {files[1]}"
    assert text in str(error.value)


@pytest.mark.parametrize(
    "kind", [HF, pa.struct([("bytes", pa.binary())])], ids=["paths", "no paths"]
)
def test_a_footer_is_unpacked_once_however_many_rows_have_no_bytes(tmp_path, kind, monkeypatch):
    (tmp_path / "0.jpg").write_bytes(PHOTOS[0])
    rows = [{"bytes": PHOTOS[1], "path": ""}, *[{"bytes": None, "path": "0.jpg"}] * 40]
    pq.write_table(
        pa.table({"image": pa.array(rows, kind)}), tmp_path / "t.parquet", row_group_size=2
    )
    source = ff.Table(tmp_path / "t.parquet", image="image")
    unpacked = []
    monkeypatch.setattr(
        row_group_images,
        "row_groups",
        lambda *footer: unpacked.append(footer) or row_groups(*footer),
    )
    images = source.read([*range(41), *range(41)])
    assert len(unpacked) == 1
    assert (
        images[:41] == images[41:]
        if kind == HF
        else all(isinstance(bad, Failure) for bad in images[1:41])
    )
    assert images[0] == PHOTOS[1] and (images[40] == PHOTOS[0]) == (kind == HF)


def test_paths_among_bytes_keep_to_the_rules(tmp_path):
    (tmp_path / "inside").mkdir()
    _paths(tmp_path)
    other = [{"bytes": None, "path": path} for path in ("../0.jpg", "lost.jpg", None, "")]
    rows = pa.array([{"bytes": PHOTOS[0], "path": "0.jpg"}, *other], HF)
    pq.write_table(pa.table({"image": rows}), tmp_path / "inside" / "t.parquet", row_group_size=2)
    _, outside, lost, *missing = ff.Table(tmp_path / "inside" / "t.parquet", image="image").read(
        range(5)
    )
    assert outside.reason == "not_allowed" and "allow_path" in outside.detail
    assert (lost.reason, lost.detail) == ("not_found", "lost.jpg")
    assert [(bad.reason, bad.detail) for bad in missing] == [
        ("not_found", f"row {row}: no image") for row in (3, 4)
    ]
    small = ff.Table(tmp_path / "inside" / "t.parquet", image="image", memory=100)
    assert small.read([1])[0].reason == "bomb"
    allowed = ff.Table(tmp_path / "inside" / "t.parquet", image="image", allow_path=tmp_path)
    assert allowed.read([1]) == [PHOTOS[0]]


def test_paths_of_a_struct_are_not_allowed_elsewhere(tmp_path):
    (tmp_path / "inside").mkdir()
    rows = [{"bytes": None, "path": f"../{row['path']}"} for row in _paths(tmp_path)]
    with pytest.raises(ff.errors.ConfigError, match=r"no row of .* is allowed"):
        _parquet(tmp_path / "inside", pa.array(rows, HF))


@pytest.mark.parametrize(
    ("paths", "reason"),
    [
        (pa.array([b"\xff", b"\xff"]).cast(pa.string(), safe=False), "corrupt"),
        (pa.array([7, 7]), "not_found"),
    ],
    ids=["not UTF-8", "numbers"],
)
def test_paths_among_bytes_that_are_none(tmp_path, paths, reason):
    rows = pa.StructArray.from_arrays([pa.array([PHOTOS[0], None]), paths], ["bytes", "path"])
    pq.write_table(pa.table({"image": rows}), tmp_path / "t.parquet")
    good, bad = ff.Table(tmp_path / "t.parquet", image="image").read(range(2))
    assert good == PHOTOS[0] and bad.reason == reason


SHAPES = {
    "dictionary": pa.array(PHOTOS, pa.binary()).dictionary_encode(),
    "binary_view": pa.array(PHOTOS, pa.binary_view()),
    "large_binary": pa.array(PHOTOS, pa.large_binary()),
    "dictionary of paths": pa.array(["0.jpg", "1.jpg", "2.jpg"]).dictionary_encode(),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_bytes_of_other_types(tmp_path, shape):
    _paths(tmp_path)
    source = _parquet(tmp_path, SHAPES[shape])
    assert source.read([0, 1, 2]) == PHOTOS and _served(source) == []


def test_bytes_of_one_length(tmp_path):
    longest = max(map(len, PHOTOS))
    padded = [photo.ljust(longest, b"\0") for photo in PHOTOS]
    assert _parquet(tmp_path, pa.array(padded, pa.binary(longest))).read([0, 2]) == [
        padded[0],
        padded[2],
    ]


@pytest.mark.parametrize(
    ("rows", "name"),
    [
        ([{"a": {"bytes": photo, "path": ""}} for photo in PHOTOS], "image.a"),
        ([{"a": photo} for photo in PHOTOS], "image.a"),
        ([{"a": {"b": photo}} for photo in PHOTOS], "image.a.b"),
    ],
    ids=["struct", "bytes", "deep"],
)
def test_nested_columns_by_their_dots(tmp_path, rows, name):
    source = _parquet(tmp_path, pa.array(rows), name)
    assert source.read([1, 0]) == [PHOTOS[1], PHOTOS[0]] and _served(source) == []


def test_nested_labels_and_columns_and_names_with_dots(tmp_path):
    rows = [{"label": text, "size": {"w": k}} for k, text in enumerate("bab")]
    pq.write_table(pa.table({"a.b": PHOTOS, "meta": rows}), tmp_path / "t.parquet")
    source = ff.Table(
        tmp_path / "t.parquet", image="a.b", label="meta.label", columns=["meta.size.w"]
    )
    assert source.label(np.arange(3)).tolist() == [1, 0, 1]
    assert source.columns(np.arange(3))["meta.size.w"].tolist() == [0, 1, 2]
    assert source.read([1]) == [PHOTOS[1]]
    for missing in ("meta.nothing", "meta.size.w.x", "a.b.c", "nothing.x"):
        with pytest.raises(ff.errors.ConfigError, match=f"no column '{missing}' in"):
            ff.Table(tmp_path / "t.parquet", image="a.b", columns=[missing])


def test_lists_of_images_are_refused_in_a_sentence(tmp_path):
    with pytest.raises(
        SourceError, match=r"must hold paths, or images .*; write a row for each image$"
    ):
        _parquet(tmp_path, pa.array([[photo] for photo in PHOTOS]))


def test_other_readers_of_csv_in_this_process_can_do_no_less(tmp_path):
    before = csv.field_size_limit()
    _table(tmp_path, "csv", TEXTS)
    assert csv.field_size_limit() >= before


def test_a_json_table_of_data_uris_and_paths(tmp_path):
    _paths(tmp_path)
    rows = [{"image": "0.jpg", "label": "a"}, {"image": f"data:;base64,{TEXTS[1]}", "label": "b"}]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert ff.Table(tmp_path / "t.jsonl", image="image", label="label").read([0, 1]) == PHOTOS[:2]


# -- folders that partition a table


def _partitioned(root, format):
    for k, (name, value) in enumerate((("cat", "1"), ("dog%2Fwolf", "2"), ("cat", "10"))):
        part = root / f"label={name}" / f"year={value}"
        part.mkdir(parents=True)
        (part / f"{k}.jpg").write_bytes(PHOTOS[k])
        write(part / f"part-0.{format}", {"image": [f"{k}.jpg"]})
    (root / "_SUCCESS").write_bytes(b"")
    return root


@pytest.mark.parametrize("format", ["csv", "jsonl", "parquet"])
def test_folders_that_partition_a_table_are_columns(tmp_path, format):
    root = _partitioned(tmp_path / "t", format)
    source = ff.Table(root, image="image", label="label", columns=["year", "label"])
    assert source.classes == ("cat", "dog/wolf")
    order = [int(source.uri(i)[-5]) for i in range(3)]
    assert sorted(order) == [0, 1, 2] and source.read([0, 1, 2]) == [PHOTOS[k] for k in order]
    assert source.label(np.arange(3)).tolist() == [(0, 1, 0)[k] for k in order]
    columns = source.columns(np.arange(3))
    assert columns["year"].tolist() == [(1, 2, 10)[k] for k in order]
    assert columns["label"].tolist() == [("cat", "dog/wolf", "cat")[k] for k in order]


def test_partitions_of_images_and_of_null(tmp_path):
    for k, name in enumerate(("a", "__HIVE_DEFAULT_PARTITION__")):
        (tmp_path / f"key={name}").mkdir()
        pq.write_table(pa.table({"image": [PHOTOS[k]] * 2}), tmp_path / f"key={name}" / "0.parquet")
    source = ff.Table(tmp_path, image="image", label="key")
    assert sorted(source.label(np.arange(4)).tolist()) == [-1, -1, 0, 0] and source.classes == (
        "a",
    )
    source = ff.Table(remote(tmp_path) + "/", image="image", label="key")
    assert (len(source), source.classes) == (4, ("a",))


def test_partitions_written_by_pyarrow(tmp_path):
    table = pa.table({"image": PHOTOS, "species": ["owl", "ant", "owl"]})
    pq.write_to_dataset(table, tmp_path / "t", partition_cols=["species"])
    assert detect_kind(str(tmp_path / "t")) == "table"
    source = ff.Table(tmp_path / "t", image="image", label="species")
    assert source.classes == ("ant", "owl")
    assert dict(zip(source.read([0, 1, 2]), source.label(np.arange(3)), strict=True)) == {
        PHOTOS[1]: 0,
        PHOTOS[0]: 1,
        PHOTOS[2]: 1,
    }


def test_a_column_of_another_kind_is_not_called_damaged(tmp_path):
    pq.write_table(pa.table({"image": PHOTOS, "tags": [["a"], [], ["b"]]}), tmp_path / "t.parquet")
    with pytest.raises(SourceError) as error:
        ff.Table(tmp_path / "t.parquet", image="image", weight="tags")
    assert "damaged" not in str(error.value) and "column 'tags'" in str(error.value)
