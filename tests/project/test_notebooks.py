"""The notebooks run from the first cell to the last, as a reader would run them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from helpers.needs import needs

pytestmark = pytest.mark.slow

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
SAYS = {
    "train_and_profile": (
        "feed_wait",
        "6 bad samples",
        "According to feed train's timeline",
        "95 % interval",
    ),
    "preprocess_and_duplicates": (
        "left out: 2 duplicate_exact, 3 duplicate_near",
        "different labels!",
        "6 bad:",
    ),
    "train_keras": ("interrupted in epoch 1 at step", "images read after the restart: "),
    "train_torch": ("'feed_wait': ", "resumes at step 3 of", "epoch 2: "),
    "train_jax": ("'feed_wait': ", "resumes at step 3 of", "epoch 2: "),
}
NEEDS = {"train_torch": ["torch"], "train_jax": ["jax"]}
IN_CI = ("train_and_profile",)  # others run by night: pages and examples have their commands
SHORTER = {  # what a reader waits for, and a test need not
    "train_per_class=24, val_per_class=8": "train_per_class=8, val_per_class=4, shrink=4",
    "seconds=8": "seconds=1",
}


def printed(notebook: Any) -> str:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return "".join(output.get("text", "") for output in outputs)


CASES = [
    pytest.param(
        path,
        id=path.stem,
        marks=[
            needs(*NEEDS.get(path.stem, [])),
            *([pytest.mark.nightly] * (path.stem not in IN_CI)),
        ],
    )
    for path in NOTEBOOKS
]


@pytest.mark.parametrize("path", CASES)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv(
        "PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    )
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        for long, short in SHORTER.items():
            cell.source = cell.source.replace(long, short)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    text = " ".join(printed(notebook).split())
    for words in SAYS[path.stem]:
        assert words in text
    pictures = [
        output
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if "image/png" in output.get("data", {})
        or "data:image/jpeg" in output.get("data", {}).get("text/html", "")
    ]
    assert pictures


def test_every_notebook_is_listed() -> None:
    assert {path.stem for path in NOTEBOOKS} == SAYS.keys()
    table = (ROOT / "examples" / "README.md").read_text()
    assert [path.name for path in NOTEBOOKS if f"`notebooks/{path.name}`" not in table] == []
    for path in NOTEBOOKS:
        assert '"outputs": []' in path.read_text(), (
            "commit it without outputs: they hold paths and figures of a machine"
        )
