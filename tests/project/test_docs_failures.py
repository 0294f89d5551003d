"""docs/failures.md: one table says of each kind of failure what a feed and what preprocess does."""

from __future__ import annotations

import re
from pathlib import Path

from fastfeed import errors

PAGE = Path(__file__).parents[2] / "docs" / "failures.md"
ANCHOR = re.compile(r'<a id="([\w-]+)"></a>')


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_there_is_one_table() -> None:
    header, rule, *body = rows()
    assert header == [
        "What fails",
        "in",
        "What happens",
        "What is reported, once",
        "What changes it",
    ]
    assert set(rule) == {"---"}
    assert all(len(row) == len(header) and row[2] for row in body)
    assert {row[1] for row in body} == {"a feed", "preprocess", "both"}


def test_every_kind_is_there_for_both() -> None:
    kinds: dict[str, set[str]] = {}
    kind = ""
    for what, where, *_ in rows()[2:]:
        named = re.match(r"\*\*(?:An?|The)?\s*(\w+)\*\*", ANCHOR.sub("", what))
        kind = named[1].lower() if named else kind
        kinds.setdefault(kind, set()).update(
            ("a feed", "preprocess") if where == "both" else (where,)
        )
    assert list(kinds) == ["file", "shard", "storage", "data", "code", "process", "machine"]
    assert all(where == {"a feed", "preprocess"} for where in kinds.values())


def test_errors_name_the_row_that_describes_them() -> None:
    described = {
        f"docs/failures.md#{anchor[1]}": {*re.findall(r"`(\w+)`", " ".join(cells))}
        & {*errors.__all__}
        for cells in rows()[2:]
        if (anchor := ANCHOR.search(cells[0]))
    }
    kinds = [getattr(errors, name) for name in errors.__all__]
    assert described == {kind.help_url: {kind.__name__} for kind in kinds if kind.help_url}
