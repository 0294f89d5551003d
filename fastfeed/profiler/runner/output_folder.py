"""The folder of a recording: its name, and files that an earlier run left."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from fastfeed.errors import ConfigError
from fastfeed.profiler.runner.settings import launcher_rank

_OURS = re.compile(
    r"(trace|rank(?P<rank>\d+)|pid\d+)(\.\d+)?\.(qdstrm|nsys-rep|qdrep|sqlite|nvprof|notes|torch\.json\.gz|xplane\.pb)"
    r"|timeline(\.rank(?P<feed>\d+))?\.jsonl|report\.html"
)
_PAGE = b"<title>Why is this GPU idle"
# a header, or a record
_TIMELINE = re.compile(rb'"fastfeed_timeline"|^\["[^"\n]{1,80}",\s*"(span|anchor)",')


def check_previous(out: Path, rank: int | None) -> None:
    """Raise ConfigError if this run would replace files of others with names of ours."""
    foreign = [path for path in _previous(out, rank) if not _is_own(path)]
    if foreign:
        named = ", ".join(path.name for path in foreign[:3]) + ", ..." * (len(foreign) > 3)
        raise ConfigError(
            f"{out} has {named}, which fastfeed profile would replace and did not write; name"
            " another folder with --out, or add --force"
        )


def remove_previous(out: Path, rank: int | None) -> None:
    """Remove files of an earlier run: two runs must not be taken for ranks of one."""
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
    """True for files that this package wrote: pages and timelines name their writer.

    Recordings do not, but no other program gives files these names. The exception is an export,
    which counts if its recording is next to it.
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


def free_folder(environ: Mapping[str, str]) -> Path:
    """A folder for a run that names none.

    All ranks of a job get the same, runs at a desk a new one each.
    """
    first = Path("fastfeed-profile").absolute()
    job = environ.get("SLURM_JOB_ID") or environ.get("TORCHELASTIC_RUN_ID")
    if launcher_rank(environ) is not None:
        return first.with_name(f"{first.name}-{job}") if job and job != "none" else first
    count = 1
    while (folder := first if count == 1 else first.with_name(f"{first.name}-{count}")).exists():
        count += 1
    return folder


def prepare_folder(out: Path) -> None:
    """Make the folder, and be sure that it can be written."""
    probe = out / f".fastfeed-{os.getpid()}"
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"x")
        probe.unlink()
    except OSError as error:
        full = " or free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise ConfigError(
            f"cannot write a recording into {out}: {error.strerror}; name another folder with"
            f" --out{full}"
        ) from error
