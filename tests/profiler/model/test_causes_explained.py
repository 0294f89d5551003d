"""Check that docs/causes.md has the title, the key and the fix of every cause."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fastfeed.profiler.model.causes import FAMILIES, Cause
from fastfeed.profiler.verdict.advice import _ADVICE

TEXT = (Path(__file__).parents[3] / "docs" / "causes.md").read_text()
SECTIONS = re.split(r"^### ", TEXT, flags=re.MULTILINE)[1:]


@pytest.mark.parametrize("cause", list(Cause), ids=lambda cause: cause.name)
def test_is_explained(cause):
    heading = f"{cause.title} (`{cause.key}`)"
    (section,) = [section for section in SECTIONS if heading in section.splitlines()[0]]
    assert "*Fix*" in section
    assert cause.means.endswith(".") and cause.color.startswith("#")


def test_every_family_has_advice():
    assert set(_ADVICE) == set(FAMILIES) == {cause.family for cause in Cause}
