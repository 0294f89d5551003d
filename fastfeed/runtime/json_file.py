"""Files that users save and load: replaced atomically; JSON is read with care for its content."""

from __future__ import annotations

import errno
import json
import math
import os
from collections import Counter
from typing import Any

from fastfeed.errors import ConfigError
from fastfeed.runtime.atomic_write import atomic_write
from fastfeed.system.descriptors import open_regular

_UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR)
_INTEGERS = 1 << 63  # what NumPy holds
MOST_OBJECTS = 4 * 10**9  # bytes, of an index or a record
_VALUE = 96  # bytes of an object, and of its place in a list or dict


def save_file(
    path: str | os.PathLike[str], content: bytes, what: str, failed: type[ConfigError]
) -> None:
    """Write a file of a user, committed by atomic rename after fsync.

    what: its content, for messages, such as "state". failed: error for a path that cannot be
    written; others, such as a full disk, are OSErrors.
    """
    path = os.fspath(path)
    try:
        with atomic_write(path, sync_parent=True) as file:
            file.write(content)
    except FileNotFoundError:
        folder = os.path.dirname(path) or "."
        raise failed(
            f"cannot save a {what} to {path}: no folder {folder}; create it first"
        ) from None
    except OSError as error:
        if error.errno not in _UNWRITABLE:  # a full disk is not about the path
            raise
        raise failed(
            f"cannot save a {what} to {path}: {error.strerror}; pass a file in a folder that can be"
            " written"
        ) from error


def load_json(
    path: str | os.PathLike[str], what: str, writer: str, failed: type[ConfigError], most: int
) -> dict[str, Any]:
    """Read a JSON object of at most `most` bytes whose names are unique and whose numbers finite.

    what: its content, for messages. writer: the function that writes such files. failed: error for
    a file that cannot be read or holds anything else.
    """
    advice = f"; pass what {writer} wrote"
    try:
        with open(open_regular(path), "rb") as file:
            content = file.read(most + 1)
        if len(content) > most:
            raise ValueError(f"more than {most:,} bytes")
        document = json.loads(
            content,
            object_pairs_hook=_object,
            parse_constant=_refused,
            parse_float=_finite,
            parse_int=_integer,
        )
    except OSError as error:
        raise failed(f"cannot read a {what} from {path}: {error.strerror}{advice}") from error
    except (ValueError, RecursionError) as error:
        raise failed(f"{path} is not a saved {what}: {error}{advice}") from error
    if not isinstance(document, dict):
        raise failed(f"{path} is not a saved {what}: got {type(document).__name__}{advice}")
    return document


def parse_json(data: bytes) -> Any:
    """Parse JSON from elsewhere. ValueError, also if it would take more than `MOST_OBJECTS`."""
    if (needed := object_bytes(data)) > MOST_OBJECTS:
        raise ValueError(
            f"it takes {needed:,} bytes of memory as objects, the limit is {MOST_OBJECTS:,}"
        )
    return json.loads(data)


def object_bytes(data: bytes) -> int:
    """Bytes that JSON takes as Python objects, and while it is parsed: an upper bound, or nearly.

    A text outside of ASCII may take four bytes for each of its characters.
    """
    values = sum(map(data.count, (b",", b":", b"[", b"{")))
    return (2 if data.isascii() else 5) * len(data) + _VALUE * values


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"it has {twice!r} twice")
    return values


def _refused(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refused(text)


def _integer(text: str) -> int:
    if len(text) > 20 or not -_INTEGERS <= int(text) < _INTEGERS:
        raise ValueError(f"{text} has more than 64 bits")
    return int(text)
