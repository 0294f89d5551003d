"""Every code block of the site's pages is run, or says why not."""

from __future__ import annotations

import csv
import functools
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import numpy as np
import pytest
from conftest import ROOT, environment
from helpers.doc_pages import FRAMEWORK, INDENTED, Block, blocks
from helpers.doc_sources import source_files
from helpers.needs import require
from helpers.photos import folder
from helpers.pngs import png
from helpers.s3 import S3Server
from helpers.shards import samples as shard_samples
from helpers.shards import tar_of
from helpers.traces import DIALECTS, steady

PAGES = [
    path
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "benchmarks/**/*.md",
        "examples/*.md",
        "fastfeed/**/*.md",
    )
    for path in sorted(ROOT.glob(pattern))
]
NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]
LANGUAGES = {"python", "bash", "text", "diff"}  # text is what something prints


# they read buckets of a local server
S3_PAGES = (
    "README.md",
    "docs/sources.md",
    "docs/guides/landmarks_s3.md",
)


def runs(name: str) -> list[tuple[int, Block]]:
    """The blocks of a page that are run, with their numbers."""
    return [pair for pair in enumerate(blocks((ROOT / name).read_text())) if not pair[1].reason]


SMALL = [
    name
    for name in NAMES
    if any(block.language != "text" and not block.framework for _, block in runs(name))
]
PROGRAMS = [
    (name, number, block.framework)
    for name in NAMES
    for number, block in runs(name)
    if block.framework
]


@pytest.mark.parametrize("name", NAMES)
def test_every_block_names_its_language(name: str) -> None:
    text = (ROOT / name).read_text()
    unnamed = [block.line for block in blocks(text) if block.language not in LANGUAGES]
    assert not unnamed, f"{name}: write ```python, ```bash or ```text before lines {unnamed}"
    assert not INDENTED.search(text), f"{name}: an indented block should be a fenced one"


def test_blocks_are_found_with_their_lines_and_reasons() -> None:
    found = blocks(
        "a\n\n```python\nimport torch\n```\n\n<!-- not run: a GPU -->\n```bash\nls\n```\n"
        "<!-- before: rm x -->\n```\nx\n```\n"
    )
    assert [(block.line, block.language, block.reason) for block in found] == [
        (4, "python", ""),
        (9, "bash", "a GPU"),
        (13, "", ""),
    ]
    assert [block.before for block in found] == ["", "", "rm x"]
    assert [block.framework for block in found] == ["torch", "", ""]
    assert blocks("1. a\n\n   <!-- not run: b -->\n   ```bash\n   ls\n   ```\n")[0].reason == "b", (
        "in a list"
    )
    assert INDENTED.search("Like this\n\n    ls\n") and FRAMEWORK.search(
        "import fastfeed as ff\nimport jax\n"
    )


def coco(place: Path) -> None:
    """Twenty photographs with a box each."""
    folder(place / "many", {"a": 20}, (64, 80))
    (place / "many" / "a").rename(place / "train2017")
    images = [{"id": i, "file_name": f"{i:04}.jpg", "height": 64, "width": 80} for i in range(20)]
    found = [
        {"id": i, "image_id": i, "category_id": 1, "bbox": [10, 10, 30, 30], "iscrowd": 0}
        for i in range(20)
    ]
    categories = [{"id": 1, "name": "landmark"}]
    content = {"images": images, "annotations": found, "categories": categories}
    (place / "instances_train2017.json").write_text(json.dumps(content))


def captions(place: Path) -> None:
    """Photographs, and a CSV with two captions of each."""
    folder(place / "photos", {"a": 32}, (64, 80))
    rows = [f"photos/a/{i:04}.jpg,photograph number {i},a photograph" for i in range(32)]
    (place / "captions.csv").write_text("\n".join(["path,caption,second", *rows]))


