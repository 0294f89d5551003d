"""The survey: what it says of each photograph, whatever the pieces; what is bad; what of it is
still good next time.
"""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

import numpy as np
import pytest
from helpers.preprocess.surveying import (
    POISONED,
    BytesSource,
    MemoryTarget,
    RecordingContext,
    saved,
    scene,
    surveyed,
)

from fastfeed.errors import SourceError
from fastfeed.preprocess.planning import survey
from fastfeed.preprocess.planning.survey import (
    BAD,
    GOOD,
    PLAIN,
    SurveyTask,
    completed_pieces,
    load_survey,
    piece_name,
)
from fastfeed.sources import ImageFolder

BLOBS: list[bytes | None] = [
    saved(scene(0)),
    saved(scene(1), "PNG"),
    saved(scene(2))[:900],  # ends early
    b"no image at all",
    None,
    saved(scene(5).point(lambda _: 0)),  # black
    saved(scene(6, 99, 301), "WEBP"),
    b"",
]
STATES = [GOOD, GOOD, BAD, BAD, BAD, PLAIN, GOOD, BAD]


def task(
    source: object, shelf: MemoryTarget, bounds: list[int], pixels: bool = True, **more: int
) -> SurveyTask:
    return SurveyTask(source, shelf, np.array(bounds), pixels, **more)  # type: ignore[arg-type]


def done(
    shelf: MemoryTarget,
    bounds: list[int],
    fingerprint: str = "files",
    pixels: bool = True,
    **more: int,
) -> set[int]:
    return completed_pieces(shelf, np.array(bounds), fingerprint, pixels, **more)  # type: ignore[arg-type]


def test_each_photograph_is_described() -> None:
    rows = surveyed(BytesSource(BLOBS), [0, 8]).rows
    assert rows["id"].tolist() == list(range(8))
    assert rows["state"].tolist() == STATES
    for row, blob in zip(rows, BLOBS, strict=True):
        expected = hashlib.sha256(blob).digest()[:16] if blob is not None else bytes(16)
        assert row["sha"].tobytes() == expected
    assert rows["height"].tolist() == [150, 150, 0, 0, 0, 150, 99, 0]
    assert rows["width"].tolist() == [200, 200, 0, 0, 0, 200, 301, 0]
    assert len(set(rows["dhash"][rows["state"] == GOOD].tolist())) == 3
    assert rows.itemsize == 50


@pytest.mark.parametrize("bounds", [[0, 3, 8], [0, 1, 2, 3, 4, 5, 6, 7, 8], [0, 8, 8]])
def test_pieces_do_not_matter(bounds: list[int]) -> None:
    assert (
        surveyed(BytesSource(BLOBS), bounds).rows.tobytes()
        == surveyed(BytesSource(BLOBS), [0, 8]).rows.tobytes()
    )


def test_without_pixels_headers_are_enough() -> None:
    rows = surveyed(BytesSource(BLOBS), [0, 8], pixels=False).rows
    assert not rows["dhash"].any()
    # the one that ends early is not decoded
    assert rows["height"].tolist() == [150, 150, 150, 0, 0, 150, 99, 0]
    assert rows["state"].tolist() == [PLAIN, PLAIN, PLAIN, BAD, BAD, PLAIN, PLAIN, BAD]


def test_a_piece_says_how_many_and_how_many_are_bad() -> None:
    shelf = MemoryTarget()
    assert task(BytesSource(BLOBS), shelf, [0, 3, 8]).run(1, RecordingContext(), {}) == {
        "samples": 5,
        "bad": 3,
    }
    assert list(shelf.held) == [piece_name(1)] == ["__job/survey/000001.npy"]


def test_what_is_poison_is_not_touched() -> None:
    source, diary, shelf = BytesSource(BLOBS), RecordingContext(), MemoryTarget()
    assert task(source, shelf, [0, 8]).run(0, diary, {0: POISONED, 6: POISONED})["bad"] == 6
    assert not {0, 6} & set(source.asked)
    assert not {0, 6} & set(diary.begun)
    rows = load_survey(shelf, [0]).rows  # type: ignore[arg-type]
    assert rows["state"].tolist() == [BAD, GOOD, BAD, BAD, BAD, PLAIN, BAD, BAD]
    assert rows["id"].tolist() == list(range(8))


def test_each_is_named_before_it_is_decoded_and_no_one_is_to_blame_for_the_end() -> None:
    diary = RecordingContext()
    task(BytesSource(BLOBS), MemoryTarget(), [0, 8]).run(0, diary, {})
    named = list(dict.fromkeys(id for id in diary.begun if id >= 0))
    assert named == list(range(8))
    assert diary.begun[-1] == -1


def test_alone_looks_at_one_and_writes_nothing() -> None:
    source, diary, shelf = BytesSource(BLOBS), RecordingContext(), MemoryTarget()
    task(source, shelf, [0, 8]).alone(6, diary)
    assert source.asked == [6]
    assert diary.begun[-1] == 6
    assert not shelf.held


def test_what_needs_more_memory_than_there_is_is_bad() -> None:
    diary, shelf = RecordingContext(limit=1000), MemoryTarget()
    assert task(BytesSource(BLOBS), shelf, [0, 8]).run(0, diary, {})["bad"] == 8
    assert max(diary.needs) > 1000


