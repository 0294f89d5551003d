"""The list of words that `make lint` looks for."""

from __future__ import annotations

from pathlib import Path

from helpers.words import ALLOWED, INSTEAD, ROOT, complaints, prose


def test_finds_words_and_says_what_to_write(tmp_path: Path):
    (tmp_path / "a.md").write_text("A run that is\nbroken off. Nobody knows; goes onwards.\n")
    (tmp_path / "a.bin").write_text("nobody")
    assert complaints(tmp_path, ["a.md", "a.bin", "gone.md"]) == [
        "a.md:2: 'broken off', write: interrupted",
        "a.md:2: 'nobody', write: no one, nothing, not",
    ]


def test_finds_phrases_over_the_ends_of_lines(tmp_path: Path):
    (tmp_path / "a.yaml").write_text("# the run is broken\n  # off, and\nnext: it goes\n  on\n")
    (tmp_path / "a.py").write_text('text = (\n    "ends in "\n    "peace"\n)\n')
    assert complaints(tmp_path, ["a.yaml", "a.py"]) == [
        "a.yaml:1: 'broken off', write: interrupted",
        "a.yaml:3: 'goes on', write: continues, resumes",
        "a.py:2: 'in peace', write: cleanly",
    ]


def test_finds_words_within_identifiers(tmp_path: Path):
    (tmp_path / "a.py").write_text(
        "def test_nobody_waits(): ...\nit_goes_on = PurseOf(RunGoesOn)\nbesides = canew\n"
    )
    assert complaints(tmp_path, ["a.py"]) == [
        "a.py:1: 'nobody', write: no one, nothing, not",
        "a.py:2: 'goes on', write: continues, resumes",
        "a.py:2: 'purse', write: budget, limit",
        "a.py:2: 'goes on', write: continues, resumes",
    ]


def test_exceptions_are_files_and_not_named_for_nothing():
    assert all(word == word.lower() for word in INSTEAD)  # as they are looked up
    assert all((ROOT / name).is_file() for name in ALLOWED)


def test_finds_translated_prose_and_docstrings_that_are_no_noun_phrase(tmp_path: Path):
    (tmp_path / "a.py").write_text(
        '"""What it does."""\n\ndef f():\n    """Parts of a\n    feed."""\n    # where there is one\n'
    )
    (tmp_path / "b.py").write_text('"""Parts of a feed.\n\nOf several lines."""\n')
    assert prose(tmp_path, ["a.py", "b.py", "gone.py"]) == [
        "a.py:6: 'where there is' reads translated",
        "a.py:1: a docstring begins with 'What': write a noun phrase or an imperative",
        "a.py:3: the summary is not one line: 'Parts of a'",
    ]
