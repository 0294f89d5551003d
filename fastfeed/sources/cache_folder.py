"""Cache folder for indexes of shards, columns of tables and headers of images, and its limit."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from fastfeed.errors import ConfigError
from fastfeed.storage.byte_sizes import in_bytes
from fastfeed.system.folders import private_folder
from fastfeed.system.locks import lock
from fastfeed.system.processes import user

# suffixes by folder; nothing else is counted or removed
_KINDS = {"index": ".ffindex", "tables": ".ffarrays", "headers": ".ffheaders"}


def cache_folder() -> Path:
    """FASTFEED_CACHE, or fastfeed in the user's cache folder.

    ConfigError if others may write to it.
    """
    own = os.environ.get("FASTFEED_CACHE")
    if own:
        return Path(own)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fastfeed"
    except RuntimeError:  # a user without a home, as in some containers
        folder = os.path.join(tempfile.gettempdir(), f"fastfeed-{user()}")
    try:
        return Path(private_folder(folder))
    except OSError as error:
        raise ConfigError(
            "this user has no home folder, and the folder for temporary files cannot hold the"
            f" cache: {error}; set FASTFEED_CACHE to a folder of yours",
            field="FASTFEED_CACHE",
        ) from error


def cache_limit() -> int:
    """Bytes that it may hold: FASTFEED_CACHE_LIMIT, such as "5GB"; 20 GB without. ConfigError."""
    return in_bytes(os.environ.get("FASTFEED_CACHE_LIMIT") or "20GB", "FASTFEED_CACHE_LIMIT")


def cache_size(folder: Path) -> int:
    """Bytes of indexes, tables and headers in it."""
    return sum(size for _, size, _ in _files(folder))


def trim_cache(folder: Path, keep: Path) -> None:
    """Remove the least recently used files above the limit, but never `keep`.

    Processes that have a removed file open can still read it; others build it again.
    """
    files = sorted(_files(folder))
    limit = cache_limit()
    total = sum(size for _, size, _ in files)
    for _, size, path in files:
        if total <= limit:
            return
        if path != keep:
            with suppress(OSError):
                path.unlink()
                total -= size


def _files(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """Last use, size in bytes and path of each cached file."""
    for kind, suffix in _KINDS.items():
        with suppress(OSError), os.scandir(folder / kind) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.name.endswith(suffix) and entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        yield (
                            max(status.st_atime, status.st_mtime),
                            status.st_size,
                            Path(entry.path),
                        )


@contextmanager
def build_lock(*paths: Path) -> Iterator[None]:
    """One process of a machine builds; the others wait for its result.

    Locks the first path that it can.
    """
    with ExitStack() as stack:
        for path in paths:
            with suppress(OSError):  # a read-only folder
                path.parent.mkdir(parents=True, exist_ok=True)
                file = stack.enter_context(open(path.with_suffix(".lock"), "ab"))
                with suppress(OSError):  # a file system without locks
                    lock(file.fileno())
                break
        yield
