"""What a job leaves behind, to be compared; and photographs for jobs."""

from __future__ import annotations

import hashlib
from pathlib import Path

from helpers.photos import jpeg


def tree(folder: Path) -> dict[str, str]:
    """sha256 of all files that are the result: not `_job`, nor an index that a reader left."""
    assert not list(folder.glob("_tmp/**/*")), "temporary files are left"
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.relative_to(folder).parts[0] not in ("_job", ".fastfeed")
    }


def photographs(folder: Path, count: int, *, bad: int = 0, size: tuple[int, int] = (90, 120)) -> Path:
    """A folder of JPEGs in two class folders; the last `bad` of them are cut off."""
    for i in range(count):
        content = jpeg(i, size)
        path = folder / f"class{i % 2}" / f"photo{i:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content[: len(content) // 2] if i >= count - bad else content)
    return folder
