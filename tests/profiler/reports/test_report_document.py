"""--json: what goes in comes out of json.loads, the sums hold, the schema is the documented one."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.profiler import results_made
from helpers.profiler.results_made import EVERY

from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.result import Share
from fastfeed.profiler.reports import document

DOCS = Path(__file__).resolve().parents[3] / "docs" / "profile_json.md"


def keys(value: object) -> set[str]:
    """Names of fields at any depth; what maps names of users or causes to numbers is left out."""
    if isinstance(value, list):
        return set().union(*map(keys, value))
    if not isinstance(value, dict):
        return set()
    free = {"causes", "facts", "stages"}
    return set(value) | set().union(
        *(keys(inner) for key, inner in value.items() if key not in free)
    )


@pytest.mark.parametrize("name", EVERY)
def test_survives_json_exactly(name: str) -> None:
    parsed = document.as_dict(EVERY[name]())
    text = json.dumps(parsed, allow_nan=False)
    assert json.loads(text.encode("utf-8")) == parsed
    assert parsed["schema"] == "fastfeed.analysis/1"


@pytest.mark.parametrize("name", ["one", "many", "healthy"])
def test_budget_sums_to_the_window_and_causes_to_the_idle_time(name: str) -> None:
    devices = document.as_dict(EVERY[name]())["devices"]
    assert devices
    for device in devices:
        for period in (device["whole"], device["steady"]):
            assert sum(period["budget"].values()) == period["window_ns"]
            assert sum(period["causes"].values()) == period["budget"]["idle"]


def test_causes_go_by_their_stable_keys() -> None:
    parsed = document.as_dict(results_made.many())
    assert set(parsed["causes"]) == {about.key for about in Cause}
    assert parsed["devices"][3]["steady"]["causes"]["input"] > 0
    assert [charge["cause"] for charge in parsed["devices"][0]["charges"]] == ["input", None]


def test_times_are_integers_even_where_numpy_counted() -> None:
    result = results_made.one()
    device = result.devices[0]
    gap = replace(
        device.worst[0], start=np.int64(5), end=np.int64(9), causes={Cause.INPUT: np.int64(4)}
    )  # type: ignore
    parsed = document.as_dict(replace(result, devices=(replace(device, worst=(gap,)),)))
    assert parsed["devices"][0]["worst"][0] == json.loads(
        json.dumps(parsed["devices"][0]["worst"][0])
    )
    assert parsed["devices"][0]["first_ns"] == results_made.START


def test_a_number_that_json_lacks_is_null() -> None:
    result = results_made.one()
    verdict = replace(
        result.verdict,
        share=Share(float("nan")),
        remedies=(replace(result.verdict.remedies[0], ceiling=float("inf")),),
    )
    parsed = document.as_dict(replace(result, verdict=verdict))
    assert parsed["verdict"]["input"]["value"] is None
    assert parsed["verdict"]["remedies"][0]["ceiling"] is None


def test_steps_say_what_each_waited() -> None:
    steps = document.as_dict(results_made.one())["devices"][0]["steps"]
    assert len(steps["each"]) == 24 and steps["steady"] == 22
    assert all(0 <= step["input"] <= step["idle"] <= 1 for step in steps["each"])
    assert steps["each"][5]["input"] > 0.2


def test_every_field_is_documented() -> None:
    named = set(re.findall(r"`([a-z0-9_]+)`", DOCS.read_text()))
    assert keys(document.as_dict(results_made.many())) - named == set()
