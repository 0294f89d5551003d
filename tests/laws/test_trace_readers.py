"""Laws of every reader of traces. A new reader needs a row in traces.DIALECTS.

Whatever a file holds, a reader gives a trace that is sound in itself, or a TraceError of one
sentence that names the file; never another exception.
"""

from __future__ import annotations

import bz2
import gzip
import importlib
import lzma
import random
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.profiler.soundness import outcome
from helpers.traces import DIALECTS, MARK, Work, steady

from fastfeed.errors import TraceError
from fastfeed.profiler import readers
from fastfeed.profiler.model.trace import Trace
from fastfeed.profiler.runner import nsight

READABLE = sorted(set(DIALECTS) - {"nsys_report"})  # without Nsight Systems
# a name may add to what is known
SUFFIXES = {
    "xplane": ".xplane.pb",
    "nsys_report": ".nsys-rep",
    "chrome": ".json",
}
every_dialect = pytest.mark.parametrize("dialect", sorted(DIALECTS))
every_readable = pytest.mark.parametrize("dialect", READABLE)


@pytest.fixture(autouse=True)
def no_nsys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The laws are of this code, and not of what is installed."""
    monkeypatch.setattr(nsight, "find", lambda: None)


def test_every_reader_has_a_row() -> None:
    assert set(readers.READERS) == set(DIALECTS)


def made(folder: Path, dialect: str, works: list[Work]) -> Path:
    path = folder / f"run{SUFFIXES.get(dialect, '')}"
    path.unlink(missing_ok=True)
    DIALECTS[dialect](path, works)
    return path


def outcomes(path: Path, dialect: str) -> list[Trace | None]:
    """What is read of a file, by its content and by this reader whatever it is; None stands for a
    TraceError.
    """
    direct: Callable[[Path], Trace] = importlib.import_module(
        f"fastfeed.profiler.readers.{readers.READERS[dialect]}"
    ).read
    return [outcome(path, readers.read), outcome(path, direct)]


def times(trace: Trace) -> np.ndarray:
    """Spans of the device, of a timeline those of the feed; from the first, in order."""
    table = trace.ops if trace.origin.dialect != "timeline" else trace.ranges
    spans = np.column_stack([table.start, table.end])
    return spans[np.argsort(spans[:, 0])] - spans[:, 0].min()


@every_readable
def test_whole_file(tmp_path: Path, dialect: str) -> None:
    """The laws below would say nothing of a reader that refuses everything."""
    path = made(tmp_path, dialect, steady())
    assert readers.detect(path) == dialect
    for trace in outcomes(path, dialect):
        assert trace is not None
        expected = np.array([[work.start, work.end] for work in steady()]) - 1_000_000
        np.testing.assert_array_equal(times(trace), expected)


@every_readable
@pytest.mark.parametrize("packing", ["gz", "bz2", "xz", "zip", "zip.gz"])
def test_packed(tmp_path: Path, dialect: str, packing: str) -> None:
    """The packing is told by content too: these have the names of plain files."""
    path = made(tmp_path, dialect, steady())
    before, plain = times(readers.read(path)), path.read_bytes()
    inner = gzip.compress(plain) if packing == "zip.gz" else plain
    if packing.startswith("zip"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("trace", inner)
    else:
        path.write_bytes(
            {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}[packing](plain)
        )
    trace = readers.read(path)
    assert trace.origin.path == str(path)
    np.testing.assert_array_equal(times(trace), before)


@every_dialect
def test_empty(tmp_path: Path, dialect: str) -> None:
    path = made(tmp_path, dialect, steady())
    path.write_bytes(b"")
    assert outcomes(path, dialect) == [None, None]
    with pytest.raises(TraceError, match="is empty"):
        readers.read(path)


@every_dialect
@pytest.mark.parametrize("packed", [False, True])
def test_truncated(tmp_path: Path, dialect: str, packed: bool) -> None:
    path = made(tmp_path, dialect, steady(40))
    whole = gzip.compress(path.read_bytes()) if packed else path.read_bytes()
    for size in {
        1,
        2,
        15,
        16,
        100,
        *(len(whole) * k // 8 for k in range(1, 8)),
        len(whole) - 9,
        len(whole) - 1,
    }:
        path.write_bytes(whole[:size])
        outcomes(path, dialect)


@every_dialect
def test_random_bytes(tmp_path: Path, dialect: str) -> None:
    path = made(tmp_path, dialect, steady())
    whole, noise = path.read_bytes(), random.Random(1)
    for begin in (0, 16, 40, 120, len(whole) // 2):
        path.write_bytes(whole[:begin] + noise.randbytes(5000))
        outcomes(path, dialect)


@every_dialect
def test_flipped_bytes(tmp_path: Path, dialect: str) -> None:
    path = made(tmp_path, dialect, steady())
    whole, dice = path.read_bytes(), random.Random(2)
    for _ in range(60):
        bent = bytearray(whole)
        for _ in range(dice.choice((1, 1, 1, 5, 40))):
            bent[dice.randrange(len(bent))] = dice.randrange(256)
        path.write_bytes(bent)
        outcomes(path, dialect)


@every_dialect
@pytest.mark.parametrize("other", sorted(DIALECTS))
def test_wrong_dialect(tmp_path: Path, dialect: str, other: str) -> None:
    """A file of another dialect, under the name of this one."""
    path = made(tmp_path, dialect, [])
    path.unlink()
    DIALECTS[other](path, steady())
    found, direct = outcomes(path, dialect)
    assert (found is not None) == (other in READABLE)
    assert dialect == other or direct is None or not len(direct.ops.start)


@every_dialect
def test_no_event(tmp_path: Path, dialect: str) -> None:
    for trace in outcomes(made(tmp_path, dialect, []), dialect):
        assert trace is None or (not len(trace.ops.start) and not len(trace.ranges.start))


@every_dialect
def test_negative_durations(tmp_path: Path, dialect: str) -> None:
    works = steady()
    works[3] = replace(works[3], end=works[3].start - 1)
    works[5] = replace(works[5], start=-5_000_000, end=-4_000_000)
    for trace in outcomes(made(tmp_path, dialect, works), dialect):
        assert dialect == "nsys_report" or (trace is not None and len(times(trace)) >= 6)


@every_dialect
@pytest.mark.parametrize("to", [2**40, 1_700_000_000_000_000_000, 2**52])
def test_clock_jump(tmp_path: Path, dialect: str, to: int) -> None:
    works = steady()
    works[4:] = [replace(work, start=work.start + to, end=work.end + to) for work in works[4:]]
    for trace in outcomes(made(tmp_path, dialect, works), dialect):
        assert dialect == "nsys_report" or trace is not None


@every_dialect
@pytest.mark.parametrize("value", [2**62, 2**63 - 1, -(2**62)])
def test_absurd_times(tmp_path: Path, dialect: str, value: int) -> None:
    works = steady()
    works[2] = replace(works[2], end=value)
    works[6] = replace(works[6], start=value, end=value)
    works[7] = replace(works[7], corr=value)
    try:
        path = made(tmp_path, dialect, works)
    except OverflowError:  # no SQLite file can hold this either
        return
    outcomes(path, dialect)


@every_dialect
def test_duplicates(tmp_path: Path, dialect: str) -> None:
    for trace in outcomes(made(tmp_path, dialect, [*steady(), *steady()]), dialect):
        assert dialect == "nsys_report" or trace is not None
        if trace is not None:
            alone = made(tmp_path, dialect, steady())
            np.testing.assert_array_equal(
                np.unique(times(trace), axis=0), times(readers.read(alone))
            )


@every_dialect
@pytest.mark.parametrize(
    "broken", [b"\xff\xfe\x80\xc3\x28\xf0\x9f\x92\xed", b"\x00\x01\x08\x1b\r\n\t\x7f\x0b"]
)
def test_broken_text(tmp_path: Path, dialect: str, broken: bytes) -> None:
    path = made(tmp_path, dialect, steady())
    assert MARK.encode() in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(MARK.encode(), broken))
    for trace in outcomes(path, dialect):
        if dialect != "nsys_report" and broken[0] == 0xFF:
            assert trace is not None and len(times(trace)) == 8


@every_dialect
def test_no_file(tmp_path: Path, dialect: str) -> None:
    assert outcomes(tmp_path / "gone", dialect) == [None, None]
    assert outcomes(tmp_path, dialect) == [None, None]
