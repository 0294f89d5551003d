"""Jobs of three images with one column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fastfeed.preprocess import Report, open_input, run
from helpers.photos import jpeg
from helpers.small_jobs import InlineEngine, recipe


def pictures(root: Path) -> list[str]:
    root.mkdir(exist_ok=True, parents=True)
    for row in range(3):
        (root / f"{row}.jpg").write_bytes(jpeg(row, (40, 56)))
    return [f"{row}.jpg" for row in range(3)]


def json_lines(root: Path, values: list[Any]) -> str:
    rows = [{"path": path, "v": v} for path, v in zip(pictures(root), values, strict=False)]
    (root / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return str(root / "t.jsonl")


def one_column(root: Path, place: str, *types: str, format: str = "parquet") -> Report:
    data = open_input(place, columns=["v"], column_types=types)
    return run(data, root / "shards", recipe(format), engine=InlineEngine())
