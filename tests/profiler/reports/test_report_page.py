"""The page of --html: its size, its safety, its sums, without a browser."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from helpers.profiler import results_made
from helpers.profiler.results_made import EVERY

from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.reports.page import MAX_BYTES, page
from fastfeed.profiler.reports.picture import LOOK

EMPTY = {"meta", "link", "br", "path", "rect", "img"}


class Outline(HTMLParser):
    """Tags and text of a page; an end tag without its start is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.wrong: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)


def data(text: str) -> dict:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert match
    return json.loads(match[1])


@pytest.mark.parametrize("name", EVERY)
def test_is_well_formed_and_says_the_verdict(name: str) -> None:
    result = EVERY[name]()
    outline = Outline(page(result))
    assert (outline.wrong, outline.open) == ([], [])
    assert ("html", {"lang": "en"}) in outline.tags
    assert "Why is this GPU idle" in "".join(outline.text)
    for sentence in (
        result.verdict.change,
        result.verdict.refutation,
        *result.verdict.reasons,
        result.verdict.record,
    ):
        assert len(sentence) > 1000 or sentence in "".join(outline.text)


@pytest.mark.parametrize("name", EVERY)
def test_asks_for_nothing_from_anywhere(name: str) -> None:
    outline = Outline(page(EVERY[name]()))
    for tag, attrs in outline.tags:
        for key in ("src", "href", "action", "data", "poster", "srcset"):
            assert (attrs.get(key) or "data:").startswith("data:"), (tag, attrs)
        assert not any(key.startswith("on") for key in attrs), (tag, attrs)
    assert not re.search(r"@import|url\(|https?://", page(EVERY[name]()))


def test_hostile_names_stay_names() -> None:
    text = page(results_made.hostile())
    outline = Outline(text)
    assert outline.wrong == []
    assert [tag for tag, _ in outline.tags].count("script") == 2
    assert "</script><b>bold</b><script>alert(1)</script>" in "".join(outline.text)
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00\x1b]", text)
    where = data(text)["devices"][0]["where"]
    assert any("</script><b>bold</b>" in name for _, name in where)
    assert max(len(part) for pair in where for part in pair) <= 160


def crowded_with_long_names() -> results_made.Result:
    """Every slice has a name of its own, as long as kernels get."""
    result = results_made.crowded()
    device = result.devices[0]
    count = len(device.slices.start)
    names = tuple(f"{index} <{'tmpl<float>, ' * 300}>" for index in range(1000))
    slices = replace(device.slices, name=(np.arange(count) % 1000).astype(np.int32))
    steps = replace(
        device.steps, labels=tuple(name * 2 for name in names[: len(device.steps.labels)])
    )
    return replace(result, devices=(replace(device, slices=slices, names=names, steps=steps),))


@pytest.mark.parametrize(
    "make",
    [
        crowded_with_long_names,
        pytest.param(results_made.crowded, marks=pytest.mark.slow),
        pytest.param(lambda: results_made.many(100), marks=pytest.mark.slow),
    ],
)
def test_is_below_three_megabytes_whatever_the_trace(make: object) -> None:
    size = len(page(make()).encode())  # type: ignore
    assert 100_000 < size < MAX_BYTES == 3_000_000


def test_the_picture_has_every_idle_nanosecond_of_200000_slices_by_its_cause() -> None:
    result = results_made.crowded()
    assert len(result.devices[0].slices.start) >= 200_000
    parsed = data(page(result))
    flat, at = parsed["devices"][0]["lane"], 0
    total = [0] * len(parsed["classes"])
    while at < len(flat):
        if flat[at + 1] >= 0:
            total[flat[at + 1]] += flat[at]
            at += 3
        else:
            count = -flat[at + 1]
            for kind, ns in zip(
                flat[at + 6 : at + 6 + 2 * count : 2],
                flat[at + 7 : at + 7 + 2 * count : 2],
                strict=True,
            ):
                total[kind] += ns
            at += 6 + 2 * count
    whole = result.devices[0].whole
    for kind, about in enumerate(parsed["classes"][parsed["busy"] :]):
        cause = next(cause for cause in Cause if cause.title == about["title"])
        assert total[parsed["busy"] + kind] == whole.causes.get(cause, 0)
    assert total[0] == whole.budget.compute


def luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    line = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * line[0] + 0.7152 * line[1] + 0.0722 * line[2]


@pytest.mark.parametrize("ground", ["#ffffff", "#14171c"])
def test_colors_can_be_told_from_the_ground(ground: str) -> None:
    assert f"--ground: {ground}" in page(results_made.empty())
    colors = [cause.color for cause in Cause] + [color for _, color in LOOK.values()]
    for color in colors:
        low, high = sorted([luminance(color), luminance(ground)])
        assert (high + 0.05) / (low + 0.05) >= 3.0, color  # WCAG 2.2, 1.4.11


def test_recordings_without_a_common_clock_each_begin_at_zero() -> None:
    first, second = results_made.device(), results_made.device("other", seed=1)
    shifted = replace(second, trace=1)
    parsed = data(page(results_made.result(first, shifted)))
    assert [device["start"] for device in parsed["devices"]] == [0, 0]
