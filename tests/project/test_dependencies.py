"""What each part of fastfeed needs, of the packages that it installs: the table of
docs/installing.md, row by row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.photos import folder
from helpers.traces import DIALECTS, steady

ROOT = Path(__file__).parents[2]
MODULES = {
    "numpy": "numpy",
    "pillow": "PIL",
    "fsspec": "fsspec",
    "google-crc32c": "google_crc32c",
    "rich": "rich",
    "typer": "typer",
    "nvidia-ml-py": "pynvml",
}
BLOCK = """
import sys, warnings
warnings.filterwarnings('ignore', "'click.utils", DeprecationWarning)  # older Typer, newer Click
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in {blocked!r}:
            raise ModuleNotFoundError(f'{{name}} is not installed', name=name)
sys.meta_path.insert(0, Blocked())
if __name__ == '__main__':
    {code}
"""
COMMAND = "from fastfeed.cli import main; sys.argv = ['fastfeed', *{arguments!r}]; main()"
FEED = (
    "import fastfeed as ff; ops = [ff.RandomResizedCrop(16), ff.ColorJitter(0.4),"
    " ff.Normalize.imagenet()]; feed = ff.Feed(ff.ImageFolder('photos'), ops, batch=4);"
    " print(len(list(feed))); feed.close()"
)
STORAGE = {"numpy", "pillow", "fsspec", "google-crc32c"}
JOBS = {
    "import fastfeed": ("import fastfeed", set()),
    "a feed": (FEED, STORAGE),
    "`fastfeed analyze`": (
        COMMAND.format(arguments=["analyze", "trace.json", "--json"]),
        {"numpy", "rich", "typer"},
    ),
    "`fastfeed preprocess`": (
        COMMAND.format(arguments=["preprocess", "photos", "shards", "--size", "16"]),
        STORAGE | {"rich", "typer"},
    ),
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder(tmp_path / "photos", {"a": 4, "b": 4}, (24, 24))
    DIALECTS["chrome"](tmp_path / "trace.json", steady())
    return tmp_path


def test_all_dependencies_are_looked_at() -> None:
    block = re.search(
        r"^dependencies = \[\n(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.M | re.S
    )
    assert block and set(re.findall(r'"([\w-]+)>=', block[1])) == set(MODULES)


@pytest.mark.parametrize("job", JOBS)
def test_a_job_runs_with_nothing_but_what_it_needs(
    job: str, place: Path, python: Callable[..., Any]
) -> None:
    code, needs = JOBS[job]
    blocked = {"cv2", *(module for name, module in MODULES.items() if name not in needs)}
    (place / "job.py").write_text(BLOCK.format(blocked=blocked, code=code))
    done = python(
        f"import os, runpy; os.chdir({str(place)!r}); runpy.run_path('job.py', run_name='__main__')"
    )
    assert done.returncode == 0, done.stderr
    if job == "`fastfeed analyze`":
        assert json.loads(done.stdout)["verdict"]


@pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="no documentation here")
def test_the_page_has_the_same_table() -> None:
    text = (ROOT / "docs" / "installing.md").read_text()
    rows = dict(re.findall(r"^\| (.+?) \| (.+?) \|$", text, re.M))
    for job, (_, needs) in JOBS.items():
        named = set(re.findall(r"`([\w-]+)`", rows[job]))
        assert named == needs, job