def homes(place: Path) -> None:
    """Photographs, and a CSV with targets of each."""
    folder(place / "photos", {"a": 32}, (64, 80))
    with (place / "homes.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["path", "price", "age", "tags", "garden", "pool"])
        for i in range(32):
            tags = json.dumps(["brick", "new"][: i % 3])
            table.writerow([f"photos/a/{i:04}.jpg", i / 4, i, tags, i % 2, i % 3 // 2])


def traces(place: Path) -> None:
    """A trace, and two to compare."""
    DIALECTS["chrome"](place / "trace.json", steady())
    for name in ("trace", "before", "after"):
        (place / f"{name}.json.gz").write_bytes(gzip.compress((place / "trace.json").read_bytes()))


def halves(place: Path) -> None:
    """data/train, of one step on two ranks, and data/val."""
    folder(place / "data" / "train", {"a": 35, "b": 35}, (64, 80))
    folder(place / "data" / "val", {"a": 4, "b": 4}, (64, 80))


def pairs(place: Path) -> None:
    """The same pictures before and after, a quarter of the size, and their depth."""
    for name, size in (("before", (160, 224)), ("after", (160, 224)), ("small", (40, 56))):
        folder(place / "data" / name, {"a": 6, "b": 6}, size)
    for path in sorted((place / "data" / "before").rglob("*.jpg")):
        depth = place / "data" / "depth" / path.parent.name / f"{path.stem}.png"
        depth.parent.mkdir(parents=True, exist_ok=True)
        depth.write_bytes(png(np.arange(160 * 224).reshape(160, 224, 1), 16))


def shapes(place: Path) -> None:
    """Photographs of three aspect ratios."""
    for name, size in (("a", (64, 80)), ("b", (80, 64)), ("c", (72, 72))):
        folder(place / "photos", {name: 16}, size)


PLACES: dict[
    str, Callable[[Path], object]
] = {  # instead of photos/ with three classes of small photographs
    "docs/augmentations.md": lambda place: folder(
        place / "photos" / "train", {"a": 130, "b": 126}, (24, 24)
    ),
    # one batch, so that its model is compiled for one shape
    "README.md": lambda place: folder(place / "photos", {"a": 11, "b": 11, "c": 10}, (64, 80)),
    "docs/preprocess.md": lambda place: folder(place / "photos", {"a": 6, "b": 6}, (280, 300)),
    "docs/guides/million.md": lambda place: folder(
        place / "photos", {"a": 20, "b": 20}, (280, 300)
    ),
    "docs/guides/imagenet.md": halves,
    "docs/guides/pairs.md": pairs,
    "docs/guides/idle_gpu.md": traces,
    "docs/profile_json.md": traces,
    "docs/objects.md": coco,
    "docs/guides/batch_sizes.md": shapes,
    "docs/guides/captions.md": captions,
    "docs/guides/regression.md": homes,
}


def photographs(name: str, place: Path) -> None:
    """What a page reads: mostly photos/ with three classes of small photographs."""
    PLACES.get(name, lambda place: folder(place / "photos", {"a": 16, "b": 16, "c": 16}, (64, 80)))(
        place
    )


def page_environment(**environ: str) -> dict[str, str]:
    """In which pages run: `fastfeed` and Python are on PATH."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return environment(
        PYTHONPATH=str(ROOT / "tests"), PATH=path, TF_CPP_MIN_LOG_LEVEL="2", **environ
    )


class Run(Protocol):
    """What blocks of a page print: of a program, by its number, or all others."""

    def __call__(
        self,
        name: str,
        place: Path,
        number: int | None = None,
        module: str = "fastfeed.feed",
        **environ: str,
    ) -> str: ...


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Runs blocks in forks of a process that has imported what takes long."""
    with ExitStack() as stack:

        @functools.cache
        def start(module: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-m", "helpers.doc_pages", module],
                env=page_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            return stack.enter_context(process)

        def run_blocks(
            name: str,
            place: Path,
            number: int | None = None,
            module: str = "fastfeed.feed",
            **environ: str,
        ) -> str:
            process, printed = start(module), place / "printed"
            assert process.stdin is not None and process.stdout is not None
            words = [str(ROOT / name), number, str(place), str(printed), environ]
            process.stdin.write(json.dumps(words) + "\n")
            process.stdin.flush()
            assert process.stdout.readline() == "0\n", printed.read_text()[-6000:]
            return printed.read_text()

        yield run_blocks


QUICK = "docs/get_started.md"  # one page in `make test`
SAME_COMMANDS = "docs/guides/million.md"  # the commands of docs/preprocess.md, which CI runs
CASES = [
    pytest.param(
        name,
        marks=[pytest.mark.slow] * (name != QUICK)
        + [pytest.mark.nightly] * (name == SAME_COMMANDS),
    )
    for name in SMALL
    if name not in S3_PAGES
]


@pytest.mark.parametrize("name", CASES)
def test_a_page_runs(name: str, tmp_path: Path, run: Run) -> None:
    photographs(name, tmp_path)
    run(name, tmp_path)


@pytest.mark.slow
def test_the_rate_rises_over_epochs_where_the_guide_scales_it(tmp_path: Path, run: Run) -> None:
    halves(tmp_path)
    printed = run(
        "docs/guides/imagenet.md",
        tmp_path,
        RANK="0",
        WORLD_SIZE="2",
        LOCAL_RANK="0",
        LOCAL_WORLD_SIZE="2",
    )
    rates = json.loads(next(line for line in printed.splitlines() if line.startswith("[0.")))
    assert len(rates) == 2 and 0.1 <= rates[0] < rates[1] < 0.2, (
        "one step per epoch, the second at a higher rate"
    )


def on_s3(s3: S3Server) -> dict[str, str]:
    """The environment in which s3:// leads to the local server."""
    keys = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    return {"AWS_ENDPOINT_URL": s3.url, **keys}


@pytest.mark.slow
def test_the_guide_to_landmarks_on_s3_runs(s3: S3Server, tmp_path: Path, run: Run) -> None:
    photos = folder(tmp_path / "photos", {"x": 32}, (64, 80))
    s3.put_folder("landmarks", photos)
    rows = [f"x/{i:04}.jpg,{1000 + i % 3}" for i in range(32)]
    s3.put("landmarks/train.csv", "\n".join(["path,landmark_id", *rows]).encode())
    run("docs/guides/landmarks_s3.md", tmp_path, **on_s3(s3))


@pytest.mark.slow
def test_the_feed_of_the_readme_runs_on_shards_in_a_bucket(
    s3: S3Server, tmp_path: Path, run: Run
) -> None:
    require("torch")
    for k in range(100):  # 1,100 samples: one global batch
        s3.put(f"bucket/train-{k:03d}.tar", tar_of(shard_samples(range(11 * k, 11 * k + 11))))
    run(str(without_nvme("README.md", tmp_path)), tmp_path, **on_s3(s3))


@pytest.mark.slow
def test_the_page_of_sources_runs_on_files_of_every_kind(
    s3: S3Server, tmp_path: Path, run: Run
) -> None:
    source_files(tmp_path, s3)
    run(str(without_nvme("docs/sources.md", tmp_path)), tmp_path, **on_s3(s3))


def without_nvme(name: str, place: Path) -> Path:
    """A copy of a page with the cache in this folder."""
    page = place / Path(name).name
    page.write_text((ROOT / name).read_text().replace("/nvme/cache", "cache"))
    return page


NIGHTLY = "docs/guides/imagenet.md"  # trains the model of README.md in another way


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "number", "framework"),
    [
        pytest.param(*program, marks=[pytest.mark.nightly] * (program[0] == NIGHTLY))
        for program in PROGRAMS
    ],
)
def test_a_program_runs(
    name: str,
    number: int,
    framework: str,
    tmp_path: Path,
    run: Run,
) -> None:
    require(framework)
    photographs(name, tmp_path)
    run(name, tmp_path, number, framework)
