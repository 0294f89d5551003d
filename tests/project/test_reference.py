"""The API reference: every public thing has a docstring with a summary, its parameters, and an
example that runs.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.reference import complaints, run_examples, subjects
from helpers.reference_files import example_files

SUBJECTS = subjects()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that examples read from and write to."""
    return example_files(tmp_path_factory.mktemp("reference"))


def test_all_have_a_complete_docstring():
    found = [
        f"{name}: {text}" for name, subject in SUBJECTS.items() for text in complaints(subject)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", [n for n, s in SUBJECTS.items() if ">>>" in s.doc])
def test_examples_print_what_they_say(name: str, files: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(files)
    assert run_examples(SUBJECTS[name]) == ""
