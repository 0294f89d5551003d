"""device="cuda": the engine's images on a stand-in for a GPU, within its rounding of the CPU's."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from helpers.cuda_on_cpu import needs_compiler
from helpers.late_nvjpeg import install
from helpers.photos import broken, jpeg, picture

import fastfeed as ff
from fastfeed.errors import ConfigError, MissingExtra

OPS = [ff.RandomResizedCrop(24, scale=(0.5, 1)), ff.RandomFlip(), ff.ToLayout("CHW")]
FILES = [jpeg(seed, (60 + seed, 70)) for seed in range(4)]


@needs_compiler
def test_items_become_arrays_of_the_gpu(monkeypatch: Any, tmp_path: Any) -> None:
    fake, _ = install(monkeypatch)
    path = tmp_path / "a.jpg"
    path.write_bytes(FILES[3])
    items = [FILES[0], picture(5), broken("truncated"), FILES[1], 3.5, path, picture(6)]
    ids = range(7, 7 + len(items))
    fields = {"label": list(range(7)), "boxes": [[[1, 1, 9, 9]]] * 7, "box_labels": [[0]] * 7}
    with ff.Transform(OPS, seed=3, threads=2) as transform:
        want = transform(items, ids=ids, fields=fields)
    with ff.Transform(OPS, seed=3, threads=2, device="cuda") as transform:
        got = transform(items, ids=ids, fields=fields)
        files = transform(FILES[:2], ids=[7, 10])
        again = transform(FILES[2:], ids=[7, 10])
        one = transform.one(FILES[0], id=7)
    assert fake["decoded"] == 8 and not isinstance(got.images, np.ndarray)
    images = got.images.get()
    assert np.abs(images.astype(int) - want.images).max() <= 3
    assert got.bad.keys() == want.bad.keys() and got.weights.tolist() == want.weights.tolist()
    assert not images[[2, 4]].any() and got.labels.tolist() == list(range(7))
    assert np.array_equal(got.objects.boxes, want.objects.boxes)
    assert np.array_equal(files.images.get(), images[[0, 3]]), "it is not overwritten"
    assert np.array_equal(one.get(), images[0]) and not np.array_equal(again.images.get(), images)


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    transform = ff.Transform(OPS, device="cuda", threads=1)
    with pytest.raises(MissingExtra, match="CuPy"):
        transform([FILES[0]], ids=[0])
    for options, text in (
        ({"decode": "native"}, "decodes files by the JPEG engine, got decode='native'"),
        ({"input_spec": ff.Spec((8, 8, 3), "uint8", "HWC")}, "decodes files by the JPEG engine"),
        ({"ops": [*OPS, ff.Map(len, "image", out="x")]}, "keeps images on the GPU, where a Map"),
        ({"device": "tpu"}, 'device must be "cpu" or "cuda"'),
    ):
        with pytest.raises(ConfigError, match=text):
            ff.Transform(**({"ops": OPS, "device": "cuda"} | options))
