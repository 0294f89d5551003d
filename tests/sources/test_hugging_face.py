"""HuggingFace: repositories of the Hub, saved data sets, and `datasets.Dataset` as it is."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.hugging_face import (
    FEATURES,
    README,
    Concatenated,
    Dataset,
    Feature,
    Mapped,
    blob,
    repository,
    saved,
    table,
    write_parquet,
    write_stream,
)
from helpers.needs import require
from helpers.remotes import uploaded

import fastfeed as ff
from fastfeed.cli.open_source import open_source
from fastfeed.errors import ConfigError, SourceError
from fastfeed.sources import HuggingFace
from fastfeed.sources.detect import detect_kind


def rows_of(source: HuggingFace) -> list[int]:
    """The rows of `table` that the samples are; all that they have is checked."""
    ids = np.arange(len(source))
    rows = [int(text.split()[1]) for text in source.columns(ids)["caption"]]
    assert source.read(ids.tolist()) == list(map(blob, rows))
    assert source.label(ids).tolist() == [row % 2 for row in rows]
    assert source.classes == ("cat", "dog")
    again = pickle.loads(pickle.dumps(source))
    assert again.read([0]) == source.read([0]) and again.fingerprint == source.fingerprint
    return rows


def opened(data: Any, split: str | None = None, **options: Any) -> HuggingFace:
    return HuggingFace(data, split, columns=["caption"], **options)


def test_errors_of_its_table_begin_with_its_name(tmp_path):
    data = write_parquet(tmp_path / "a.parquet", table([0, 1]))
    with pytest.raises(ConfigError, match=r"^HuggingFace: no column 'captoin' in .*a\.parquet"):
        HuggingFace(data, columns=["captoin"])
    with pytest.raises(ConfigError, match=r"^HuggingFace: memory must be bytes > 0"):
        HuggingFace(data, memory="much")


# -- folders


def test_a_saved_data_set(tmp_path):
    folder = saved(tmp_path / "d", [0, 1, 2], [3, 4], split="train")
    assert rows_of(opened(folder)) == rows_of(opened(folder, "train")) == [0, 1, 2, 3, 4]
    assert repr(opened(folder)) == f"HuggingFace({folder}): 5 images of 2 classes"
    with pytest.raises(
        ConfigError,
        match=r"split must be a split of .*, got 'test'; it has train; pass split='train'",
    ):
        opened(folder, "test")


def test_shards_are_read_in_the_order_of_the_state(tmp_path):
    folder = saved(tmp_path, [0], [1])
    state = (folder / "state.json").read_text()
    swapped = state.replace("00000", "x").replace("00001", "00000").replace("x", "00001")
    (folder / "state.json").write_text(swapped)
    assert rows_of(opened(folder)) == [1, 0]


def test_a_saved_dict_of_splits(tmp_path):
    saved(tmp_path / "train", [0, 1])
    saved(tmp_path / "test", [2])
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert rows_of(opened(tmp_path, "test")) == [2]
    with pytest.raises(ConfigError, match=r"got none; it has train, test; .*/train is one"):
        opened(tmp_path)
    with pytest.raises(ConfigError, match=r"got 'train\[:10%\]'; .* parts of a split are those of"):
        opened(tmp_path, "train[:10%]")


@pytest.mark.parametrize(
    ("readme", "name", "split", "rows"),
    [
        ("", None, "train", [0, 1, 2, 3, 4, 5]),
        ("", None, "test", [6, 7]),
        ("license: mit", None, "test", [6, 7]),
        (README, None, "train", [0, 1, 2, 3, 4, 5]),
        (README, None, "held_out", [6, 7]),
        (README, "small", None, [0, 1, 2]),
        ("configs:\n- {config_name: a, data_dir: data}", None, "test", [6, 7]),
        ("configs:\n- {config_name: a, data_files: 'data/test-*'}", None, "train", [6, 7]),
        ("configs:\n- {config_name: a, data_files: {x: '**/t*'}}", None, None, [6, 7, *range(6)]),
    ],
)
def test_a_repository(tmp_path, readme, name, split, rows):
    assert rows_of(opened(repository(tmp_path, readme), split, name=name)) == rows


def test_one_of_several_configurations_is_printed(tmp_path):
    root = repository(tmp_path / "hub", README)
    name = "HuggingFace({}, configuration {}): {} images of 2 classes".format
    assert repr(opened(root, name="small")) == name(root, "small", 3)
    assert repr(opened(root, "train")) == name(root, "full, split train", 6)
    assert "configuration" not in repr(opened(repository(tmp_path / "one"), "train"))
    for k, folder in enumerate(("a", "b")):
        write_parquet(tmp_path / "c" / folder / "train-00000-of-00001.parquet", table([k]))
    assert repr(opened(tmp_path / "c", name="b")) == name(tmp_path / "c", "b", 1)


def test_a_remote_repository(tmp_path):
    address = uploaded(repository(tmp_path, README))
    source = opened(address, "held_out")
    assert source.remote and rows_of(source) == [6, 7]
    source = opened(uploaded(saved(tmp_path / "saved", [0, 1], [2])))
    assert source.remote and rows_of(source) == [0, 1, 2]


@pytest.mark.parametrize(
    ("path", "split"),
    [
        ("train.parquet", "train"),
        ("my-valid-images.parquet", "validation"),
        ("dev/part.parquet", "validation"),
        ("evaluation/0.parquet", "test"),
        ("data/unlabeled-00000-of-00001-abc.parquet", "unlabeled"),
        ("contest.parquet", "train"),
    ],
)
def test_names_of_splits(tmp_path, path, split):
    write_parquet(tmp_path / path, table([1]))
    assert rows_of(opened(tmp_path, split)) == [1]


def test_folders_are_configurations(tmp_path):
    for k, name in enumerate(("a", "b")):
        write_parquet(tmp_path / name / "train-00000-of-00001.parquet", table([k]))
    assert rows_of(opened(tmp_path, name="b")) == [1]
    with pytest.raises(
        ConfigError, match=r"name must be a configuration of .*, got none; it has a"
    ):
        opened(tmp_path)


def test_single_files_and_patterns(tmp_path):
    repository(tmp_path)
    assert rows_of(opened(tmp_path / "data" / "test-00000-of-00001.parquet")) == [6, 7]
    assert rows_of(opened(f"{tmp_path}/data/train-*.parquet")) == [0, 1, 2, 3, 4, 5]
    with pytest.raises(ConfigError, match="split and name are of a folder with several files"):
        opened(f"{tmp_path}/data/train-*.parquet", "train")


def test_commands_recognize_them(tmp_path):
    folders = [saved(tmp_path / "saved", [0, 1]), repository(tmp_path / "hub", "license: mit")]
    (tmp_path / "hub" / "data" / "test-00000-of-00001.parquet").unlink()
    for folder in folders:
        assert detect_kind(str(folder)) == "hugging_face"
        source = open_source(str(folder), None, [], labeled=True)
        assert isinstance(source, HuggingFace) and source.classes == ("cat", "dog")
        assert source.label(np.arange(2)).tolist() == [0, 1]
    copied = repository(tmp_path / "copied")  # without README.md
    (copied / ".cache").mkdir()
    assert detect_kind(str(copied)) == "hugging_face"
    assert isinstance(open_source(str(copied), None, [], labeled=True, split="test"), HuggingFace)
    (copied / "photos").mkdir()
    assert detect_kind(str(copied)) == "folder"
    (tmp_path / "dict").mkdir()
    (tmp_path / "dict" / "dataset_dict.json").write_text('{"splits": ["train"]}')
    assert detect_kind(str(tmp_path / "dict")) == "hugging_face"
    assert detect_kind(str(write_stream(tmp_path / "arrow" / "a.arrow", table([0])))) == "table"
    assert detect_kind(str(tmp_path / "arrow")) == "table"
    (tmp_path / "plain" / "data").mkdir(parents=True)
    (tmp_path / "plain" / "README.md").write_text("# Images")
    assert detect_kind(str(tmp_path / "plain")) == "folder"


# -- columns


def test_columns_are_found_by_the_schema(tmp_path):
    features = FEATURES | {"label": {"dtype": "int64", "_type": "Value"}}
    path = write_parquet(tmp_path / "a.parquet", table([0, 3], features))
    source = HuggingFace(path)
    assert source.classes == () and source.label(np.arange(2)).tolist() == [-1, -1]
    assert HuggingFace(path, label="label").classes == ("0", "1")
    assert HuggingFace(path, label="caption").classes == ("text 0", "text 3")


def test_without_a_description(tmp_path):
    plain = table([0, 1]).replace_schema_metadata(None)
    assert HuggingFace(write_stream(tmp_path / "a.arrow", plain)).read([1]) == [blob(1)]
    two = plain.append_column("second", plain.column("image"))
    path = write_stream(tmp_path / "b.arrow", two)
    with pytest.raises(ConfigError, match="has 2 columns of images: image, second; pass image="):
        HuggingFace(path)
    assert HuggingFace(path, image="second").read([0]) == [blob(0)]
    path = write_stream(tmp_path / "c.arrow", plain.drop(["image"]))
    with pytest.raises(ConfigError, match="no columns of images; pass image=, one of label, cap"):
        HuggingFace(path)


def test_several_columns_of_classes(tmp_path):
    features = FEATURES | {"coarse": FEATURES["label"]}
    rows = table([0, 1], features)
    path = write_stream(tmp_path / "a.arrow", rows.append_column("coarse", rows.column("label")))
    with pytest.raises(ConfigError, match="several columns of classes, label, coarse; pass label="):
        HuggingFace(path)
    assert HuggingFace(path, label="coarse").classes == ("cat", "dog")


def test_paths_follow_the_rules_of_tables(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "in.jpg").write_bytes(b"inside")
    (tmp_path / "out.jpg").write_bytes(b"outside")
    images = [
        {"bytes": b"held", "path": "x.jpg"},
        {"bytes": None, "path": "in.jpg"},
        {"bytes": None, "path": str(tmp_path / "out.jpg")},
        {"bytes": None, "path": None},
        {"bytes": b"", "path": None},
        None,
    ]
    rows = pa.table({"image": pa.array(images, table([]).schema.field("image").type)})
    path = write_stream(tmp_path / "d" / "a.arrow", rows)
    source = HuggingFace(path)
    samples = source.read(range(6))
    assert samples[:2] == [b"held", b"inside"]
    reasons = ["not_allowed", "not_found", "empty", "not_found"]
    assert [failure.reason for failure in samples[2:]] == reasons
    assert source.uris([0, 1]) == [f"{path}#0", str(tmp_path / "d" / "in.jpg")]
    assert HuggingFace(path, allow_path=tmp_path).read([2]) == [b"outside"]


# -- objects


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    return [
        write_stream(tmp_path / "a.arrow", table([0, 1, 2, 3])),
        write_stream(tmp_path / "b.arrow", table([4, 5])),
    ]


def test_a_dataset_is_its_files(parts):
    first, second = parts
    whole = Dataset(Concatenated(Mapped(first, table(range(4))), Mapped(second, table([4, 5]))))
    assert rows_of(opened(whole)) == [0, 1, 2, 3, 4, 5]
    assert repr(opened(whole)) == f"HuggingFace(Dataset of {first}): 6 images of 2 classes"
    assert opened({"train": whole, "test": Dataset(whole.data, [5])}, "test").uris([0]) == [
        f"{second}#1"
    ]


def test_rows_that_were_selected_and_shuffled(parts):
    first, second = parts
    sliced = Mapped(first, table([2, 3]), [("slice", (1, 3), {}), ("slice", (1, 2), {})])
    data = Concatenated(Mapped(second, table([4, 5])), sliced)
    assert rows_of(opened(Dataset(data))) == [4, 5, 2, 3]
    shuffled = opened(Dataset(data, [3, 0, 3]))
    assert rows_of(shuffled) == [3, 4, 3]
    assert shuffled.fingerprint != opened(Dataset(data, [0, 3, 3])).fingerprint
    with ff.Feed(shuffled, [ff.Resize((8, 8))], batch=3, shuffle=False) as feed:
        batch = next(iter(feed))
    assert batch.labels.tolist() == [1, 0, 1]
    assert batch.columns["caption"].tolist() == ["text 3", "text 4", "text 3"]


def test_names_of_classes_that_a_cast_gave(parts):
    dataset = Dataset(Mapped(parts[0], table(range(4)), [("cast", (), {})]))
    dataset.features["label"] = Feature(["no", "yes"])
    assert HuggingFace(dataset).classes == ("no", "yes")


def cast(path: Path) -> Mapped:
    rows = table(range(4))
    index = rows.schema.get_field_index("caption")
    changed = rows.schema.set(index, pa.field("caption", pa.large_string()))
    return Mapped(path, rows.cast(changed), [("cast", (), {})])


REFUSED: dict[str, tuple[Any, str]] = {
    "a function": (
        lambda p: Dataset(Mapped(p, table(range(4))), kind="custom"),
        "this one has a transform (set_transform, with_transform), which would not be run; take it",
    ),
    "other names": (
        lambda p: Dataset(Mapped(p, table(range(4)), [("rename_columns", (), {})])),
        "was changed by rename_columns, which its files do not have; save it with dataset.save_to",
    ),
    "in memory": (lambda p: Dataset(table([0])), "this one is in memory; save it with"),
    "other types": (
        lambda p: Dataset(cast(p)),
        "column 'caption' was cast to large_string, but its files hold string; save the data set",
    ),
    "no rows": (lambda p: Dataset(Mapped(p, table(range(4))), []), "a.arrow has no rows; select"),
    "fewer rows": (
        lambda p: Dataset(Mapped(p, table(range(6)))),
        "a.arrow has 4 rows, and the Dataset 6; load it again",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_dataset_that_is_more_than_its_files(parts, what):
    make, text = REFUSED[what]
    with pytest.raises((ConfigError, SourceError)) as error:
        opened(make(parts[0]))
    assert text in str(error.value)


def test_columns_in_memory_and_streams_are_refused(parts):
    rows = table(range(4))
    data = Concatenated(Mapped(parts[0], rows))
    data.blocks[0].append(Mapped(parts[1], rows))
    with pytest.raises(ConfigError, match="has columns that were added in memory; save it with"):
        opened(Dataset(data))

    class Stream:
        features = None
        _ex_iterable = None

    with pytest.raises(ConfigError, match="this one is streamed; load it without streaming=True"):
        opened(Stream())


def test_the_real_library(tmp_path):
    require("datasets")
    import datasets

    real = datasets.load_from_disk(str(saved(tmp_path / "d", [0, 1, 2], [3, 4])))
    assert rows_of(opened(real)) == [0, 1, 2, 3, 4]
    assert rows_of(opened(real.select(range(1, 4)))) == [1, 2, 3]
    assert rows_of(opened(real.select([4, 0], keep_in_memory=True))) == [4, 0]
    with pytest.raises(ConfigError, match="this one has a transform"):
        opened(real.with_transform(dict))


# -- wrong input


def wrong_json(folder: Path) -> Path:
    (saved(folder, [0]) / "state.json").write_text("{")
    return folder


def no_shard(folder: Path) -> Path:
    (saved(folder, [0]) / "data-00000-of-00001.arrow").unlink()
    return folder


def images_only(folder: Path) -> Path:
    (folder / "a.jpg").write_bytes(blob(0))
    return folder


WRONG: dict[str, tuple[Any, str]] = {
    "no folder": (lambda d: d / "none", "none is not a folder with files; pass the folder of a"),
    "a name": (lambda d: "user/birds", "data set, or 'hf://datasets/user/birds' for the Hub"),
    "a list": (lambda d: [d], "data must be a folder, an address, or a datasets.Dataset, got ["),
    "state": (wrong_json, "state.json cannot be read as JSON"),
    "a shard": (no_shard, "data-00000-of-00001.arrow of"),
    "no tables": (images_only, "no .parquet or .arrow in"),
    "a pattern": (
        lambda d: repository(d, "configs:\n- {config_name: a, data_files: x-*}"),
        "is what its README.md names as split train; download the whole data set",
    ),
    "yaml": (lambda d: repository(d, "configs: [: {"), "cannot read the configs of"),
    "configs": (lambda d: repository(d, "configs: 3"), "cannot read the configs of"),
}


@pytest.mark.parametrize("what", WRONG)
def test_refused(tmp_path, what):
    make, text = WRONG[what]
    with pytest.raises((ConfigError, SourceError)) as error:
        HuggingFace(make(tmp_path))
    assert text in str(error.value)
