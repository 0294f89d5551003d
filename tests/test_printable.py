"""Values of others in messages: cut, escaped, and never more than a line."""

from __future__ import annotations

import pytest

from fastfeed import errors
from fastfeed.faults import Failure
from fastfeed.printable import LIMIT, printable, printable_message


@pytest.mark.parametrize("value", ["a", "", "é ü", "x" * LIMIT, 3, None, [1, 2]], ids=str)
def test_short_printable_values_stay_as_they_are(value):
    assert printable(value) == str(value)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a\nb", r"a\nb"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\udcff.jpg", r"\xff.jpg"),
        ("\ud800.jpg", r"\ud800.jpg"),
        ("a\u202egnp.jpg", r"a\u202egnp.jpg"),  # would turn the text around
        (b"caf\xc3\xa9 \xff", r"café \xff"),
    ],
)
def test_escapes_what_no_terminal_should_get(value, shown):
    assert printable(value) == printable(printable(value)) == shown


@pytest.mark.parametrize(
    "value",
    ["x" * 600_000, "\x1b" * 600_000, "two words " * 60_000, b"\xff" * 600_000],
    ids=range(4),
)
@pytest.mark.parametrize("limit", [80, LIMIT, 1000])
def test_cuts_to_the_limit_and_says_how_long_it_was(value, limit):
    shown = printable(value, limit)
    assert len(shown) == limit and shown.isprintable()
    assert "(600,000 characters)" in shown or isinstance(value, bytes)


def test_a_long_path_keeps_its_file():
    shown = printable("photos/" + "deep/" * 100 + "IMG_0001.jpg")
    assert shown.startswith("photos/deep/") and shown.endswith("IMG_0001.jpg")


def test_escapes_do_not_lengthen_it():
    assert len(printable("\x1b" * (LIMIT - 1))) == LIMIT


@pytest.mark.parametrize("name", errors.__all__)
def test_no_error_holds_a_value_of_many_characters(name):
    text = str(getattr(errors, name)(f"cannot read {'x' * 600_000}: \x1b[2J\nnext line"))
    assert text.startswith("cannot read xxx") and text.endswith(": \\x1b[2J\\nnext line")
    assert len(text) < LIMIT + 40


@pytest.mark.parametrize("quote", ["'", '"'])
def test_a_long_text_in_quotes_is_cut(quote):
    value = "it's " * 9000 if quote == '"' else "two words " * 9000
    text = str(
        errors.ConfigError(
            f"the table's label must be one of 'a', 'b', got {value!r}; pass the users' own 'c'"
        )
    )
    assert (
        text.startswith(f"the table's label must be one of 'a', 'b', got {quote}{value[:20]}")
        and len(text) < 350
    )
    assert text.endswith("; pass the users' own 'c'")


def test_apostrophes_are_no_quotes():
    text = "the table's folder " + "and a word " * 50 + "of the users' own, 'a' and the table's 'b'"
    assert printable_message(text) == text


def test_a_message_of_short_words_is_whole():
    text = "a photograph " * 1000
    assert printable_message(text) == text


def test_a_failure_is_one_short_line():
    failure = Failure(3, "x" * 600_000, "read", "corrupt", "two words\n" * 60_000)
    assert len(failure.detail) == 1000
    assert len(str(failure)) < 1300 and str(failure).isprintable()
