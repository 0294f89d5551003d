"""The command line as a user meets it: exit codes and words."""

import json
import re
import shutil
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest
from helpers.commands import command_line
from helpers.needs import require
from PIL import Image

from fastfeed.cli import COMMANDS
from fastfeed.version import __version__

# one after another in one process, as TensorFlow takes longer to load than to train: exit codes and
# words of each
SEVERAL = """
import contextlib, io, json, os, sys
from fastfeed.cli import main
told = []
for where, *arguments in json.loads(sys.argv[1]):
    os.chdir(where)
    sys.argv, code, out, err = ["fastfeed", *arguments], 0, io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    told.append((code, out.getvalue(), err.getvalue()))
print(json.dumps(told))
"""


def python(program, *arguments):
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


class Told(NamedTuple):
    code: int
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two classes that differ in color, and one broken file."""
    rng = np.random.default_rng(0)
    tmp_path = tmp_path_factory.mktemp("folder")
    for split, count in (("train", 12), ("val", 4)):
        for label, color in (("grass", (40, 160, 40)), ("water", (40, 60, 180))):
            at = tmp_path / "data" / split / label
            at.mkdir(parents=True)
            for i in range(count):
                noise = rng.integers(-30, 30, (90, 120, 3))
                Image.fromarray((np.array(color) + noise).clip(0, 255).astype(np.uint8)).save(
                    at / f"{i}.jpg"
                )
    (tmp_path / "data/train/grass/5.jpg").write_bytes(b"broken")
    return tmp_path / "data"


def test_a_program_of_its_own():
    program = "import sys; from fastfeed.cli import main; sys.argv[0] = 'fastfeed'; main()"
    done = python(program, "--version")
    assert (done.returncode, done.stdout) == (0, f"fastfeed {__version__}\n")


def test_help_lists_every_command():
    done = command_line("--help")
    assert done.returncode == 0
    for name in COMMANDS:
        assert re.search(rf"\b{name}\b", done.stdout)


def test_show_draws_the_first_samples_of_the_run(folder, tmp_path):
    done = command_line("show", folder, "--out", tmp_path / "sheet.png", "-n", 12, "--size", 64)
    assert done.returncode == 0, done.stderr
    assert "12 samples of epoch 0, seed 0" in done.stdout
    sheet = np.asarray(Image.open(tmp_path / "sheet.png"))
    assert sheet.shape == (3 * (64 + 26) + 8, 4 * 72 + 8, 3)
    cells = [
        sheet[8 + r * 90 : 72 + r * 90, 8 + c * 72 : 72 + c * 72]
        for r in range(3)
        for c in range(4)
    ]
    colors = [cell.mean((0, 1)) for cell in cells]
    assert all(c.argmax() in (1, 2) and c.max() > 120 for c in colors), (
        "every cell is a green or a blue photograph"
    )
    command_line("show", folder, "--out", tmp_path / "again.png", "-n", 12, "--size", 64)
    assert (tmp_path / "again.png").read_bytes() == (tmp_path / "sheet.png").read_bytes()


def test_show_takes_a_flat_folder_and_names_bad_files(folder, tmp_path):
    done = command_line(
        "show", folder / "train" / "grass", "--out", tmp_path / "sheet.png", "--eval"
    )
    assert done.returncode == 0, done.stderr
    assert "5.jpg: not_image" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("show", "nowhere"), "nowhere does not exist; pass the folder that holds the images"),
        (("show", ".", "--out", "x.jpg"), "no images below"),
        (("demo", "--data", "."), "--data needs train/ and val/"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    done = command_line(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.fixture(scope="module")
def demos(folder, tmp_path_factory):
    """What two runs of the demo told, and where: over the folder, and over one whose training files
    are all broken.
    """
    require("keras")
    root = tmp_path_factory.mktemp("demos")
    broken = root / "broken"
    shutil.copytree(folder, broken)
    for photo in (broken / "train").rglob("*.jpg"):
        photo.write_bytes(b"<html>not found</html>")
    runs = [
        (str(root), "demo", "--data", str(folder), "--epochs", "4", "--batch", "4"),
        (str(broken), "demo", "--data", str(broken), "--epochs", "1", "--batch", "4"),
    ]
    done = python(SEVERAL, json.dumps(runs))
    assert done.returncode == 0, done.stderr
    whole, bad = (Told(*one) for one in json.loads(done.stdout.splitlines()[-1]))
    return root, whole, bad


@pytest.mark.slow
def test_demo_over_broken_files_alone_is_one_error(demos):
    _, _, done = demos
    assert done.code == 2
    assert "fastfeed: too many bad samples" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_demo_trains_and_tells(demos):
    root, done, _ = demos
    assert done.code == 0, done.stderr
    table = {
        line.split("│")[1].strip(): [cell.strip() for cell in line.split("│")[2:-1]]
        for line in done.stdout.splitlines()
        if line.startswith("│")
    }
    assert table["images"] == ["96", "32"]
    assert table["bad files"] == ["1", "0"]
    assert float(table["images/s"][0]) > 0
    assert 0 <= float(table["time the trainer waited for data"][0].rstrip("%")) <= 100
    assert float(table["decode, thread ms per image"][0]) > 0
    assert re.fullmatch(r"[01]\.\d\d \([01]\.\d\d\)", table["validation accuracy, last (best)"][1])
    assert "not_image" in done.stdout
    (entry,) = (root / ".fastfeed-demo" / "quarantine.jsonl").read_text().splitlines()
    assert json.loads(entry)["uri"].endswith("grass/5.jpg")
