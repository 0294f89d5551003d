"""Lines to change, as docs/coming_from.md shows and counts them: at most ten in each framework."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, environment
from helpers.needs import needs
from helpers.photos import folder
from helpers.records import tfds_folder

_, _, REST = (ROOT / "docs" / "coming_from.md").read_text("utf-8").partition("## Lines to change\n")
SECTION = REST.partition("\n## ")[0]
DIFFS = {
    name.partition(",")[0]: code.splitlines()
    for name, code in re.findall(r"^(\w[^\n]*):\n\n```diff\n(.*?)```$", SECTION, re.M | re.S)
}
COUNTS = {
    name: (int(removed), int(written))
    for name, removed, written in re.findall(r"^\| (\w.*) \| (\d+) \| (\d+) \|$", SECTION, re.M)
}
# what the program has around these lines, and what shows that the new ones work
BEGIN = "import fastfeed as ff\n"
IMAGES = "assert tuple(next(iter(train))[0].shape) == (8, {shape})\n"
FIRST, LAST = "3, 224, 224", "224, 224, 3"
PROGRAMS = {
    "Keras": (("keras", "tensorflow"), "", IMAGES.format(shape=LAST)),
    "tf.data": (
        ("tensorflow",),
        "from glob import glob\npaths = glob('photos/*/*.jpg')\nlabels = [0, 1] * 10\n",
        IMAGES.format(shape=LAST),
    ),
    "JAX": (
        ("jax",),
        "state = 0\ntrain_step = lambda state, images, labels: state + images.shape[0]\n",
        "assert state == 16\n",
    ),
    "PyTorch": (("torch",), "", IMAGES.format(shape=FIRST)),
    "Lightning": (
        ("torch", "lightning"),
        "import lightning\n",
        "data = Photos()\ndata.setup('fit')\ntrain = data.train_dataloader()\n"
        + IMAGES.format(shape=FIRST),
    ),
    "Hugging Face Trainer": (
        ("torch", "transformers"),
        "import torch\nfrom transformers import Trainer, TrainingArguments\n"
        "model = torch.nn.Linear(1, 1)\nargs = TrainingArguments('run', report_to=[])\n",
        "batch = next(iter(trainer.get_train_dataloader()))\n"
        "assert batch['pixel_values'].shape == (8, 3, 224, 224) and len(batch['labels']) == 8\n",
    ),
    "timm": (
        ("torch",),
        "photos = ff.ImageFolder('photos')\n",
        IMAGES.format(shape=FIRST),
    ),
}


def side(name: str, mark: str) -> str:
    """The lines of a diff before ("-") or after ("+") the change."""
    return "\n".join(line[1:] for line in DIFFS[name] if not line or line[0] in (mark, " "))


def test_every_framework_is_shown_and_run() -> None:
    assert list(DIFFS) == list(COUNTS) == list(PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_lines_are_counted_and_at_most_ten(name: str) -> None:
    removed, written = (sum(line.startswith(mark) for line in DIFFS[name]) for mark in "-+")
    assert COUNTS[name] == (removed, written)
    assert written <= 10
    for mark in "-+":
        compile(side(name, mark), name, "exec")


IN_CI = ("Keras", "PyTorch", "JAX")  # the others are run by their examples, too


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=[needs(*PROGRAMS[name][0]), *([pytest.mark.nightly] * (name not in IN_CI))],
        )
        for name in PROGRAMS
    ],
)
def test_changed_lines_run(name: str, tmp_path: Path) -> None:
    folder(tmp_path / "photos", {"a": 10, "b": 10})
    tfds_folder(tmp_path / "tfds" / "pets" / "1.0.0", {"train": (10, 10)})
    _, before, after = PROGRAMS[name]
    program = f"{BEGIN}{before}{side(name, '+')}\n{after}"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=tmp_path,
        env=environment(PYTHONPATH=str(ROOT), KERAS_BACKEND="tensorflow"),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
