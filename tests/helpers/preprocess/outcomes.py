"""What a job leaves behind, to be compared; and photographs for jobs."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fastfeed.preprocess.model.layout import JOB, RECORDS
from fastfeed.preprocess.targets.job_state import BAD, MANIFEST
from helpers.photos import jpeg


def tree(folder: Path) -> dict[str, str]:
    """sha256 of all files that are the result: of `__job` the records, manifest and list of bad
    ones; no indexes.
    """
    assert not list(folder.glob("__tmp/**/*")), "temporary files are left"
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and _is_result(path.relative_to(folder).as_posix())
    }


def _is_result(path: str) -> bool:
    return path.startswith((RECORDS, MANIFEST, BAD)) or path.partition("/")[0] not in (
        JOB,
        ".fastfeed",
    )


def photographs(
    folder: Path, count: int, *, bad: int = 0, size: tuple[int, int] = (90, 120)
) -> Path:
    """A folder of JPEGs in two class folders; the last `bad` of them are cut off."""
    for i in range(count):
        content = jpeg(i, size)
        path = folder / f"class{i % 2}" / f"photo{i:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content[: len(content) // 2] if i >= count - bad else content)
    return folder
