"""With a helper process: the same batches, wherever they are asked for, and the same said of
them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.feeds import OPS, equal
from helpers.helper_feeds import Described, helper, side
from helpers.photos import picture
from helpers.shards import shard_folder

from fastfeed.errors import SampleError, TooManyFailures
from fastfeed.faults import FaultPolicy
from fastfeed.feed.feed import Feed
from fastfeed.feed.session import FeedSession
from fastfeed.sampling import Balanced
from fastfeed.sources import Arrays, ImageFolder, Mixture, TarShards

PICTURES = np.stack([picture(i, (20, 30)) for i in range(40)])


@pytest.fixture
def damaged_source(damaged: Any) -> ImageFolder:
    return damaged[0]


@pytest.fixture
def shards(tmp_path: Path) -> TarShards:
    return TarShards(shard_folder(tmp_path / "shards", (11, 7, 12)), classes=("a", "b", "c"))


SOURCES: dict[str, Callable[[pytest.FixtureRequest], Any]] = {
    "arrays": lambda _: Arrays(PICTURES, np.arange(40) % 3),
    "described": lambda _: Described(PICTURES, np.arange(40) % 3),
    "broken files": lambda request: request.getfixturevalue("damaged_source"),
    "shards": lambda request: request.getfixturevalue("shards"),
    "mixture": lambda request: Mixture(
        [request.getfixturevalue("shards"), request.getfixturevalue("damaged_source")], [0.3, 0.7]
    ),
}


def same(one: list[Any], other: list[Any]) -> bool:
    """All of them, with types."""
    return equal(one, other) and all(
        a.images.dtype == b.images.dtype
        and a.labels.dtype == b.labels.dtype
        and a.weights.dtype == b.weights.dtype
        and a.columns.keys() == b.columns.keys()
        and all(np.array_equal(a.columns[name], b.columns[name]) for name in a.columns)
        for a, b in zip(one, other, strict=True)
    )


def pair(source: Any, **more: Any) -> tuple[Feed, Feed]:
    more = {"batch": 8} | more
    return side(source, OPS, side_process=False, **more), side(source, OPS, **more)


@pytest.mark.parametrize(
    "name",
    [
        "mixture",  # of shards and broken files
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("arrays", "broken files", "described", "shards")
        ),
    ],
)
def test_the_same_batches_as_without(name, request):
    alone, helped = pair(SOURCES[name](request))
    with alone, helped:
        for _ in range(2):
            assert same(list(alone), list(helped))
        assert same(list(alone.batches(7, 2)), list(helped.batches(7, 2)))
        assert same(list(alone.batches(3, 1, epochs=2)), list(helped.batches(3, 1, epochs=2)))
        assert not list(helped.batches(3, epochs=0))
        walks = alone.batches(1, raw=True), helped.batches(1, raw=True)
        assert same(*(list(walk) for walk in walks))
        assert alone.state() == helped.state()
        assert sorted(map(str, alone.stats().bad)) == sorted(map(str, helped.stats().bad))


@pytest.mark.parametrize(
    "how",
    [
        {"on_bad": "mask", "threads": 1},
        *(
            pytest.param(how, marks=pytest.mark.slow)
            for how in (
                {"shuffle": Balanced(), "prefetch": 0},
                {"tail": "pad", "batch": 7, "prefetch": 5},
                {"shuffle": False, "decode": "pillow"},
            )
        ),
    ],
    ids=str,
)
def test_the_same_batches_with_any_settings(how, damaged_source):
    alone, helped = pair(damaged_source, **how)
    with alone, helped:
        assert same(list(alone), list(helped))
        assert FeedSession.of(helped).weighted == FeedSession.of(alone).weighted


def test_restored_elsewhere():
    alone, helped = pair(Arrays(PICTURES))
    with alone, helped:
        for _, _ in zip(range(3), helped, strict=False):
            pass
        alone.restore(helped.state())
        rest = list(alone)
        helped.restore(alone.state())
        alone.seek(1)
        assert len(rest) == 2
        assert same(list(alone), list(helped))


def test_arrays_begin_with_a_page_and_may_be_written():
    with side(Arrays(PICTURES), OPS) as data:
        for batch in data:
            assert batch.images.ctypes.data % 4096 == 0
            assert batch.images.flags.c_contiguous
            batch.images[:] = 0
            batch.labels[:] = 0


def test_batches_are_placed_ahead_in_this_process():
    placed: list[int] = []

    def place(batch: Any) -> tuple[int, int]:
        placed.append(batch.step)
        return batch.step, int(batch.ids.sum())

    with side() as data:
        steps = [step for step, _ in FeedSession.of(data).placed(place)]
        assert steps == [0, 1, 2, 3, 4]
        assert placed[:5] == steps
        assert FeedSession.of(data).timeline.totals()["place"][0] >= 5


def test_what_place_raises_is_raised_at_its_turn():
    def place(batch: Any) -> int:
        if batch.step == 2:
            raise MemoryError("on the device")
        return batch.step

    with side() as data:
        walk = FeedSession.of(data).placed(place)
        assert [next(walk), next(walk)] == [0, 1]
        with pytest.raises(MemoryError, match="on the device"):
            next(walk)
        assert data.state()["step"] == 2


def test_statistics_are_those_of_both_processes(damaged, tmp_path):
    source, bad = damaged
    listed = tmp_path / "bad.jsonl"
    with side(source, OPS, batch=8, quarantine=listed) as data:
        assert len(list(data)) == 10
        stats = data.stats()
        assert stats.images == 80
        assert {failure.id: failure.reason for failure in stats.bad} == bad
        assert {"read", "decode", "convert"} <= stats.stage_ms.keys()
        assert stats.stage_ms["decode"] > 0
        assert 0 < stats.wait_share <= 1
        assert stats.threads == 2
        assert {
            line["id"] for line in map(json.loads, listed.read_text().splitlines())
        } == bad.keys()
        assert {"read", "decode", "wait"} <= {
            span.stage for span in FeedSession.of(data).timeline.spans()
        }


@pytest.mark.parametrize(
    ("policy", "kind"),
    [
        pytest.param("raise", SampleError, marks=pytest.mark.slow),
        (FaultPolicy(max_run=1), TooManyFailures),
    ],
    ids=["raise", "max_run"],
)
def test_limits_end_the_run_as_without(damaged_source, policy, kind):
    texts = []
    for data in pair(damaged_source, on_bad=policy, shuffle=False, threads=1, prefetch=0):
        with data:
            with pytest.raises(kind) as error:
                list(data)
            assert FeedSession.of(data).cursor.error is error.value
            texts.append(str(error.value))
            if kind is TooManyFailures:
                assert [failure.id for failure in error.value.failures] == [0]
                assert [failure.id for failure in data.stats().bad] == [0]
    assert texts[0] == texts[1]


def test_the_timeline_file_has_each_span_once(tmp_path, monkeypatch):
    file = tmp_path / "timeline.jsonl"
    monkeypatch.setenv("FASTFEED_TIMELINE", str(file))
    with side(prefetch=1) as data:
        list(data.batches())
        pid = helper(data)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    heads = [line for line in lines if isinstance(line, dict)]
    assert len({head["feed"] for head in heads}) == 1
    assert pid in {head["pid"] for head in heads}
    assert len(heads) == 2
    spans = [tuple(line[2:]) for line in lines if isinstance(line, list) and line[1] == "span"]
    assert len(spans) == len(set(spans))
    counts = {
        stage: len({span[1] for span in spans if span[0] == stage}) for stage in ("wait", "decode")
    }
    assert counts == {"wait": 5, "decode": 5}
    assert sum(span[0] == "wait" for span in spans) == 5


def test_print_names_the_helper_process():
    with side() as data, side(side_process=False) as alone:
        assert "2 threads of a helper process, 2 batches ahead" in str(data)
        assert str(data).replace(" of a helper process", "") == str(alone)
        assert FeedSession.of(data).producer._client is None, (
            "nothing starts before the first batch"
        )
