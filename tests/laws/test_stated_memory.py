"""The memory of a batch that `print(feed)` states is the memory that its arrays take."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastfeed as ff
from fastfeed.printable import format_size

N = 32
IMAGES = np.zeros((N, 40, 40, 3), np.uint8)
MANY = [f"c{i}" for i in range(81_313)]


def located() -> ff.Objects:
    boxes = [[[1.0, 2.0, 20.0, 30.0]] * (i % 400) for i in range(N)]
    return ff.Objects(ff.Arrays(IMAGES), boxes, masks=[np.zeros((40, 40), np.uint8)] * N)


def table(folder: Path) -> ff.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from helpers.photos import jpeg

    data: dict[str, Any] = {
        "image": [jpeg(i) for i in range(N)],
        "label": list(range(N)),
        "text": ["a text"] * N,
    }
    data["vector"] = pa.array(np.ones((N, 3000), np.float32).tolist(), pa.list_(pa.float32(), 3000))
    data["score"] = np.ones(N, np.float64)
    pq.write_table(pa.table(data), folder / "t.parquet")
    return ff.Table(
        folder / "t.parquet", image="image", label="label", columns=["vector", "score", "text"]
    )


FEEDS = {
    "bytes": lambda _: (ff.Arrays(IMAGES), []),
    "floats": lambda _: (ff.Arrays(IMAGES), [ff.ToFloat()]),
    "soft labels": lambda _: (
        ff.Arrays(IMAGES, np.arange(N), classes=MANY),
        [ff.OneHot(), ff.ToFloat("float16")],
    ),
    "mixed labels": lambda _: (ff.Arrays(IMAGES, np.arange(N), classes=MANY), [ff.MixUp()]),
    "boxes and masks": lambda _: (located(), [ff.RandomFlip()]),
    "mixed boxes": lambda _: (located(), [ff.Mosaic()]),
    "views": lambda _: (ff.Arrays(IMAGES), [ff.MultiCrop((ff.View(32, 2), ff.View(16, 6)))]),
    "columns": lambda folder: (table(folder), [ff.Resize((40, 40))]),
}


def arrays(value: Any) -> Iterator[np.ndarray]:
    if isinstance(value, np.ndarray):
        yield value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from arrays(getattr(value, field.name))
    elif isinstance(value, (tuple, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from arrays(part)


@pytest.mark.parametrize("kind", FEEDS)
def test_what_is_stated_is_taken(kind, tmp_path):
    source, ops = FEEDS[kind](tmp_path)
    with ff.Feed(source, ops, batch=16, threads=1, prefetch=1) as feed:
        text = str(feed)
        batch = next(iter(feed))
    different = {id(array): array for array in arrays(batch)}  # views[0] is images
    taken = sum(array.nbytes for array in different.values())
    stated = re.search(r"a batch is .*, ([\d.]+ \w+); at most 3 in .* \(([\d.]+ \w+)\)", text)
    assert stated is not None, text
    assert (stated[1], stated[2]) == (format_size(taken), format_size(3 * taken))
    for array in different.values():
        if array.nbytes > 0.05 * taken:
            assert f"{array.dtype}[{', '.join(map(str, array.shape))}]" in text, (
                "each large array is named"
            )


def test_columns_of_unknown_size_are_named(tmp_path):
    with ff.Feed(table(tmp_path), [ff.Resize((8, 8))], batch=4) as feed:
        assert "vector float32[4, 3000]" in str(feed)
        assert "text str[4]" in str(feed)


@pytest.mark.parametrize("kind", ["soft labels", "boxes and masks"])
def test_a_device_holds_what_is_placed_there(kind, tmp_path):
    pytest.importorskip("torch", reason="needs torch")
    source, ops = FEEDS[kind](tmp_path)
    with ff.Feed(source, ops, batch=16, threads=1, prefetch=1) as feed:
        batch = next(iter(ff.prefetch_to_device(feed, "cpu")))
        objects = (
            (batch.objects.boxes, batch.objects.labels, batch.objects.counts)
            if batch.objects
            else ()
        )
        placed = [
            batch.images,
            batch.labels,
            batch.weights,
            *objects,
            *([] if batch.masks is None else [batch.masks]),
        ]
        size = 3 * sum(tensor.numel() * tensor.element_size() for tensor in placed)
        assert f"placed on torch cpu: at most 3 batches, {format_size(size)}" in str(feed)
