"""Open files: one budget for all shards of a process, and running out of them is never a sample's
fault.
"""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.photos import folder, jpeg
from helpers.products import in_turn
from helpers.records import record_folder
from helpers.shards import shard_folder, tar_of

import fastfeed as ff
from fastfeed.errors import SourceError, StorageError
from fastfeed.storage import local_file, retry, shard_files
from fastfeed.storage.reads import Unread
from fastfeed.storage.retry import RetryPolicy
from fastfeed.system import descriptors

pytestmark = pytest.mark.skipif(
    not hasattr(os, "pread"), reason="Windows opens a file for each read"
)


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that were waited for."""
    waited: list[float] = []
    monkeypatch.setattr(local_file, "sleep", waited.append)
    return waited


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set what a process may open."""
    gc.collect()  # sources of other tests
    return lambda soft: monkeypatch.setattr(shard_files, "open_files", lambda: (soft, soft))


class Exhausted:
    """`os.open` that fails for these paths, so many times."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, number: int, times: float, suffix: str
    ) -> None:
        self.failed = 0
        real = os.open

        def fails(path: Any, flags: int, *mode: int, **options: Any) -> int:
            if os.fsdecode(path).endswith(suffix) and self.failed < times:
                self.failed += 1
                raise OSError(number, os.strerror(number), path)
            return real(path, flags, *mode, **options)

        monkeypatch.setattr(descriptors.os, "open", fails)


@pytest.mark.parametrize(
    ("soft", "expected"), [(1024, 512), (64, 32), (8, 16), (1 << 20, 4096), (-1, 4096)]
)
def test_the_budget_is_half_of_the_limit(
    soft: int, expected: int, limit: Callable[[int], None]
) -> None:
    limit(soft)
    assert shard_files.budget() == expected


def test_all_sources_share_one_budget(tmp_path: Path, limit: Callable[[int], None]) -> None:
    limit(64)
    before = shard_files.open_count()
    record_folder(tmp_path, (1,) * 30)
    sources = [ff.TFRecords(f"{tmp_path}/*.tfrecord") for _ in range(6)]
    read = [source.read(range(30)) for source in sources]
    assert all(isinstance(sample, bytes) for samples in read for sample in samples)
    assert shard_files.open_count() - before <= 32
    addresses = [source.addresses(np.arange(30)) for source in sources]
    assert shard_files.open_count() - before <= 32
    assert len(addresses) == 6
    mixture = ff.Mixture({str(k): source for k, source in enumerate(sources)})
    with ff.Feed(mixture, [ff.Resize((8, 8))], batch=30, on_bad="raise") as feed:
        for _ in feed:
            assert shard_files.open_count() - before <= 32


def test_a_read_without_room_leaves_no_file_open(
    tmp_path: Path, limit: Callable[[int], None]
) -> None:
    """Threads still read from all files that may be open, so none of them can be closed."""
    limit(64)
    before = shard_files.open_count()
    record_folder(tmp_path, (1,) * 30)
    sources = [ff.TFRecords(f"{tmp_path}/*.tfrecord") for _ in range(3)]
    in_use = [source.addresses(np.arange(14)) for source in sources[:2]]
    assert shard_files.open_count() - before >= 28 and len(in_use) == 2
    for row in range(30):
        assert isinstance(sources[2].read([row])[0], bytes)
        assert shard_files.open_count() - before <= 32


def test_files_that_another_thread_is_opening_count(
    tmp_path: Path, limit: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads that find room for 20 files of 32 do not both open theirs."""
    limit(64)
    record_folder(tmp_path, (1,) * 30)
    first, second = (ff.TFRecords(f"{tmp_path}/*.tfrecord") for _ in range(2))
    before = shard_files.open_count()
    is_opening, is_released = threading.Event(), threading.Event()

    def slow(path: str) -> shard_files.OpenFile:
        is_opening.set()
        assert is_released.wait(20)
        return open_file(path)

    open_file = shard_files.OpenFile
    monkeypatch.setattr(shard_files, "OpenFile", slow)
    opened: list[Any] = []
    thread = threading.Thread(target=lambda: opened.append(first.addresses(np.arange(20))))
    thread.start()
    assert is_opening.wait(20)
    left = second.addresses(np.arange(20))
    is_released.set()
    thread.join()
    assert left is not None and (left.handles == -1).all()
    assert (opened[0].handles >= 0).all()
    assert shard_files.open_count() - before == 20


