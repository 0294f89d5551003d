"""Files and rows of a `datasets.Dataset`, which is not imported and whose Python is not run."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fastfeed.errors import ConfigError

# of what was done to a table, what leaves its rows and the names of its columns as they are
_HARMLESS = {"replace_schema_metadata", "select", "drop", "remove_column", "combine_chunks", "cast"}
_SAVE = "save it with dataset.save_to_disk(folder), and pass the folder"


class Block(NamedTuple):
    """Rows [first, first + rows) of a file."""

    path: str
    first: int
    rows: int


def is_dataset(data: Any) -> bool:
    """Return True for a Dataset, or for another kind of it that `blocks_of` refuses."""
    return hasattr(data, "features") and (
        hasattr(data, "cache_files") or hasattr(data, "_ex_iterable")
    )


def blocks_of(dataset: Any) -> tuple[list[Block], np.ndarray | None]:
    """The rows of files that a data set has, and the order of them, int64; None for all.

    ConfigError if it is in memory, streamed, transformed by a function, or has other columns than
    its files.
    """
    if not hasattr(dataset, "cache_files"):
        raise _refused("is streamed", "load it without streaming=True, or pass its hf:// address")
    if (dataset.format or {}).get("type") == "custom":
        raise _refused(
            "has a transform (set_transform, with_transform), which would not be run",
            "take it off with dataset.reset_format() and use ops, or pass it to Mapped",
        )
    table = dataset.data
    rows = getattr(table, "blocks", [[table]])
    blocks = []
    for row in rows:
        if len(row) != 1:
            raise _refused("has columns that were added in memory", _SAVE)
        blocks.append(_block(row[0]))
    indices = getattr(dataset, "_indices", None)
    if indices is None:
        return blocks, None
    return blocks, indices.column(0).to_numpy().astype(np.int64)


def _block(table: Any) -> Block:
    path = getattr(table, "path", None)
    if path is None:
        raise _refused("is in memory", _SAVE)
    first = 0
    for name, arguments, named in table.replays:
        if name == "slice":
            offset, *_ = arguments or (named.get("offset", 0),)
            first += offset
        elif name not in _HARMLESS:
            raise _refused(f"was changed by {name}, which its files do not have", _SAVE)
    return Block(str(path), first, len(table))


def _refused(why: str, instead: str) -> ConfigError:
    return ConfigError(
        f"HuggingFace: a Dataset is read from its files, but this one {why}; {instead}"
    )
