"""Lines that commands print work as printed; exit codes and `verify` do not call well what is
not.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.photos import jpeg
from helpers.preprocess.commands import preprocess
from helpers.products import in_turn
from helpers.small_jobs import InlineEngine

from fastfeed.errors import TooManyFailures
from fastfeed.preprocess import Limits, Packing, Recipe, Scaling, run
from fastfeed.preprocess.engines import Outcome
from fastfeed.preprocess.inputs.source_spec import SourceSpec
from fastfeed.preprocess.job import job as job_module
from fastfeed.preprocess.workers.supervisor import WorkerDied

SMALL = ("--size", "24", "--shard-samples", "3")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(job_module, "engine_for", lambda *_: InlineEngine())
    rows = ["file,kind,title,score"]
    for k in range(6):
        Path("photos", "ab"[k % 2]).mkdir(parents=True, exist_ok=True)
        Path("photos", "ab"[k % 2], f"{k}.jpg").write_bytes(jpeg(k))
        rows.append(f"{'ab'[k % 2]}/{k}.jpg,k{k % 3},title {k},{k / 2}")
    Path("my labels.csv").write_text("\n".join(rows) + "\n")


OPTIONS = {
    "names": (
        *("--image", "file", "--label", "kind", "--caption", "title", "--columns", "score"),
        *("--labels", "my labels.csv"),
    ),
    "drops": (
        "--image",
        "file",
        "--label",
        "kind",
        "--labels",
        "my labels.csv",
        "--drop-unlabeled",
    ),
    "none": ("--label", ""),
}


def lose_the_shards() -> None:
    for path in (*Path("shards").glob("*.tar"), *Path("shards").rglob("records/*.json")):
        path.unlink()


def printed(text: str, verb: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if f"fastfeed preprocess {verb}" in line]
    return shlex.split(line[line.index("fastfeed preprocess ") :])[2:]


@pytest.mark.parametrize("kind", OPTIONS)
def test_the_resume_line_of_status(kind: str) -> None:
    assert preprocess("photos", "shards", *SMALL, *OPTIONS[kind])[0] == 0
    before = {path.name: path.read_bytes() for path in Path("shards").glob("*.tar")}
    lose_the_shards()
    words = printed(preprocess("status", "shards")[1], "resume")
    code, text = preprocess(*words)
    assert code == 0 and "2 of 2 shards" in text, text
    assert {path.name: path.read_bytes() for path in Path("shards").glob("*.tar")} == before


@pytest.mark.parametrize("kind", OPTIONS)
def test_the_lines_of_verify(kind: str) -> None:
    assert preprocess("photos", "shards", *SMALL, *OPTIONS[kind])[0] == 0
    Path("shards/shard-000001.tar").write_bytes(b"damaged")
    code, text = preprocess("verify", "shards", "--fix")
    assert code == 1 and preprocess(*printed(text, "resume"))[0] == 0
    assert preprocess("verify", "shards")[0] == 0


@pytest.mark.parametrize("kind", OPTIONS)
def test_the_retry_line_of_a_report(kind: str) -> None:
    whole = Path("photos/a/2.jpg").read_bytes()
    listed = whole[:-40] + bytes(38) + whole[-2:]
    Path("photos/a/2.jpg").unlink()
    Path("photos/a/2.jpg").symlink_to("2.gone")
    Path("photos/a/2.gone").write_bytes(listed)
    words = ("photos", "shards", *SMALL, *OPTIONS[kind])

    class Loses(InlineEngine):
        def run(self, task: Any, pieces: Sequence[int]) -> Iterator[Outcome]:
            Path("photos/a/2.gone").unlink()
            yield from super().run(task, pieces)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_module, "engine_for", lambda *_: Loses())
        code, text = preprocess(*words)
    assert code == 0 and "not_found" in text
    Path("photos/a/2.gone").write_bytes(listed)
    code, text = preprocess(*printed(text, "retry"))
    assert code == 0 and "6 images" in text, text


def test_names_are_in_the_job_and_files_are_named_again() -> None:
    assert preprocess("photos", "shards", *SMALL, *OPTIONS["names"])[0] == 0
    lose_the_shards()
    code, text = preprocess("resume", "photos", "shards")
    assert code == 2 and "--labels is missing" in text and "--labels 'my labels.csv'" in text
    code, text = preprocess("resume", "photos", "shards", "--labels", "my labels.csv")
    assert code == 0 and "2 of 2 shards" in text


def test_secrets_are_in_no_line() -> None:
    assert SourceSpec("s3://x", storage={"secret": "s"}, columns=("a",)).document() == {
        "columns": ["a"]
    }


@pytest.mark.parametrize(
    ("harm", "folder"), in_turn(["missing", "of other shards", "damaged"], ["", "train/"])
)
def test_verify_looks_at_the_index_of_mds(folder: str, harm: str) -> None:
    split = ("--val", "0.4", "--split-by", "names") if folder else ()
    assert preprocess("photos", "shards", *SMALL, "--format", "mds", *split)[0] == 0
    index = Path("shards", folder, "index.json")
    whole = index.read_bytes()
    assert preprocess("verify", "shards")[0] == 0
    if harm == "missing":
        index.unlink()
    elif harm == "damaged":
        index.write_bytes(whole[:50])
    else:
        document = json.loads(whole)
        document["shards"] = document["shards"][:-1]
        index.write_text(json.dumps(document, sort_keys=True))
    code, text = preprocess("verify", "shards")
    assert code == 1 and f"{folder}index.json: " in text and "--fix" in text
    assert preprocess("verify", "shards", "--fix")[0] == 1 and index.read_bytes() == whole
    assert preprocess("verify", "shards")[0] == 0


def test_a_worker_that_dies_in_the_survey_is_exit_4_with_the_line() -> None:
    class Dying(InlineEngine):
        def run(self, task: Any, pieces: Sequence[int]) -> Iterator[Outcome]:
            yield Outcome(pieces[0], error=WorkerDied("piece 0: exited with status 1, 3 times"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_module, "engine_for", lambda *_: Dying())
        code, text = preprocess("photos", "shards", *SMALL, "--dedupe", "near")
    assert code == 4 and "3 times" in text and "to resume:" in text
    assert "fastfeed preprocess photos shards --size 24 --shard-samples 3 --dedupe near" in text


def test_what_the_recipe_excludes_is_not_counted_as_bad() -> None:
    Path("photos/a/0.jpg").write_bytes(jpeg(0, (10, 12)))
    Path("photos/a/2.jpg").write_bytes(jpeg(0, (20, 200)))
    recipe = Recipe(
        Scaling(8), limits=Limits(min_side=16, max_aspect=4), packing=Packing(samples=3)
    )
    report = run("photos", "shards", recipe, engine=InlineEngine(), max_bad=0)
    assert report.complete and dict(report.reasons) == {"too_small": 1, "aspect": 1}
    Path("photos/b/1.jpg").write_bytes(b"no image")
    with pytest.raises(
        TooManyFailures,
        match=r"1 images are bad, more than max_bad \(--max-bad\) allows \(0\): 1 not_image",
    ):
        run("photos", "again", recipe, engine=InlineEngine(), max_bad=0)


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_job_without_an_image_is_not_all_well(more: tuple[str, ...]) -> None:
    for path in Path("photos").rglob("*.jpg"):
        path.write_bytes(b"no image")
    code, text = preprocess("photos", "shards", *SMALL, *more)
    assert code == 3 and "no image is in the shards" in text
    assert preprocess("photos", "shards", *SMALL, *more)[0] == 3
    excluded = ("photos", "small", *SMALL, "--min-side", "1000")
    for k, path in enumerate(sorted(Path("photos").rglob("*.jpg"))):
        path.write_bytes(jpeg(k))
    assert preprocess(*excluded)[0] == 3
