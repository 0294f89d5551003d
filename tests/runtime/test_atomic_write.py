"""Files that are replaced as a whole, or not at all."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fastfeed.runtime.atomic_write import atomic_write
from fastfeed.system.folders import sync_folder

KILLED = """
import os, sys
from fastfeed.runtime.atomic_write import atomic_write
setattr(os, sys.argv[2], lambda *_: os._exit(9))
with atomic_write(sys.argv[1]) as file:
    file.write(b"new")
"""


def write(path: Path, content: bytes, **options: bool | int) -> None:
    with atomic_write(path, **options) as file:  # type: ignore[arg-type]
        file.write(content)


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_the_content_appears_at_the_end(tmp_path: Path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with atomic_write(path) as file:
        file.write(b"....new")
        file.seek(0)
        file.write(b"very")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"verynew"
    assert names(tmp_path) == ["a.bin"]


@pytest.mark.parametrize(("hidden", "prefix"), [(False, "a.bin."), (True, ".a.bin.")])
def test_the_temporary_name(tmp_path: Path, hidden: bool, prefix: str):
    with atomic_write(tmp_path / "a.bin", hidden=hidden):
        (name,) = names(tmp_path)
        assert name.startswith(prefix)
        assert name.endswith(".new")


@pytest.mark.parametrize(
    ("umask", "mode", "expected"),
    [
        (0o022, 0o666, 0o644),
        (0o077, 0o666, 0o600),
        (0o002, 0o666, 0o664),
        (0o022, 0o600, 0o600),
        (0, 0o644, 0o644),
    ],
)
def test_permissions_heed_the_umask(tmp_path: Path, umask: int, mode: int, expected: int):
    before = os.umask(umask)
    try:
        write(tmp_path / "a.bin", b"x", mode=mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.bin").stat().st_mode) == expected


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_kill_leaves_the_old_file(tmp_path: Path, step: str):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    assert subprocess.run([sys.executable, "-c", KILLED, path, step], check=False).returncode == 9
    assert path.read_bytes() == b"old"
    draft = next(name for name in names(tmp_path) if name != "a.bin")
    assert draft.startswith("a.bin.")
    assert draft.endswith(".new")
    write(path, b"newer")
    assert path.read_bytes() == b"newer"


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()]
)
def test_an_error_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(type(error)):
        write(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a.bin"]


def test_an_error_in_the_block_leaves_the_old_file_alone(tmp_path: Path):
    path = tmp_path / "a.bin"
    with pytest.raises(ZeroDivisionError), atomic_write(path) as file:
        file.write(b"new")
        1 / 0  # noqa: B018
    assert names(tmp_path) == []


def test_a_full_disk(tmp_path: Path):
    """The system's own limit of a file's size stands in for it."""
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    limited = f"""
import resource, signal
from fastfeed.runtime.atomic_write import atomic_write
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    with atomic_write({str(path)!r}) as file:
        for _ in range(100):
            file.write(bytes(10_000))
except OSError as error:
    print(error.errno)
"""
    result = subprocess.run(
        [sys.executable, "-c", limited], check=True, capture_output=True, text=True
    )
    assert int(result.stdout) == errno.EFBIG
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a.bin"]


def test_a_missing_folder(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "none" / "a.bin", b"x")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder(tmp_path: Path):
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(PermissionError):
            write(tmp_path / "a.bin", b"x")
    finally:
        tmp_path.chmod(0o755)


@pytest.mark.parametrize("sync_parent", [False, True])
def test_the_folder_is_synced_after_the_rename_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync_parent: bool
):
    path, synced = tmp_path / "a.bin", []
    fsync = os.fsync

    def watch(fd: int) -> None:
        synced.append((stat.S_ISDIR(os.fstat(fd).st_mode), path.exists()))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", watch)
    write(path, b"x", sync_parent=sync_parent)
    assert synced == [(False, False), (True, True)][: 1 + sync_parent]


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP, errno.EIO])
def test_folders_that_cannot_be_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int):
    def fail(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    if code == errno.EIO:
        with pytest.raises(OSError, match="Input/output"):
            sync_folder(tmp_path)
    else:
        sync_folder(tmp_path)