def test_a_file_in_use_stays_open(tmp_path: Path, limit: Callable[[int], None]) -> None:
    limit(64)
    source = ff.TarShards(shard_folder(tmp_path / "a", (1,) * 12))
    addresses = source.addresses(np.arange(12))
    assert addresses is not None
    assert (addresses.handles >= 0).all()
    assert shard_files._close()
    assert [os.fstat(handle).st_size for handle in addresses.handles] == addresses.sizes.tolist()
    assert not source._shards._files


def test_a_source_that_is_gone_holds_nothing(tmp_path: Path) -> None:
    before = shard_files.open_count()
    source = ff.TarShards(shard_folder(tmp_path / "a", (1,) * 5))
    source.read(range(5))
    assert shard_files.open_count() > before
    del source
    gc.collect()
    assert shard_files.open_count() == before


def test_indexes_of_very_many_sources_hold_no_files(
    tmp_path: Path, limit: Callable[[int], None]
) -> None:
    limit(32)
    before = shard_files.open_count()
    shard_folder(tmp_path / "a", (3,))
    sources = [ff.TarShards(tmp_path / "a", label=None) for _ in range(30)]
    assert shard_files.open_count() <= max(before, 8)
    assert all(source.uri(2).endswith(":000002.jpg") for source in sources)
    assert [source.fingerprint for source in sources] == [sources[0].fingerprint] * 30


SOURCES: dict[str, Callable[[Path], Any]] = {
    "folder": lambda root: ff.ImageFolder(folder(root / "p", {"a": 4})),
    "tar": lambda root: ff.TarShards(shard_folder(root, (2, 2))),
    "records": lambda root: ff.TFRecords(record_folder(root, (2, 2))),
    "columns": lambda root: ff.TarShards(shard_folder(root, (2, 2)), label=None, columns=["cls"]),
}
SUFFIX = {"folder": ".jpg", "tar": ".tar", "records": ".tfrecord", "columns": ".tar"}


