"""docs/causes.md tells of every cause: its key, its title, its fix."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fastfeed.profiler.model.causes import CAUSES, FAMILIES, Cause, cause_of
from fastfeed.profiler.verdict.advice import _ADVICE

TEXT = (Path(__file__).parents[3] / "docs" / "causes.md").read_text()
SECTIONS = re.split(r"^### ", TEXT, flags=re.MULTILINE)[1:]


@pytest.mark.parametrize("cause", list(Cause), ids=lambda cause: cause.name)
def test_is_explained(cause):
    about = CAUSES[cause]
    heads = [
        section
        for section in SECTIONS
        if f"{about.title} (`{about.key}`)" in section.splitlines()[0]
    ]
    assert len(heads) == 1, f"one heading with {about.title} (`{about.key}`)"
    assert "*Fix*" in heads[0]
    assert cause_of(about.key) is cause


def test_every_family_has_advice():
    assert set(_ADVICE) == set(FAMILIES) == {about.family for about in CAUSES.values()}
