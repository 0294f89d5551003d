"""What an earlier run left in the folder of a recording: removed if it is ours, refused if it is
not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from fastfeed.errors import ConfigError

__all__ = ["check_previous", "remove_previous"]

_OURS = re.compile(
    r"(trace|rank(?P<rank>\d+)|pid\d+)(\.\d+)?\.(qdstrm|nsys-rep|qdrep|sqlite|nvprof|notes|torch\.json\.gz|xplane\.pb)"
    r"|timeline(\.rank(?P<feed>\d+))?\.jsonl|report\.html"
)
_PAGE = b"<title>Why is this GPU idle"
# a header, or a record
_TIMELINE = re.compile(rb'"fastfeed_timeline"|^\["[^"\n]{1,80}",\s*"(span|anchor)",')


def check_previous(out: Path, rank: int | None) -> None:
    """ConfigError where this run would replace a file that has the name of one of ours and was
    written by others.
    """
    foreign = [path for path in _previous(out, rank) if not _is_own(path)]
    if foreign:
        named = ", ".join(path.name for path in foreign[:3]) + ", ..." * (len(foreign) > 3)
        raise ConfigError(
            f"{out} has {named}, which fastfeed profile would replace and did not write; name"
            " another folder with --out, or add --force"
        )


def remove_previous(out: Path, rank: int | None) -> None:
    """Remove what an earlier run left in the folder: two runs must not be taken for ranks of
    one.
    """
    for path in [*_previous(out, rank)]:
        path.unlink()


def _previous(out: Path, rank: int | None) -> Iterator[Path]:
    """Files with our names: of a rank its own, and of the first the page, too."""
    for path in out.iterdir():
        match = _OURS.fullmatch(path.name)
        is_of_rank = match and (rank is None or str(rank) in (match["rank"], match["feed"]))
        if is_of_rank or (rank == 0 and path.name == "report.html"):
            yield path


def _is_own(path: Path) -> bool:
    """Pages and timelines say who wrote them.

    Recordings do not: no other program gives them these names, but for an export, which is one of
    our recording if that lies next to it.
    """
    if path.suffix == ".sqlite":
        return any(
            path.with_suffix(suffix).exists() for suffix in (".nsys-rep", ".qdrep", ".qdstrm")
        )
    if path.suffix not in (".html", ".jsonl"):
        return True
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError:  # a folder, or not readable
        return False
    return not head or (
        _PAGE in head if path.suffix == ".html" else _TIMELINE.search(head) is not None
    )
