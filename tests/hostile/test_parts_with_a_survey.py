"""Parts of a job that start together and each survey the photographs: what is complete is never
overwritten.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.photos import folder
from helpers.preprocess.outcomes import tree
from helpers.preprocess.surveying import BytesSource, MemoryTarget, RecordingContext, saved, scene
from helpers.small_jobs import InlineEngine

from fastfeed.preprocess import Packing, Recipe, Scaling, Selection, run
from fastfeed.preprocess.planning import planning, survey
from fastfeed.preprocess.planning.survey import SurveyTask, begun_name, load_survey, piece_name

BLOBS = [saved(scene(k)) for k in range(6)]


@pytest.fixture(autouse=True)
def always_saving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "_SAVE_S", 0.0)
    monkeypatch.setattr(survey, "_SAVE_SHARE", 0.0)


class Overtaken(BytesSource):
    """Another part completes the piece while this one is in the middle of it."""

    def __init__(self, shelf: MemoryTarget) -> None:
        super().__init__(BLOBS)
        self.shelf = shelf

    def read(self, ids: Any) -> list[Any]:
        if ids[0] == 3:
            _task(BytesSource(BLOBS), self.shelf).run(0, RecordingContext(), {})
        return super().read(ids)


class Checked(MemoryTarget):
    """A target in which a piece that is complete must stay so."""

    def write(self, name: str, content: bytes) -> None:
        super().write(name, content)
        if piece_name(0) in self.held:
            assert len(load_survey(self, [0])) == 6  # type: ignore[arg-type]


def _task(source: Any, shelf: MemoryTarget) -> SurveyTask:
    return SurveyTask(source, shelf, np.array([0, 6]), True)  # type: ignore[arg-type]


def test_a_piece_that_another_part_completes_stays_complete() -> None:
    shelf = Checked()
    summary = _task(Overtaken(shelf), shelf).run(0, RecordingContext(), {})
    assert summary == {"samples": 6, "bad": 0}
    assert set(shelf.held) == {piece_name(0), begun_name(0)}


def test_a_complete_piece_is_not_surveyed_again() -> None:
    shelf, source = MemoryTarget(), BytesSource(BLOBS)
    for _ in range(2):
        assert _task(source, shelf).run(0, RecordingContext(), {}) == {"samples": 6, "bad": 0}
    assert sorted(source.asked) == list(range(6))


def test_parts_that_start_together_make_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "_SURVEY_PIECE", 4)
    photos = folder(tmp_path / "photos", {"a": 12, "b": 12}, (24, 32))
    recipe = Recipe(
        Scaling(16), packing=Packing(samples=4), choice=Selection(val=0.3, dedupe="exact")
    )
    run(photos, tmp_path / "whole", recipe, engine=InlineEngine())
    errors: list[BaseException] = []
    barrier = threading.Barrier(3)

    def work(part: int) -> None:
        barrier.wait()
        try:
            run(photos, tmp_path / "shards", recipe, engine=InlineEngine(), part=(part, 3))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(part,)) for part in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert run(photos, tmp_path / "shards", recipe, engine=InlineEngine()).complete
    assert tree(tmp_path / "shards") == tree(tmp_path / "whole")
