"""What a feed refuses at construction, and in which words."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from helpers.feeds import NUMBERS, OPS, feed, numbers, ours

from fastfeed.distributed.world import World
from fastfeed.errors import (
    ConfigError,
    FastfeedError,
    SourceError,
    SpecError,
)
from fastfeed.feed.feed import Feed
from fastfeed.ops import Decode, RandomResizedCrop, Resize, ToFloat
from fastfeed.sources import Arrays, ImageFolder
from fastfeed.spec import Spec

# -- refusals

REFUSED: list[tuple[dict[str, Any], type[FastfeedError], str]] = [
    (
        {"batch": None},
        ConfigError,
        "pass either batch (per rank) or global_batch; got batch=None, global_batch=None",
    ),
    (
        {"global_batch": 8},
        ConfigError,
        "pass either batch (per rank) or global_batch; got batch=8, global_batch=8",
    ),
    ({"batch": 0}, ConfigError, "batch must be an integer >= 1, got 0"),
    (
        {"ops": [Resize((2, 3)), ToFloat("bfloat16")], "backend": "dali"},
        ConfigError,
        'backend="dali" cannot make bfloat16, got HWC bfloat16[2, 3, 3]; use ToFloat("float16"),'
        ' or backend="cpu"',
    ),
    (
        {"world": 3},
        ConfigError,
        "world must be a World such as World(rank=0, size=2) or None, got 3",
    ),
    (
        {"batch": 31},
        ConfigError,
        (
            "the global batch must not exceed the data: got 31 samples per step and 30 samples in"
            ' the source; lower batch, or use tail="pad"'
        ),
    ),
    ({"seed": -1}, ConfigError, "seed must be an integer in [0, 2**64), got -1"),
    (
        {"shuffle": "blocks"},
        ConfigError,
        (
            'shuffle must be "full", "none" or an order, as Blocks(), Balanced(), Weighted() and'
            " Repeated(2) are, got 'blocks'"
        ),
    ),
    ({"tail": "keep"}, ConfigError, 'tail must be "drop" or "pad", got \'keep\''),
    ({"threads": 0}, ConfigError, "threads must be an integer >= 1, got 0"),
    ({"threads": 2.5}, ConfigError, "threads must be an integer >= 1, got 2.5"),
    ({"prefetch": -1}, ConfigError, "prefetch must be an integer >= 0, got -1"),
    (
        {"decode": "opencv"},
        ConfigError,
        (
            "decode must be one of auto, cpu, native, pillow, gpu, hybrid, or a GpuDecode, got"
            " 'opencv'"
        ),
    ),
    ({"backend": "gpu"}, ConfigError, "backend must be one of cpu, dali, nvjpeg, got 'gpu'"),
    (
        {"on_bad": "skip"},
        ConfigError,
        'on_bad must be "substitute", "mask" or "raise", got \'skip\'',
    ),
    (
        {"quarantine": "/nowhere/bad.jsonl"},
        ConfigError,
        "quarantine: no folder /nowhere; create it first",
    ),
    (
        {"ops": [Resize]},
        ConfigError,
        "ops[0] must be an op such as Resize(224), got the class Resize; write Resize(...)",
    ),
    (
        {"ops": [Resize(16), Decode()]},
        SpecError,
        "Resize needs HWC pixels, got encoded bytes; put Decode() before it",
    ),
    (
        {"ops": []},
        SpecError,
        (
            "a batch needs samples of one size, got HWC uint8[?, ?, 3] at the end of the list; "
            "add Resize((height, width)), CenterCrop(size) or RandomResizedCrop(size)"
        ),
    ),
]


@pytest.mark.parametrize(("how", "kind", "text"), REFUSED, ids=lambda value: str(value)[:40])
def test_refuses(photos, how, kind, text):
    with pytest.raises(ConfigError) as error:
        feed(photos, **({"batch": 8, "ops": OPS} | how))
    assert (type(error.value), str(error.value)) == (kind, text)


def test_refuses_a_missing_folder():
    with pytest.raises(
        SourceError, match="ImageFolder: /nowhere/train does not exist; pass the folder that holds"
    ):
        feed(ImageFolder("/nowhere/train"), batch=8)


def test_refuses_a_rank_outside_the_world(photos, monkeypatch):
    monkeypatch.setenv("RANK", "4")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(
        ConfigError,
        match=r"rank must be in \[0, 4\), got 4; pass the global rank, not the local one",
    ):
        feed(photos, batch=8)


@pytest.mark.parametrize(("epoch", "start"), [(-1, 0), (0, -1), (0, 5)])
def test_refuses_positions_outside(epoch, start):
    data = numbers()
    for use in (data.batches, data.seek):
        with pytest.raises(ConfigError) as error:
            use(epoch, start)
        assert (
            str(error.value)
            == f"start must be in [0, 5) and epoch >= 0, got start={start}, epoch={epoch}; this"
            " feed has 5 steps per epoch"
        )


def test_nothing_starts_before_the_first_batch(photos):
    data = feed(photos, batch=8)
    assert str(data) and repr(data) and len(data) and data.stats() and data.state()
    assert not ours()


def test_default_threads_are_shared_by_the_ranks_of_a_machine(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    source = Arrays(NUMBERS)
    got = [
        Feed(source, [], batch=1, world=World(0, size, 0, size)).stats().threads
        for size in (1, 4, 32)
    ]
    assert got == [16, 4, 1]


def test_real_photographs(data: Path):
    source = ImageFolder(data / "flowers5" / "val")
    with feed(source, [RandomResizedCrop(64)], batch=8) as photographs:
        batch = next(iter(photographs))
    assert Spec(batch.images.shape[1:], str(batch.images.dtype), "HWC") == Spec(
        (64, 64, 3), "uint8", "HWC"
    )
    assert len({image.tobytes() for image in batch.images}) == 8


@pytest.mark.parametrize(
    ("source", "got"),
    [
        (None, "NoneType"),
        ("photos", "str"),
        ([1, 2], "list"),
        (ImageFolder, "the class ImageFolder"),
    ],
)
def test_refuses_what_is_no_source(source, got):
    with pytest.raises(ConfigError) as error:
        Feed(source, OPS, batch=2)
    assert (
        str(error.value)
        == "source must be a source such as ImageFolder(path) or Arrays(images, labels), got"
        f" {got}; wrap it in one"
    )
