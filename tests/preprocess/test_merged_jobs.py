"""Jobs that are merged: links and copies, classes, what is refused, and what a kill leaves."""

from __future__ import annotations

import errno
import gc
import json
import os
from dataclasses import replace
from pathlib import Path

import fsspec
import numpy as np
import pytest
from helpers import small_jobs
from helpers.photos import folder, jpeg
from helpers.preprocess.libraries import streaming, tensorflow
from helpers.preprocess.merged_jobs import built, content, job_in, opened
from helpers.preprocess.outcomes import tree
from helpers.s3 import S3Server
from helpers.small_jobs import IN_TURN, InlineEngine, recipe
from pyarrow.dataset import dataset

import fastfeed as ff
from fastfeed.errors import ConfigError, SourceError, TargetError
from fastfeed.preprocess import Selection, merge, run
from fastfeed.preprocess.inputs.source_spec import SourceSpec
from fastfeed.preprocess.pixels.transform import Transformer
from fastfeed.preprocess.reports.verify import verify
from fastfeed.preprocess.targets.base import Attempt
from fastfeed.preprocess.targets.job_state import BAD, MANIFEST
from fastfeed.preprocess.targets.local import LocalTarget

Pair = tuple[Path, Path]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Two jobs of two shards each, which no test changes."""
    root = tmp_path_factory.mktemp("pair")
    return built(root / "a", {"cats": 7}), built(root / "b", {"cats": 7}, first=8)


@pytest.mark.parametrize("format", IN_TURN)
def test_the_merged_job_has_the_samples_of_both_and_is_verified(
    tmp_path: Path, format: str
) -> None:
    a = built(tmp_path / "a", {"cats": 5, "dogs": 4}, recipe(format))
    b = built(tmp_path / "b", {"cats": 3, "dogs": 5}, recipe(format), first=8)
    before = tree(a), tree(b)
    report = merge([a, b], tmp_path / "c")
    assert report.complete and report.shards == report.shards_now == 4
    assert report.tally.samples == 17
    found = verify(job_in(tmp_path / "c"))
    assert found.problems == () and found.samples == 17
    parts = [opened(place, format) for place in (a, b, tmp_path / "c")]
    assert content(parts[2]) == [*content(parts[0]), *content(parts[1])]
    labels = [part.label(np.arange(len(part))).tolist() for part in parts]
    assert labels[2] == [*labels[0], *labels[1]]
    assert (tree(a), tree(b)) == before
    merge([a, b], tmp_path / "again")
    assert tree(tmp_path / "again") == tree(tmp_path / "c")


READ_MDS = """
from streaming import StreamingDataset

dataset = StreamingDataset(local=sys.argv[1], batch_size=1, validate_hash="sha256")
json.dump(sorted(sample["uri"] for sample in dataset), sys.stdout)
"""


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)
@pytest.mark.parametrize("format", IN_TURN)
def test_other_libraries_read_it(tmp_path: Path, format: str) -> None:
    # the first samples of both jobs have the same key, and follow each other
    how = recipe(format)
    a = built(tmp_path / "a", {"cats": 1}, how)
    b = built(tmp_path / "b", {"cats": 2, "dogs": 1}, how, first=8)
    c = tmp_path / "c"
    merge([a, b], c)
    (b.parent / "photos/dogs/new.jpg").write_bytes(jpeg(99, (48, 56)))
    run(str(b.parent / "photos"), c, how, append=True, engine=InlineEngine())
    uris = ["cats/0000.jpg", "cats/0000.jpg", "cats/0001.jpg", "dogs/0000.jpg", "dogs/new.jpg"]
    shards = [str(path) for path in sorted(c.glob("shard-*")) if path.suffix != ".idx"]
    if format == "webdataset":
        wds = pytest.importorskip("webdataset", reason="no webdataset; pip install webdataset")
        found = [
            sample["json"]["uri"] for sample in wds.WebDataset(shards, shardshuffle=0).decode()
        ]
        gc.collect()  # it leaves its files open
    elif format == "tfrecord":
        found = tensorflow_strings("image/source", *shards)
    elif format == "parquet":
        found = dataset(str(c)).to_table().column("uri").to_pylist()
    elif format == "mds":
        found = json.loads(streaming(READ_MDS, str(c), folder=tmp_path))
    else:
        arrays = [np.load(path) for path in shards if path.count(".") == 1]
        assert sum(map(len, arrays)) == 5 and arrays[0].shape == (1, 16, 24, 3)
        lines = "".join(path.read_text() for path in sorted(c.glob("*.meta.jsonl"))).splitlines()
        found = [json.loads(line)["meta"]["uri"] for line in lines]
    assert found == uris


def tensorflow_strings(feature: str, *shards: str) -> list[str]:
    """A feature of all Examples, as TensorFlow reads them."""
    program = """