def failing_natively(source: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where native threads cannot open a file either: they leave it to Python."""
    monkeypatch.setattr(source, "addresses", lambda ids: None, raising=False)


@pytest.mark.parametrize(
    ("kind", "number"), in_turn(SOURCES, [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
)
def test_a_lack_that_passes_costs_no_sample(
    kind: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    source = SOURCES[kind](tmp_path / "s")
    failing_natively(source, monkeypatch)
    opens = Exhausted(monkeypatch, number, 3, SUFFIX[kind])
    with ff.Feed(source, [ff.Resize((8, 8))], batch=4, shuffle=False, threads=1) as feed:
        batch = next(iter(feed))
        assert feed.stats().bad == ()
    assert opens.failed == 3
    assert sorted(batch.ids.tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("kind", "how"),
    in_turn(
        SOURCES,
        [(errno.EMFILE, "substitute"), (errno.ENFILE, "mask"), (errno.ENOMEM, "substitute")],
    ),
)
def test_a_lack_that_lasts_ends_the_run_with_an_error_that_says_so(
    kind: str,
    how: tuple[int, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pauses: list[float],
) -> None:
    number, on_bad = how
    source = SOURCES[kind](tmp_path / "s")
    failing_natively(source, monkeypatch)
    opens = Exhausted(monkeypatch, number, float("inf"), SUFFIX[kind])
    with ff.Feed(
        source, [ff.Resize((8, 8))], batch=4, shuffle=False, on_bad=on_bad, threads=1
    ) as feed:
        with pytest.raises(StorageError, match="no sample is listed as bad for it: ") as caught:
            next(iter(feed))
        assert caught.value.errno == number
        assert feed.stats().bad == ()
        opens.failed = -(10**9)  # it has passed: the run continues with the same batch
        monkeypatch.undo()
        assert len(next(iter(feed))) == 4
    assert 0 < sum(pauses) < 60


def test_other_errors_do_not_wait(tmp_path: Path, pauses: list[float]) -> None:
    assert local_file.read_file(str(tmp_path / "none.jpg")) == Unread("not_found")
    assert pauses == []


def test_idle_shards_give_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    source = ff.TarShards(shard_folder(tmp_path / "a", (1,) * 5))
    source.read(range(5))
    assert len(source._shards._files) == 5
    Exhausted(monkeypatch, errno.EMFILE, 1, ".jpg")
    (tmp_path / "a.jpg").write_bytes(jpeg(0))
    assert local_file.read_file(str(tmp_path / "a.jpg")) == jpeg(0)
    assert (len(source._shards._files), pauses) == (0, [])


def test_a_scan_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of([("0.jpg", jpeg(0))]))
    Exhausted(monkeypatch, errno.EMFILE, float("inf"), ".tar")
    with pytest.raises(StorageError, match=r"cannot open .*a\.tar: .*`ulimit -n`") as caught:
        ff.TarShards(tmp_path / "a.tar", label=None)
    assert not isinstance(caught.value, SourceError)


def test_connections_that_find_no_descriptor() -> None:
    """Over a network the error itself is raised, after all attempts; any other is a reason for the
    sample.
    """
    import asyncio

    from fastfeed.storage.clients import explain

    def read(number: int) -> Any:
        async def request() -> bytes:
            raise OSError(number, os.strerror(number))

        async def pause(seconds: float) -> None:
            return None

        policy = RetryPolicy(attempts=3, hedge=False)
        return asyncio.run(retry.retry(request, 10, explain, policy, None, pause))

    with pytest.raises(OSError, match="open files"):
        read(errno.EMFILE)
    assert read(errno.EIO).reason == "io_error"


_PROGRAM = """
import sys
{first}
import fastfeed as ff
source = ff.TarShards({shards!r}, label=None)
with ff.Feed(source, [ff.Resize((8, 8))], batch=2) as feed:
    list(feed)
kept = source.addresses
"""


@pytest.mark.parametrize(
    "first",
    [
        "sys.modules['held'] = type(sys)('held')",
        *(pytest.param(line, marks=pytest.mark.slow) for line in ("", "import atexit, threading")),
    ],
)
def test_a_program_ends_without_noise(first: str, tmp_path: Path) -> None:
    code = _PROGRAM.format(first=first, shards=f"{shard_folder(tmp_path, (2, 2))}/*.tar")
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stderr == ""


def test_a_file_closes_when_its_module_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the interpreter ends: names of modules are None by then."""
    (tmp_path / "a").write_bytes(b"a")
    file = shard_files.OpenFile(tmp_path / "a")
    fd = file.fd
    for name in list(vars(shard_files)):
        if not name.startswith("__"):
            monkeypatch.setitem(vars(shard_files), name, None)
    del file
    gc.collect()
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.fstat(fd)


def test_many_threads_open_and_close(tmp_path: Path, limit: Callable[[int], None]) -> None:
    limit(32)
    sources = [ff.TarShards(shard_folder(tmp_path / str(k), (1,) * 10)) for k in range(4)]
    expected = [source.read(range(10)) for source in sources]
    wrong: list[int] = []

    def read(k: int) -> None:
        for _ in range(5):
            if sources[k % 4].read(range(10)) != expected[k % 4]:
                wrong.append(k)

    threads = [threading.Thread(target=read, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.fixture(autouse=True)
def no_warnings_left() -> Iterator[None]:
    yield
    gc.collect()
