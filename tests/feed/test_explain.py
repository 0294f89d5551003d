"""`print(feed)`: the user's list, the fused plan, the decode path and the spec after each stage."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.photos import folder

from fastfeed.distributed.world import World
from fastfeed.errors import ConfigError
from fastfeed.feed.explain import short
from fastfeed.feed.feed import Feed
from fastfeed.ops import (
    CenterCrop,
    Decode,
    Function,
    Invert,
    Maybe,
    Normalize,
    OneOf,
    RandomFlip,
    RandomResizedCrop,
    Resize,
    ToFloat,
    ToLayout,
)
from fastfeed.sources import Arrays, ImageFolder


@pytest.mark.parametrize(
    ("op", "text"),
    [
        (Decode(), "Decode()"),
        (Decode(matte=(0, 0, 0)), "Decode(matte=(0, 0, 0))"),
        (Resize(256), "Resize(256)"),
        (Resize((2, 3), "box"), "Resize((2, 3), filter='box')"),
        (CenterCrop(224), "CenterCrop(224)"),
        (RandomResizedCrop(224, scale=(0.5, 1.0)), "RandomResizedCrop(224, scale=(0.5, 1.0))"),
        (RandomFlip(), "RandomFlip()"),
        (RandomFlip(0.1), "RandomFlip(p=0.1)"),
        (ToFloat(), "ToFloat()"),
        (ToLayout("CHW"), "ToLayout('CHW')"),
        (Normalize.imagenet(), "Normalize.imagenet()"),
        (Normalize((0.5,), (0.25,)), "Normalize((0.5,), (0.25,))"),
    ],
)
def test_short_is_what_a_user_would_write(op, text):
    assert short(op) == text
    names = [
        Decode,
        Resize,
        CenterCrop,
        RandomResizedCrop,
        RandomFlip,
        ToFloat,
        ToLayout,
        Normalize,
    ]
    assert eval(text, {kind.__name__: kind for kind in names}) == op


def test_files(tmp_path):
    root = folder(tmp_path / "photos", {"a": 10, "b": 10})
    ops = [RandomResizedCrop(224), RandomFlip(), Normalize.imagenet(), ToLayout("CHW")]
    feed = Feed(
        ImageFolder(root),
        ops,
        batch=8,
        threads=2,
        quarantine=tmp_path / "bad.jsonl",
        decode="pillow",
    )
    assert (
        str(feed)
        == f"""\
Feed from ImageFolder({str(root)!r}): 20 images of 2 classes
  batch 8, 2 steps per epoch, shuffle full, tail drop, seed 0
  2 threads, 2 batches ahead, bad samples: substitute, listed in {tmp_path / "bad.jsonl"}
  you wrote
    Decode()  (added automatically)  HWC uint8[?, ?, 3]
    RandomResizedCrop(224)           HWC uint8[224, 224, 3]
    RandomFlip()                     HWC uint8[224, 224, 3]
    Normalize.imagenet()             HWC float32[224, 224, 3]
    ToLayout('CHW')                  CHW float32[3, 224, 224]
  runs as
    read     bytes                                                    encoded bytes
    decode   RandomResizedCrop + RandomFlip, one bilinear resampling  HWC uint8[224, 224, 3]
    convert  scale and offset by table                                CHW float32[3, 224, 224]
    on pillow -> native threads
  a batch is float32[8, 3, 224, 224], 4.8 MB; at most 4 in memory (19.3 MB)
  its fields: image float32[8, 3, 224, 224], label int64[8], weight float32[8], id int64[8]
  decoding holds at most 2.0 GiB at once (an image that needs more is decoded alone), encoded files 101 MB"""
    )
    with pytest.warns(DeprecationWarning, match=r"use str\(feed\)"):
        assert str(feed) == feed.explain()
    assert (
        repr(feed) == f"Feed(ImageFolder({str(root)!r}): 20 images of 2 classes, batch=8, steps=2)"
    )


def test_arrays_on_two_ranks():
    images = np.zeros((100, 32, 32, 3), np.uint8)
    feed = Feed(
        Arrays(images),
        [],
        batch=10,
        threads=1,
        prefetch=0,
        world=World(1, 2),
        shuffle=False,
        tail="pad",
    )
    assert (
        str(feed)
        == """\
Feed from Arrays: 100 images, HWC uint8[32, 32, 3]
  batch 10, rank 1 of 2 (global 20), 5 steps per epoch, shuffle none, tail pad, seed 0
  1 thread, 0 batches ahead, bad samples: substitute
  you wrote
  runs as
    read  arrays                                HWC uint8[32, 32, 3]
    cut   whole image, one bilinear resampling  HWC uint8[32, 32, 3]
    on pixels -> native threads
  a batch is uint8[10, 32, 32, 3], 30.9 kB; at most 2 in memory (61.8 kB)
  its fields: image uint8[10, 32, 32, 3], label int64[10], weight float32[10], id int64[10]"""
    )


def stamped(image, numbers):
    image[:2, :2] = 0
    return image


def test_functions_run_in_python():
    images = np.zeros((100, 32, 32, 3), np.uint8)
    ops = [stamped, Invert(), OneOf([Function(stamped, draws=1), Invert()]), Maybe(stamped)]
    lines = str(Feed(Arrays(images), ops, batch=10)).splitlines()
    assert [
        line[10:].split("  ")[1].strip() for line in lines if line.startswith("    change")
    ] == [
        "Function: Function(stamped), yours, in Python",
        "Invert",
        "OneOf: Function(stamped, draws=1), yours, in Python",
        "Maybe: Function(stamped), yours, in Python",
    ]
    assert (
        "    on pixels -> native threads; in Python: Function(stamped), Function(stamped, draws=1)"
        in lines
    )


@pytest.mark.parametrize("decode", ["auto", "pillow"])
def test_without_the_native_extension_no_feed_starts(tmp_path, monkeypatch, decode):
    monkeypatch.setattr("fastfeed.decode.native.is_built", lambda: False)
    files = ImageFolder(folder(tmp_path / "photos", {"a": 10}))
    arrays = Arrays(np.zeros((10, 8, 8, 3), np.uint8))
    for source in (files, arrays):
        with pytest.raises(
            ConfigError,
            match="decoding needs the native extension, which this installation lacks: install a",
        ):
            Feed(source, [CenterCrop(4)], batch=5, decode=decode if source is files else "auto")
