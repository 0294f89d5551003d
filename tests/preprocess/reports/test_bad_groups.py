"""Bad images by reason, class and folder, with commands; and retries of those that match."""

from __future__ import annotations

import io
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.photos import jpeg
from helpers.small_jobs import InlineEngine, finished_job, recipe, source

from fastfeed.cli.preprocess.values import job_command
from fastfeed.errors import ConfigError
from fastfeed.preprocess import BadFilter, run
from fastfeed.preprocess.model.edits import NO_LABEL, REMOVED, Edits
from fastfeed.preprocess.model.record import BadSample
from fastfeed.preprocess.planning.bad_images import PlannedClasses, bad_images, select_bad
from fastfeed.preprocess.planning.check_source import samples_file
from fastfeed.preprocess.reports.bad_groups import MAX_GROUPS, bad_groups
from fastfeed.preprocess.targets.job_state import Job, open_job
from fastfeed.preprocess.targets.target import open_target


def command(*words: str) -> str:
    return " ".join(words)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Bad images in two folders of one class, and at the top of another."""
    root = source(tmp_path / "source")
    (root / "cats" / "2019").mkdir()
    (root / "cats" / "2019" / "late.jpg").write_bytes(b"")
    (root / "dogs" / "no.jpg").write_bytes(b"text")
    run(str(root), tmp_path / "shards", recipe(), engine=InlineEngine())
    return open_job(open_target(tmp_path / "shards", writes=False))


def test_groups_by_reason_class_and_folder(job: Job) -> None:
    by_kind = {kind.kind: kind for kind in bad_groups(job, command)}
    counts = {
        k: {g.name: (g.images, g.planned) for g in kind.groups} for k, kind in by_kind.items()
    }
    assert counts == {
        "reason": {"empty": (2, None), "not_image": (2, None), "truncated": (1, None)},
        "class": {"cats": (4, 13), "dogs": (1, 10)},
        "folder": {"cats": (3, None), "cats/2019": (1, None), "dogs": (1, None)},
    }
    cats = by_kind["class"].groups[0]
    assert cats.reasons == {"empty": 2, "not_image": 1, "truncated": 1}
    assert cats.about == "2 empty, 1 not_image, 1 truncated"
    assert cats.command == "bad --class cats -o bad.zip", "no retry would help"
    empty = by_kind["reason"].groups[0]
    assert empty.about == "zero bytes; replace the files, then repair"
    assert empty.command == "update --repair"
    assert [kind.total for kind in by_kind.values()] == [3, 2, 3]


def test_a_command_retries_only_what_may_succeed(job: Job) -> None:
    (index,) = {image.shard for image in bad_images(job) if image.folder == "dogs"}
    record = job.records[index]
    slow = BadSample(0, str(Path(job.plan.source) / "dogs" / "slow.jpg"), "timeout")
    job.records[index] = replace(record, bad=(*record.bad, slow))
    by_kind = {kind.kind: kind.groups for kind in bad_groups(job, command)}
    assert next(g for g in by_kind["folder"] if g.name == "dogs").command == (
        "retry --folder dogs --reason timeout"
    )
    assert next(g for g in by_kind["reason"] if g.name == "timeout").command == (
        "retry --reason timeout"
    )


def test_what_the_recipe_excludes_is_shown_and_not_repaired(job: Job) -> None:
    record = job.records[0]
    bad = [BadSample(k, f"{job.plan.source}/cats/{k}.jpg", "too_small") for k in range(2)]
    bad.append(BadSample(2, f"{job.plan.source}/cats/2.jpg", "dropped", "dull"))
    job = replace(job, records={0: replace(record, bad=tuple(bad))})
    reasons, *others = bad_groups(job, command)
    assert [(g.name, g.about, g.command) for g in reasons.groups] == [
        (
            "too_small",
            "smaller than the minimum side; excluded by the recipe, --min-side",
            "bad --reason too_small -o bad.zip",
        ),
        (
            "dropped",
            "left out by where (--where), or by the function of --with",
            "bad --reason dropped -o bad.zip",
        ),
    ]
    assert [kind.groups[0].images for kind in others] == [2, 2], "what is dropped is no fault"


def test_a_million_folders_are_counted_and_a_hundred_listed(job: Job) -> None:
    record = job.records[0]
    bad = [BadSample(0, f"{job.plan.source}/f{k}/x.jpg", "corrupt") for k in range(1000)]
    big = replace(job, records={0: replace(record, bad=tuple(bad))})
    folders = next(kind for kind in bad_groups(big, command) if kind.kind == "folder")
    assert folders.total == 1000 and len(folders.groups) == MAX_GROUPS == 100


def test_a_job_without_bad_images_or_classes(tmp_path: Path) -> None:
    root = source(tmp_path / "good", reasons=())
    run(str(root), tmp_path / "a", recipe(), engine=InlineEngine())
    assert bad_groups(open_job(open_target(tmp_path / "a", writes=False)), command) == []
    flat = tmp_path / "flat"
    flat.mkdir()
    (flat / "good.jpg").write_bytes(jpeg(1))
    (flat / "bad.jpg").write_bytes(b"")
    run(str(flat), tmp_path / "b", recipe(), engine=InlineEngine())
    job = open_job(open_target(tmp_path / "b", writes=False))
    assert [(k.kind, k.groups[0].name) for k in bad_groups(job, command)] == [
        ("reason", "empty"),
        ("folder", "."),
    ]


def test_classes_are_known_after_an_append_unless_its_list_is_gone(
    job: Job, tmp_path: Path
) -> None:
    new = tmp_path / "source" / "birds"
    new.mkdir()
    (new / "bad.jpg").write_bytes(b"")
    (new / "good.jpg").write_bytes(jpeg(7))
    run(str(tmp_path / "source"), tmp_path / "shards", recipe(), engine=InlineEngine(), append=True)
    job = open_job(open_target(tmp_path / "shards"))
    assert {image.name: image.class_name for image in bad_images(job)}["birds/bad.jpg"] == "birds"
    edits = Edits.of(np.array([[0, 1, 2], [1, NO_LABEL, REMOVED]]))
    first = PlannedClasses(job.target, job.plan)
    counts = {"birds": 2, "cats": 13, "dogs": 10}
    assert first.of([0, 1, 2]) == ["cats"] * 3 and first.counts() == counts
    after = PlannedClasses(job.target, replace(job.plan, edits=edits))
    assert after.of([0, 1, 3]) == ["dogs", "", "cats"]
    assert after.counts() == {"birds": 2, "cats": 10, "dogs": 11}
    job.target.remove(samples_file(job.plan))
    assert {image.class_name for image in bad_images(job)} == {""}
    assert PlannedClasses(job.target, job.plan).counts() == {}


def test_two_classes_of_one_hash_are_not_told_apart(tmp_path: Path) -> None:
    job = finished_job(tmp_path)
    plan = replace(job.plan, classes=("plumless", "buckeroo", "cats"))  # both have crc32 4ddb0c25
    rows = np.load(tmp_path / "shards" / samples_file(job.plan))
    rows["label"][0] = 0x4DDB0C25

    class Target:
        def read(self, name: str) -> bytes:
            file = io.BytesIO()
            np.save(file, rows)
            return file.getvalue()

    assert PlannedClasses(Target(), plan).of([0, 1]) == ["", "cats"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("criteria", "names"),
    [
        (BadFilter(["empty"]), {"cats/0000_0.jpg", "cats/2019/late.jpg"}),
        (BadFilter(classes=["dogs"]), {"dogs/no.jpg"}),
        (BadFilter(["empty"], folders=["cats/2019/"]), {"cats/2019/late.jpg"}),
        (BadFilter(["empty"], classes=["dogs"], folders=["."]), None),
        (BadFilter(names=["dogs/no.jpg"]), {"dogs/no.jpg"}),
    ],
)
def test_filters(job: Job, criteria: BadFilter, names: set[str] | None) -> None:
    if names is None:
        with pytest.raises(ConfigError, match="no bad image matches reason empty, class dogs"):
            select_bad(job, criteria)
        return
    assert {image.name for image in select_bad(job, criteria)} == names
    full = BadFilter(names=[image.sample.uri for image in select_bad(job, criteria)])
    assert {image.name for image in select_bad(job, full)} == names, "names in full"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: BadFilter(["bored"]), "reason must be among not_found, .*, got bored"),
        (
            lambda: BadFilter(folders="cats"),
            "BadFilter folders must be a list of names, got 'cats'",
        ),
    ],
)
def test_filters_that_are_wrong(make: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make()  # type: ignore[operator]


def test_names_that_are_not_bad(job: Job) -> None:
    with pytest.raises(ConfigError, match=r"classes must be among the job's 2 classes, got cows"):
        select_bad(job, BadFilter(classes=["cows"]))
    names = ["dogs/no.jpg", *(f"{k}\x1b.jpg" for k in range(12))]
    with pytest.raises(ConfigError, match=r"12 of these names are not .*: 0\\x1b.jpg, .* 2 more"):
        select_bad(job, BadFilter(names=names))


def test_a_part_is_retried(job: Job, tmp_path: Path) -> None:
    before = {k: record.dump() for k, record in job.records.items()}
    built: list[int] = []

    class Engine(InlineEngine):
        def run(self, task, pieces):  # type: ignore[no-untyped-def]
            built.extend(pieces)
            return super().run(task, pieces)

    def retry(**criteria: list[str]) -> list[int]:
        built.clear()
        run(
            str(tmp_path / "source"),
            tmp_path / "shards",
            recipe(),
            engine=Engine(),
            retry=BadFilter(**criteria),
        )
        return built

    dogs = {image.shard for image in bad_images(job) if image.class_name == "dogs"}
    assert set(retry(classes=["dogs"])) == dogs
    assert retry(names=["cats/2019/late.jpg"]) == [2]
    assert retry(reasons=["io_error"]) == []
    now = open_job(open_target(tmp_path / "shards", writes=False))
    assert {k: record.dump() for k, record in now.records.items()} == before, "the same bytes"


def test_a_retry_of_names_that_was_interrupted_is_resumed(job: Job, tmp_path: Path) -> None:
    (tmp_path / "shards" / "__job/records/shard-000002.json").unlink()
    report = run(
        str(tmp_path / "source"),
        tmp_path / "shards",
        recipe(),
        engine=InlineEngine(),
        retry=BadFilter(names=["cats/2019/late.jpg"]),
    )
    assert report.complete and report.shards_now == 1


@pytest.mark.parametrize("name", ["a b", "it's", "\x1b[31m\n'x\\", "\udcff\t", "ä"])
def test_a_shell_reads_the_words_of_a_command(name: str, tmp_path: Path) -> None:
    line = job_command("bad", name, "shards", "", request={}, target=None)
    assert line.isprintable()
    words = line.removeprefix("fastfeed preprocess bad ").removesuffix(" shards")
    done = subprocess.run(["bash", "-c", f"printf %s {words}"], capture_output=True, check=True)
    assert done.stdout == name.encode("utf-8", "surrogateescape")
    if name.isprintable():
        assert shlex.split(line)[3] == name
