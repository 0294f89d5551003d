"""Conditions on samples: what they mean, what of them is known when, and what is refused."""

from __future__ import annotations

import pytest

from fastfeed.errors import ConfigError
from fastfeed.preprocess import Limits, Recipe
from fastfeed.preprocess.model.condition import UNKNOWN, SampleValues, parse_condition
from fastfeed.preprocess.model.task import SampleFault

COLUMNS = {
    "score": 0.75,
    "gap": None,
    "nan": float("nan"),
    "country": "ch",
    "tags": ["cat", "dog"],
    "is_ok": True,
    "width": 7,
    "a name": 3,
}
KNOWN = SampleValues({"uri": "a/b.jpg", "label": 1, "class_name": "cat"}, COLUMNS).with_file(
    400, 800, 12_345, "JPEG"
)
KEPT = "kept"
DROPPED = "dropped"
MISSING = "missing"


def outcome(text: str, known: SampleValues = KNOWN) -> str:
    failure = parse_condition(text).failure(known)
    if failure is None:
        return KEPT
    return MISSING if failure.detail.endswith("(a value is missing)") else DROPPED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("width >= 512 and aspect < 3 and score > 0.5 and country in ('ch','fr')", KEPT),
        ("width == 800 and height == 400 and aspect == 2 and bytes == 12345", KEPT),
        ('format == "JPEG" and class_name != "dog" and label == 1', KEPT),
        ("'b.jpg' in uri and 'cat' in tags and 'ch' in country", KEPT),
        ("score > 0.75", DROPPED),
        ("0.5 < score <= 0.75", KEPT),
        ("0.5 < score < 0.75", DROPPED),
        ("not score > 0.75", KEPT),
        ("score > -1", KEPT),
        ("is_ok and not (country == 'fr' or label == 0)", KEPT),
        ("country not in ['fr', 'it']", KEPT),
        ('column["width"] == 7 and column["a name"] == 3', KEPT),
        ("  width > 5\n and height > 5 ", KEPT),
        # a comparison with a missing value is neither true nor false, as in SQL
        ("gap > 1", MISSING),
        ("gap != 1", MISSING),
        ("not gap > 1", MISSING),
        ("nan < 1", MISSING),
        ("gap in ('a',)", MISSING),
        ("gap > 1 or score > 0.5", KEPT),
        ("gap > 1 or score > 0.9", MISSING),
        ("score > 0.9 and gap > 1", DROPPED),
        ("gap is None and nan is None and score is not None", KEPT),
        ("gap is not None", DROPPED),
    ],
)
def test_meaning(text: str, expected: str) -> None:
    assert outcome(text) == expected


def test_a_condition_is_decided_as_soon_as_what_is_known_decides_it() -> None:
    early = SampleValues({"label": 1}, {"country": "it", "score": 0.9})
    condition = parse_condition("width > 500 and country == 'ch'")
    failure = condition.failure(early)
    assert failure is not None and failure == ("dropped", "where country == 'ch'")
    assert outcome("width > 500 and score > 0.5", early) == KEPT  # open
    assert outcome("width > 500 or country == 'ch'", early) == KEPT  # open
    assert outcome("not (width > 500 and country == 'it')", early) == KEPT  # open
    assert outcome("not (width > 500 or country == 'it')", early) == DROPPED
    with pytest.raises(SampleFault, match="needs 'quality', which nothing gave"):
        parse_condition("quality > 3").failure(KNOWN, is_last=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("country > 5", "country > 5 compares text 'ch' with number 5"),
        ("score == '1'", "compares number 0.75 with text '1'"),
        ("3 in country", "looks for number 3 in text 'ch'"),
        ("country in (1, 2)", r"looks for text 'ch' in tuple \(1, 2\)"),
        ("tags in ('cat', 'dog')", r"looks for list \['cat'.*\] in tuple \('cat', 'dog'\)"),
        ("country", "country is text 'ch', neither true nor false"),
        ("tags == 3", r"compares list \['cat', 'dog'\] with number 3"),
    ],
)
def test_values_that_do_not_compare(text: str, message: str) -> None:
    with pytest.raises(SampleFault, match=message):
        parse_condition(text).failure(KNOWN)


@pytest.mark.parametrize(
    ("text", "at", "message"),
    [
        ("width >> 512", 1, "this is no condition; allowed are names"),
        ("width = 512", 7, "allowed are names"),
        ("width > 512 and", 16, "invalid syntax"),
        ("class == 'cat'", 1, "class_name"),
        ("width > 512 and open('x') > 1", 17, "this is no value"),
        ("__import__('os').system('true')", 1, "this is no condition"),
        ("score.real > 1", 1, "this is no value"),
        ("width > height + 1", 9, "this is no value"),
        ("[x for x in tags] == 1", 1, "this is no value"),
        ("'été' == format and f(1) > 2", 21, "this is no value"),
        ("gap == None", 8, "missing values are found by `is None`"),
        ("score is 5", 10, "`is` is for None"),
        ("country == ('ch', 'fr')", 12, "a list is for the right side of `in`"),
        ("country in ('ch', width)", 19, "this is no value"),
        ("width > '5'", 9, "a number is compared with a text"),
        ("0 < uri", 5, "a number is compared with a text"),
        ("not " * 60 + "is_ok", 205, "more than 50 levels"),
        ("(" * 300 + "score > 1" + ")" * 300, None, "nested parentheses|cannot be parsed"),
        ("score > 1\0", None, "where"),
        ("x" * 4001, None, "at most 4000 characters"),
        (5, None, "at most 4000 characters"),
    ],
)
def test_what_is_no_condition_is_refused_at_its_place(text: str, at: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        Limits(where=text)
    if at is not None:
        assert f"character {at}:" in str(error.value)
        assert f"\n  {text}\n  {' ' * (at - 1)}^" in str(error.value)


def test_recipes_without_a_condition_keep_their_hash() -> None:
    assert "where" not in Recipe().document()["limits"]
    recipe = Recipe(limits=Limits(where="width > 5"))
    assert Recipe.of(recipe.document()) == recipe and recipe.hash != Recipe().hash
    assert parse_condition("width > 5").failure(UNKNOWN) is None