name = sys.argv[1]
kind = {name: tf.io.FixedLenFeature([], tf.string)}
parsed = [tf.io.parse_single_example(x, kind) for x in tf.data.TFRecordDataset(sys.argv[2:])]
json.dump([x[name].numpy().decode() for x in parsed], sys.stdout)
"""
    return json.loads(tensorflow(program, feature, *shards))


def test_shards_are_links_to_those_of_the_jobs(pair: Pair, tmp_path: Path) -> None:
    a, b = pair
    merge([a, b], tmp_path / "c")
    for mine, name in [("000002.tar", "000000.tar"), ("000003.idx", "000001.idx")]:
        assert (tmp_path / f"c/shard-{mine}").samefile(b / f"shard-{name}")


def no_links(*_: object) -> None:
    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))


def test_files_are_copied_where_links_are_impossible(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    merge([a, b], tmp_path / "linked")
    monkeypatch.setattr(os, "link", no_links)
    merge([a, b], tmp_path / "copied")
    assert tree(tmp_path / "copied") == tree(tmp_path / "linked")
    assert not (tmp_path / "copied/shard-000000.tar").samefile(a / "shard-000000.tar")
    assert len(ff.TarShards(f"{tmp_path}/copied/*.tar")) == 14


def test_a_copy_of_a_damaged_shard_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = built(tmp_path / "a", {"cats": 3})
    b = built(tmp_path / "b", {"cats": 3}, first=8)
    path = b / "shard-000000.tar"
    damaged = bytearray(path.read_bytes())
    damaged[700] ^= 1
    path.write_bytes(damaged)
    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(SourceError, match=r"shard-000000.tar in .*/b/shards is damaged.*--fix"):
        merge([a, b], tmp_path / "c")
    assert not (tmp_path / "c/shard-000001.tar").exists()


def test_objects_are_copied_by_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = fsspec.filesystem("memory")
    root = f"memory://{tmp_path.name}"
    for name, first in [("a", 0), ("b", 8)]:
        built(tmp_path / name, {"cats": 7}, first=first)
        memory.put(f"{tmp_path}/{name}/shards", f"/{tmp_path.name}/{name}", recursive=True)
    copied: list[str] = []
    copy = type(memory).cp_file
    monkeypatch.setattr(
        type(memory),
        "cp_file",
        lambda self, path, to, **more: copied.append(to) or copy(self, path, to, **more),
    )
    try:
        merge([f"{root}/a", f"{root}/b"], f"{root}/c")
        merge([tmp_path / "a/shards", f"{root}/b"], tmp_path / "mixed")
        merge([tmp_path / "a/shards", tmp_path / "b/shards"], tmp_path / "c")
        memory.get(f"/{tmp_path.name}/c", str(tmp_path / "down"), recursive=True)
    finally:
        memory.rm(f"/{tmp_path.name}", recursive=True)
    assert len([name for name in copied if name.endswith(".tar")]) == 4
    assert tree(tmp_path / "down") == tree(tmp_path / "mixed") == tree(tmp_path / "c")


@pytest.mark.slow
def test_s3_copies_objects_itself(pair: Pair, tmp_path: Path, s3: S3Server) -> None:
    for name, place in zip("ab", pair, strict=True):
        for path in (path for path in place.rglob("*") if path.is_file()):
            key = path.relative_to(place).as_posix()
            s3.put(f"mergebucket/{name}/{key}", path.read_bytes())
    s3.clear_log()
    merge(
        ["s3://mergebucket/a", "s3://mergebucket/b"],
        "s3://mergebucket/c",
        target_storage=s3.options,
    )
    read = [entry.path for entry in s3.log() if entry.method == "GET"]
    assert read and not [path for path in read if ".tar" in path or ".idx" in path]
    merge([*pair], tmp_path / "c")
    fsspec.filesystem("s3", **s3.options).get("mergebucket/c", f"{tmp_path}/down", recursive=True)
    assert tree(tmp_path / "down") == tree(tmp_path / "c")


def test_classes_are_united_by_name(tmp_path: Path) -> None:
    a = built(tmp_path / "a", {"cats": 2, "dogs": 2})
    b = built(tmp_path / "b", {"cats": 2}, first=8)
    c = built(tmp_path / "c", {"cats": 1, "dogs": 1, "eels": 3}, first=16)
    report = merge([a, b, c], tmp_path / "all")
    assert report.classes == ("cats", "dogs", "eels")
    shards = ff.TarShards(f"{tmp_path}/all/*.tar", label="cls")
    assert shards.label(np.arange(11)).tolist() == [0, 0, 1, 1, 0, 0, 0, 1, 2, 2, 2]
    assert json.loads((tmp_path / "all" / MANIFEST).read_bytes())["classes"][2] == "eels"


@pytest.mark.parametrize("format", IN_TURN)
def test_shards_of_classes_with_other_numbers_are_written_again(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = recipe(format, samples=2)
    a = built(tmp_path / "a", {"cats": 2, "dogs": 2}, how)
    b = built(tmp_path / "b", {"cats": 2, "bees": 1, "dogs": 3}, how, first=8)
    before = tree(b)
    monkeypatch.setattr(Transformer, "__call__", lambda *_: pytest.fail("decoded"))
    report = merge([a, b], tmp_path / "c")
    assert report.classes == ("cats", "dogs", "bees")
    parts = [opened(place, format) for place in (a, b, tmp_path / "c")]
    assert content(parts[2]) == [*content(parts[0]), *content(parts[1])]
    assert parts[2].label(np.arange(10)).tolist() == [0, 0, 1, 1, 2, 0, 0, 1, 1, 1]
    assert verify(job_in(tmp_path / "c")).problems == () and tree(b) == before
    merge([a, b], tmp_path / "again")
    assert tree(tmp_path / "again") == tree(tmp_path / "c")


def test_only_shards_with_changed_numbers_are_written_again(tmp_path: Path) -> None:
    how = recipe(samples=2)
    a = built(tmp_path / "a", {"ants": 2, "dogs": 2}, how)
    b = built(tmp_path / "b", {"ants": 2, "bees": 2, "dogs": 2}, how, first=8)
    merge([a, b], tmp_path / "c")
    links = [
        (tmp_path / f"c/shard-{k + 2:06d}.tar").samefile(b / f"shard-{k:06d}.tar") for k in range(3)
    ]
    assert links == [True, False, False]
    shards = ff.TarShards(f"{tmp_path}/c/*.tar", columns=["json"])
    metas = shards.columns(np.arange(10))["json"].tolist()
    assert [meta["class"] for meta in metas[4:]] == ["ants"] * 2 + ["bees"] * 2 + ["dogs"] * 2
    assert [meta["label"] for meta in metas[4:]] == [0, 0, 2, 2, 1, 1]


def test_a_damaged_shard_is_not_written_again(tmp_path: Path) -> None:
    a = built(tmp_path / "a", {"dogs": 2})
    b = built(tmp_path / "b", {"bees": 2}, first=8)
    path = b / "shard-000000.tar"
    damaged = bytearray(path.read_bytes())
    damaged[700] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(SourceError, match=r"shard-000000 in .*/b/shards is damaged.*--fix"):
        merge([a, b], tmp_path / "c")
    assert not (tmp_path / "c/shard-000001.tar").exists()


def test_bad_images_of_both_are_listed(tmp_path: Path) -> None:
    a = small_jobs.finished_job(tmp_path / "a").target
    b = built(tmp_path / "b", {"cats": 2, "dogs": 1}, first=8)
    report = merge([a.text, b], tmp_path / "c")
    rows = [json.loads(line) for line in (tmp_path / "c" / BAD).read_text().splitlines()]
    assert len(rows) == len(report.bad) == 3 and {row["shard"] for row in rows} == {"shard-000000"}


def test_splits_are_merged_side_by_side(tmp_path: Path) -> None:
    how = replace(recipe(), choice=Selection(val=0.4, split_by="names"))
    a = built(tmp_path / "a", {"cats": 9, "dogs": 9}, how)
    b = built(tmp_path / "b", {"cats": 9, "dogs": 9}, how, first=8)
    merge([a, b], tmp_path / "c")
    for side in ("train", "val"):
        parts = [ff.TarShards(f"{place}/{side}/*.tar") for place in (a, b, tmp_path / "c")]
        assert content(parts[2]) == [*content(parts[0]), *content(parts[1])]
    assert verify(job_in(tmp_path / "c")).problems == ()


def test_a_merged_job_is_merged_again(tmp_path: Path) -> None:
    a, b, c = (
        built(tmp_path / name, {"cats": 3}, first=8 * k) for k, name in enumerate(("a", "b", "c"))
    )
    merge([a, b], tmp_path / "ab")
    merge([tmp_path / "ab", c], tmp_path / "twice")
    merge([a, b, c], tmp_path / "once")
    shards = [sorted((tmp_path / name).glob("*.tar")) for name in ("twice", "once")]
    assert [len(found) for found in shards] == [3, 3]
    assert all(x.samefile(y) for x, y in zip(*shards, strict=True))
    plan = job_in(tmp_path / "twice").plan
    parts = [(job.length, Path(job.target).name) for job in plan.merged]
    assert parts == [(3, "ab"), (3, "ab"), (3, "shards")]
    assert plan.source.count(", ") == 2 and verify(job_in(tmp_path / "twice")).problems == ()
    shards[0][0].unlink()
    targets = dict.fromkeys(job.target for job in plan.merged)
    assert merge([*targets], tmp_path / "twice").shards_now == 1


def test_the_same_images_are_refused_or_kept(tmp_path: Path) -> None:
    a = built(tmp_path / "a", {"cats": 3})
    folder(tmp_path / "b/photos", {"cats": 4}, (40, 56))
    run(str(tmp_path / "b/photos"), tmp_path / "b/shards", recipe(), engine=InlineEngine())
    b = tmp_path / "b/shards"
    with pytest.raises(
        ConfigError, match=r"3 images are in two of the jobs.* in .*/b/shards; .*'keep'"
    ):
        merge([a, b], tmp_path / "c")
    assert not any((tmp_path / "c").rglob("*.tar"))
    report = merge([a, b], tmp_path / "c", duplicates="keep")
    assert report.tally.samples == 7
    assert report.notes == ("3 images are in two of the jobs, by name and content",)


def test_the_same_merge_resumes_one_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = (built(tmp_path / name, {"cats": 2}, first=8 * k) for k, name in enumerate("ab"))
    merge([a, b], tmp_path / "whole")
    finish = Attempt.finish
    killed = 0
    while killed == len(list(tmp_path.glob("killed-*"))):
        left = killed
        target = tmp_path / f"killed-{killed}"

        def kill(self: Attempt) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
            return finish(self)

        with monkeypatch.context() as patch:
            patch.setattr(Attempt, "finish", kill)
            try:
                merge([a, b], target)
            except KeyboardInterrupt:
                killed += 1
        merge([a, b], target)
        assert tree(target) == tree(tmp_path / "whole")
    assert killed > 8


def test_damage_is_mended_by_the_same_merge(pair: Pair, tmp_path: Path) -> None:
    a, b = pair
    merge([a, b], tmp_path / "c")
    whole = tree(tmp_path / "c")
    (tmp_path / "c/shard-000002.tar").unlink()
    with pytest.raises(ConfigError, match=r"merged from jobs.*\n.*merge .*a/shards .*b/shards -o"):
        run(str(a.parent / "photos"), tmp_path / "c", recipe(), engine=InlineEngine())
    assert merge([a, b], tmp_path / "c").shards_now == 1
    assert tree(tmp_path / "c") == whole


def test_a_full_disk_ends_the_merge_and_leaves_nothing_half(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair

    def full(self: LocalTarget, source: object, name: str, path: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(LocalTarget, "link", full)
        with pytest.raises(TargetError, match="no space left on device; free some space"):
            merge([a, b], tmp_path / "c")
    assert not list((tmp_path / "c").rglob("*.tar")) and not list((tmp_path / "c").glob("__tmp/*"))
    assert merge([a, b], tmp_path / "c").complete


def test_jobs_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    a = built(tmp_path / "a", {"cats": 3})
    small = built(tmp_path / "small", {"cats": 3}, recipe(samples=2), first=8)
    mds = built(tmp_path / "mds", {"cats": 3}, recipe("mds"), first=8)
    birds = built(tmp_path / "birds", {"birds": 3}, first=16)
    bare = tmp_path / "bare"
    folder(bare / "made", {"x": 2}, (48, 56))
    (bare / "made/x").rename(bare / "photos")
    run(str(bare / "photos"), bare / "shards", recipe(), engine=InlineEngine())
    empty = tmp_path / "empty"
    other = tmp_path / "other"
    empty.mkdir()
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    half = built(tmp_path / "half", {"cats": 3}, first=8)
    (half / "shard-000000.tar").unlink()
    for jobs, dst, text in [
        ([a], tmp_path / "c", "jobs must be two or more targets"),
        ([a, small], tmp_path / "c", r"(?s)different ways:.*packing.samples: 6 -> 2"),
        ([a, mds], tmp_path / "c", "packing.format: 'webdataset' -> 'mds'"),
        ([a, a], tmp_path / "c", "hold shards of the same job"),
        ([a, half], tmp_path / "c", "half/shards is not complete: 1 of 1 shards"),
        ([a, bare / "shards"], tmp_path / "c", "only one has names of classes"),
        ([a, birds], a, "must not overlap"),
        ([a, birds], a / "inside", "must not overlap"),
    ]:
        with pytest.raises(ConfigError, match=text):
            merge(jobs, dst)
    with pytest.raises(SourceError, match="empty holds no job"):
        merge([a, empty], tmp_path / "c")
    b = built(tmp_path / "b", {"cats": 4}, first=8)
    with pytest.raises(ConfigError, match=r"other is not empty: it holds notes\.txt"):
        merge([a, b], other)
    with pytest.raises(ConfigError, match="holds another job"):
        merge([a, b], built(tmp_path / "d", {"cats": 4}, first=24))
    assert [*other.iterdir()] == [other / "notes.txt"] and not [*(tmp_path / "c").iterdir()]


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        (
            Selection(val=0.4, split_by="names", stratify=True),
            "--stratify, .* that belong together",
        ),
        (
            Selection(val=0.4, split_by="names", group="by"),
            "--group by, .* images with one by could",
        ),
    ],
)
def test_splits_of_groups_are_not_merged(tmp_path: Path, choice: Selection, text: str) -> None:
    how = replace(recipe(), choice=choice)
    jobs = []
    for name, first in (("a", 0), ("b", 8)):
        folder(tmp_path / name / "photos", {"cats": 6, "dogs": 6}, (40 + first, 56))
        paths = sorted((tmp_path / name / "photos").rglob("*.jpg"))
        rows = [f"{path.relative_to(paths[0].parents[1])},{k % 3}" for k, path in enumerate(paths)]
        (tmp_path / name / "by.csv").write_text("\n".join(["path,by", *rows]))
        labels = str(tmp_path / name / "by.csv") if choice.group else None
        source = SourceSpec(str(tmp_path / name / "photos"), labels_file=labels)
        run(source, tmp_path / name / "shards", how, engine=InlineEngine())
        jobs.append(tmp_path / name / "shards")
    with pytest.raises(ConfigError, match=rf"a/shards was split with {text}.*append the images"):
        merge(jobs, tmp_path / "c")
    assert not list((tmp_path / "c").rglob("*.tar"))
