"""Listings made and read by the tests."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from fastfeed.sources import Storage
from fastfeed.sources.listing.listing import ListingSummary, list_images


def listed(root: object, out: Path, **how) -> ListingSummary:
    return list_images(str(root), str(out), storage=Storage(), **how)


def content(path: Path) -> list[tuple]:
    """(path, class, label, size, version) of every row."""
    if path.suffix == ".parquet":
        parquet = pytest.importorskip(
            "pyarrow.parquet", reason="needs PyArrow: pip install 'fastfeed[parquet]'"
        )
        rows = parquet.read_table(path).to_pylist()
    elif path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            rows = [
                {k: int(v) if k in ("label", "size") else v for k, v in row.items()}
                for row in csv.DictReader(file)
            ]
    else:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        tuple(row[name] for name in ("path", "class", "label", "size", "version")) for row in rows
    ]