def test_large_files_are_read_when_there_is_room_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in (0, 1, 6):
        (tmp_path / f"{i}.jpg").write_bytes(BLOBS[i] or b"")
    expected = surveyed(source := ImageFolder(tmp_path, labeled=False), [0, 3]).rows
    # all of them are large
    monkeypatch.setattr("fastfeed.preprocess.inputs.readahead.FREE_BYTES", 100)
    monkeypatch.setattr(survey, "FREE_BYTES", 1)  # and need more than usual
    diary, shelf = RecordingContext(), MemoryTarget()
    task(source, shelf, [0, 3]).run(0, diary, {})
    assert load_survey(shelf, [0]).rows.tobytes() == expected.tobytes()  # type: ignore[arg-type]
    sizes = [len(BLOBS[i] or b"") for i in (0, 1, 6)]
    assert diary.needs[::2] == [size + 1 for size in sizes]
    assert all(need > size + 1000 for need, size in zip(diary.needs[1::2], sizes, strict=True))


def test_pieces_count_only_for_what_they_were_made_of() -> None:
    shelf, bounds = MemoryTarget(), [0, 3, 6, 8]
    for piece in (0, 2):
        task(BytesSource(BLOBS), shelf, bounds).run(piece, RecordingContext(), {})
    assert done(shelf, bounds) == {0, 2}
    assert done(shelf, bounds, pixels=False) == {0, 2}  # more was looked at than is needed
    assert done(shelf, bounds, fingerprint="others") == set()
    assert done(shelf, [0, 3, 5, 8]) == {0}
    assert done(shelf, bounds, max_pixels=1000) == set()
    task(BytesSource(BLOBS), shelf, bounds, pixels=False).run(1, RecordingContext(), {})
    assert done(shelf, bounds) == {0, 2}
    assert done(shelf, bounds, pixels=False) == {0, 1, 2}


@pytest.mark.parametrize("keep", [0, 10, 200, -2, -40, None])
def test_damaged_pieces_do_not_count(keep: int | None) -> None:
    shelf = MemoryTarget()
    task(BytesSource(BLOBS), shelf, [0, 8]).run(0, RecordingContext(), {})
    whole = bytearray(shelf.held[piece_name(0)])
    whole[300] ^= 1 if keep is None else 0
    shelf.held[piece_name(0)] = bytes(whole[:keep])
    assert done(shelf, [0, 8]) == set()
    with pytest.raises(
        SourceError, match=r"000000\.npy in shelf is missing or damaged; run the same command again"
    ):
        load_survey(shelf, [0])  # type: ignore[arg-type]


def test_pieces_that_do_not_fit_together_are_refused() -> None:
    shelf = MemoryTarget()
    task(BytesSource(BLOBS), shelf, [0, 3, 8]).run(0, RecordingContext(), {})
    task(BytesSource(BLOBS), shelf, [0, 4, 8]).run(1, RecordingContext(), {})
    with pytest.raises(SourceError, match="are not of one survey: remove that folder"):
        load_survey(shelf, [0, 1])  # type: ignore[arg-type]


def test_a_task_pickles_and_does_the_same() -> None:
    shelf = MemoryTarget()
    made = task(BytesSource(BLOBS), shelf, [0, 8])
    copy: SurveyTask = pickle.loads(pickle.dumps(made))
    for one in (made, copy):
        one.run(0, RecordingContext(), {})
    assert copy.target.read(piece_name(0)) == shelf.held[piece_name(0)]


def test_any_file_at_all_is_good_or_bad(data: Path) -> None:
    files = sorted(path for path in (data / "bad-images").rglob("*") if path.is_file())[::9]
    rows = surveyed(BytesSource([path.read_bytes() for path in files]), [0, len(files)]).rows
    assert set(rows["state"].tolist()) == {GOOD, BAD, PLAIN}
    good = rows["state"] != BAD
    assert (rows["height"][good] > 0).all()
    assert (rows["height"][~good] == 0).all()


class _Killed(BaseException):
    pass


class _Dies(BytesSource):
    """Kills its process when so many more photographs have been read."""

    left = 10**9

    def read(self, ids):  # type: ignore[no-untyped-def]
        blobs = super().read(ids)
        type(self).left -= len(blobs)
        if self.left < 0:
            raise _Killed
        return blobs


def test_a_piece_resumes_where_it_was_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "_SAVE_S", 0.0)
    monkeypatch.setattr(survey, "_SAVE_SHARE", 0.0)
    expected = surveyed(BytesSource(BLOBS), [0, 8]).rows
    shelf, source, starts = MemoryTarget(), _Dies(BLOBS), 0
    while not done(shelf, [0, 8]):
        _Dies.left, starts = 3, starts + 1
        assert starts < 10, "each start gets further"
        try:
            task(source, shelf, [0, 8]).run(0, RecordingContext(), {})
        except _Killed:
            with pytest.raises(SourceError, match="missing or damaged"):
                load_survey(shelf, [0])  # type: ignore[arg-type]
    assert starts > 2
    assert load_survey(shelf, [0]).rows.tobytes() == expected.tobytes()  # type: ignore[arg-type]
    _Dies.left = 10**9
    assert source.asked.count(0) == 1, "nothing is surveyed twice"


def test_progress_of_another_source_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "_SAVE_S", 0.0)
    monkeypatch.setattr(survey, "_SAVE_SHARE", 0.0)
    shelf = MemoryTarget()
    _Dies.left = 4
    with pytest.raises(_Killed):
        task(_Dies(BLOBS), shelf, [0, 8], fingerprint="others").run(0, RecordingContext(), {})
    _Dies.left = 10**9
    source = BytesSource(BLOBS)
    task(source, shelf, [0, 8]).run(0, RecordingContext(), {})
    assert sorted(source.asked) == list(range(8)) and done(shelf, [0, 8]) == {0}
