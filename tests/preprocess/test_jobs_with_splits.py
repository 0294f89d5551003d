"""Jobs with splits of any names: by group, resumed, in parts, appended to, and read back."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.photos import jpeg
from helpers.preprocess.commands import preprocess
from helpers.preprocess.outcomes import tree
from helpers.small_jobs import IN_TURN, InlineEngine, recipe

import fastfeed as ff
from fastfeed.errors import ConfigError
from fastfeed.preprocess import Recipe, Selection, open_input, run, update
from fastfeed.preprocess.reports.verify import verify
from fastfeed.preprocess.targets.job_state import open_job
from fastfeed.preprocess.targets.target import open_target

SPLIT = {"train": 0.5, "holdout": 0.3, "test": 0.2}
BY_NAME = Selection(split=SPLIT, split_by="names")
BY_GROUP = replace(BY_NAME, group="by", split_seed=5)
OPENED = {
    "webdataset": lambda folder: ff.TarShards(f"{folder}/*.tar"),
    "tfrecord": lambda folder: ff.TFRecords(f"{folder}/*.tfrecord"),
    "parquet": lambda folder: ff.Table(str(folder), image="image"),
    "mds": lambda folder: ff.MDSShards(str(folder)),
    "raw": lambda folder: ff.RawShards(str(folder)),
}


def catalog(root: Path, count: int, first: int = 0, groups: int = 8) -> Path:
    """root/photos.csv, with the photographer of each image; those of 3 are not known."""
    root.mkdir(exist_ok=True)
    lines = [] if first else ["path,label,by"]
    for k in range(first, first + count):
        (root / f"{k:03}.jpg").write_bytes(jpeg(k, (16, 20)))
        lines.append(
            f"{k:03}.jpg,{'cat' if k % 2 else 'dog'},{f'ann{k % groups}' if k > 2 else ''}"
        )
    with open(root / "photos.csv", "a") as table:
        table.write("\n".join(lines) + "\n")
    return root / "photos.csv"


def small(choice: Selection, format: str = "webdataset") -> Recipe:
    return replace(recipe(format, 12), choice=choice)


def build(source: Any, target: Path, choice: Selection, **more: Any) -> Any:
    format = more.pop("format", "webdataset")
    return run(source, target, small(choice, format), engine=InlineEngine(), **more)


def sides(target: Path) -> dict[str, dict[str, str]]:
    """Name and photographer of the samples in each split."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for path in target.glob("*/*.tar"):
        with tarfile.open(path) as tar:
            texts = [tar.extractfile(m) for m in tar if m.name.endswith(".json")]
            metas = [json.load(text) for text in texts if text is not None]
        found[path.parent.name] |= {
            meta["uri"]: meta.get("columns", {}).get("by", "") for meta in metas
        }
    return dict(found)


@pytest.mark.parametrize("format", IN_TURN)
def test_each_split_is_a_folder_of_its_name_in_every_format(tmp_path: Path, format: str) -> None:
    table = catalog(tmp_path / "photos", 40)
    target = tmp_path / "shards"
    report = build(table, target, BY_NAME, format=format)
    counts = json.loads((target / "__job/manifest.json").read_text())["shares"]["images"]
    assert sorted(counts) == sorted(SPLIT) and sum(counts.values()) == 40
    for name, count in counts.items():
        assert len(OPENED[format](target / name)) == count
        if format != "raw":  # encoded images
            again = open_input(str(target / name))
            assert len(again.source) == count and again.source.classes == ("cat", "dog")
        assert f"{name}/ has {count} of 40 images" in str(report)
    with pytest.raises(ConfigError, match="holds holdout and test and train: name one of them"):
        open_input(str(target))
    job = open_job(open_target(target, writes=False))
    assert not verify(job, lambda *_: None).problems


def test_hugging_face_reads_the_splits_that_it_has_names_for(tmp_path: Path) -> None:
    table = catalog(tmp_path / "photos", 30)
    target = tmp_path / "shards"
    choice = Selection(split={"train": 0.5, "val": 0.3, "test": 0.2}, split_by="names")
    build(table, target, choice, format="parquet")
    counts = json.loads((target / "__job/manifest.json").read_text())["shares"]["images"]
    for name, split in (("train", "train"), ("val", "validation"), ("test", "test")):
        assert len(ff.HuggingFace(str(target), split=split)) == counts[name]


def test_a_group_is_in_one_split_when_resumed_in_parts_and_appended_to(tmp_path: Path) -> None:
    table = catalog(tmp_path / "photos", 60)
    report = build(table, tmp_path / "whole", BY_GROUP)
    before = sides(tmp_path / "whole")
    assert sorted(before) == sorted(SPLIT)
    groups = [set(members.values()) - {None, ""} for members in before.values()]
    assert sum(map(len, groups)) == len(set.union(*groups)) == 8
    assert "images without a value of by: 3, each drawn by itself" in str(report)
    for part in range(3):
        build(table, tmp_path / "parts", BY_GROUP, part=(part, 3))
    assert tree(tmp_path / "parts") == tree(tmp_path / "whole")
    shutil.rmtree(tmp_path / "parts/test")
    assert build(table, tmp_path / "parts", BY_GROUP).complete
    assert tree(tmp_path / "parts") == tree(tmp_path / "whole")
    catalog(tmp_path / "photos", 20, first=60, groups=10)
    assert build(table, tmp_path / "whole", BY_GROUP, append=True).tally.samples == 80
    after = sides(tmp_path / "whole")
    of = {name: side for side, members in after.items() for name in members.values() if name}
    for side, members in before.items():
        assert members.items() <= after[side].items()
    for side, members in after.items():
        assert {of[name] for name in members.values() if name} <= {side}


def test_stratified_classes_keep_their_shares_when_appended_to(tmp_path: Path) -> None:
    table = catalog(tmp_path / "photos", 40)
    choice = replace(BY_NAME, stratify=True)
    build(table, tmp_path / "shards", choice)
    before = sides(tmp_path / "shards")
    catalog(tmp_path / "photos", 60, first=40)
    build(table, tmp_path / "shards", choice, append=True)
    shares = json.loads((tmp_path / "shards/__job/manifest.json").read_text())["shares"]
    assert shares["by_label"] == [[0, 15, 10, 25], [1, 15, 10, 25]]
    after = sides(tmp_path / "shards")
    assert all(members.items() <= after[side].items() for side, members in before.items())


def test_updates_move_no_image_and_no_group(tmp_path: Path) -> None:
    table = catalog(tmp_path / "photos", 60)
    choice = replace(BY_GROUP, stratify=True, split_seed=1)
    build(table, tmp_path / "shards", choice)
    before = sides(tmp_path / "shards")
    removed = {"003.jpg", "004.jpg"}
    catalog(tmp_path / "photos", 20, first=60, groups=10)
    update(table, tmp_path / "shards", remove=sorted(removed), add=True, engine=InlineEngine())
    after = sides(tmp_path / "shards")
    assert {name for members in after.values() for name in members}.isdisjoint(removed)
    for side, members in before.items():
        assert members.keys() - removed <= after[side].keys()
    groups = [{*members.values()} - {"", None} for members in after.values()]
    assert sum(map(len, groups)) == len(set.union(*groups)) == 10


def test_a_column_of_the_first_job_groups_the_second(tmp_path: Path) -> None:
    opened = open_input(str(catalog(tmp_path / "photos", 40)), columns=["by"])
    build(opened, tmp_path / "first", Selection())
    choice = replace(BY_GROUP, group="JSON:columns.by", split={"a": 0.5, "b": 0.5})
    build(tmp_path / "first", tmp_path / "second", choice)
    groups = [{*members.values()} - {"", None} for members in sides(tmp_path / "second").values()]
    assert len(groups) == 2 and sum(map(len, groups)) == len(set.union(*groups)) == 8


@pytest.mark.parametrize(
    ("table", "column", "text"),
    [
        ("path,by\na.jpg,ann\n", "who", "no column 'who' in "),
        ("path,by,x\na.jpg,,1\n", "by", "no checked sample of .* has by"),
        ('{"path": "a.jpg", "by": [1, 2]}\n', "by", r"a number or a text, got \[1.*a\.jpg"),
    ],
)
def test_columns_that_cannot_be_groups_are_refused(
    tmp_path: Path, table: str, column: str, text: str
) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg(0))
    path = tmp_path / ("t.jsonl" if table.startswith("{") else "t.csv")
    path.write_text(table)
    with pytest.raises(ConfigError, match=text):
        build(path, tmp_path / "shards", replace(BY_NAME, group=column))
    assert not (tmp_path / "shards/__job/plan.json").exists()


def test_folders_and_opened_sources_need_the_column_of_groups(tmp_path: Path) -> None:
    table = catalog(tmp_path / "photos", 6)
    with pytest.raises(ConfigError, match=r"pass labels_file .*as for a group"):
        build(tmp_path / "photos", tmp_path / "shards", BY_GROUP)
    opened = open_input(str(table))
    with pytest.raises(ConfigError, match=r"'by' is not a column of .* pass columns=\['by'\]"):
        build(opened, tmp_path / "other", BY_GROUP)


def test_the_command_line_has_splits_groups_and_their_report(tmp_path: Path) -> None:
    table = catalog(tmp_path / "photos", 60)
    target = str(tmp_path / "shards")
    words = "--split train=0.5,holdout=0.3,test=0.2 --split-by names --split-seed 5 --group by"
    build(table, tmp_path / "shards", BY_GROUP)
    code, text = preprocess(
        str(table), target, *words.split(), "--size", "24", "--shard-samples", "12"
    )
    assert code == 0 and "holdout/ has " in text and "of 0.3 requested" in text
    assert preprocess("resume", str(table), target)[0] == 0
    dry = preprocess(
        str(table), target, *words.split(), "--size", "24", "--shard-samples", "12", "--dry-run"
    )
    assert dry[0] == 0 and "nothing is left to do" in dry[1]
    for report in ("status", "stats"):
        code, text = preprocess(report, target)
        assert code == 0 and "test/" in text and "of 0.2 requested" in text
        shares = json.loads(preprocess(report, target, "--json")[1])["shares"]
        assert shares["wanted"] == SPLIT and len(shares["by_label"]) == 2
    for wrong in ("train", "train=x,val=0.2", "a=0.5,a=0.5"):
        code, text = preprocess(str(table), target, "--split", wrong)
        assert "--split must be names with a share each" in text
