"""ONNX graphs give the bits of the transform, in the reference evaluator and in ONNX Runtime."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import exported
from helpers.needs import LazyModule, needs
from helpers.op_examples.basic import darker

import fastfeed as ff
from fastfeed.errors import ConfigError, SpecError

pytestmark = needs("onnx")
onnx: Any = LazyModule("onnx")
reference: Any = LazyModule("onnx.reference")
runtime: Any = LazyModule("onnxruntime")

CASES = {name: case for name, *case in exported.cases()}
WHOLE = ff.Transform([ff.CenterCrop(16), ff.Normalize.imagenet()])


def ran(path: Path, images: np.ndarray) -> list[np.ndarray]:
    """Results of all evaluators that are installed."""
    results = reference.ReferenceEvaluator(str(path)).run(None, {"images": images})
    if importlib.util.find_spec("onnxruntime"):
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        results += session.run(["pixels"], {"images": images})
    return results


@pytest.mark.parametrize("name", CASES)
def test_bits_are_those_of_the_transform(name: str, tmp_path: Path):
    ops, size, images = CASES[name]
    ff.Transform(ops).export_onnx(tmp_path / "pixels.onnx", size=size)
    want = exported.expected(ops, images)
    for result in ran(tmp_path / "pixels.onnx", images):
        assert result.dtype == want.dtype and result.tobytes() == want.tobytes()
        assert result.shape == want.shape


def test_gray_images(tmp_path: Path):
    spec = ff.Spec((16, 16, 1), "uint8", "HWC")
    images = exported.LEVELS[..., :1]
    ops = [ff.Grayscale(), ff.Normalize((0.5,), (0.25,))]
    with ff.Transform(ops, input_spec=spec) as transform:
        transform.export_onnx(tmp_path / "pixels.onnx")
        want = transform(list(images)).images
        for result in ran(tmp_path / "pixels.onnx", images):
            np.testing.assert_array_equal(result, want)


def test_any_number_of_images_and_the_ops_in_the_file(tmp_path: Path):
    path = tmp_path / "pixels.onnx"
    WHOLE.export_onnx(path, size=exported.SIZE)
    assert ran(path, np.zeros((5, *exported.SIZE, 3), np.uint8))[0].shape == (5, 16, 16, 3)
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    (properties,) = model.metadata_props
    content = json.loads(properties.value)
    assert properties.key == "fastfeed"
    assert {**content["ops"][0], "op": "CenterCrop", "size": 16} == content["ops"][0]
    assert [opset.version for opset in model.opset_import] == [13]
    WHOLE.export_onnx(tmp_path / "again.onnx", size=exported.SIZE)
    assert (tmp_path / "again.onnx").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("ops", "size", "text"),
    [
        ([ff.RandomResizedCrop(16)], None, r"no random numbers, got RandomResizedCrop.*evaluation"),
        ([ff.Resize((16, 16))], (40, 56), r"Resize\(.* resamples images of 40x56.*leave size out"),
        ([ff.Resize(16), ff.CenterCrop(16)], (40, 56), "Resize.*CenterCrop.* resamples"),
        ([ff.CenterCrop(50)], (40, 56), "CenterCrop.* resamples"),
        ([ff.CenterCrop(16), ff.Invert(), ff.Resize((8, 8))], None, "Resize.*resamples"),
        ([ff.CenterCrop(16), ff.Equalize()], None, r"exact on single pixels .*got Equalize\(\)"),
        ([ff.CenterCrop(16), ff.Saturation((0, 0))], None, "got Saturation"),
        ([ff.CenterCrop(16), ff.Function(darker, draws=0)], None, "got Function"),
        ([ff.CenterCrop(16), ff.Map(darker, "image", out="a")], None, "got Map"),
        ([ff.FiveCrop(16)], None, "got FiveCrop"),
        ([ff.CenterCrop(16)], (0, 3), r"export size must be in \[1, 65535\]"),
        ([ff.CenterCrop(16)], "large", "size must be"),
    ],
)
def test_what_is_not_exact_is_refused_by_name(ops: Any, size: Any, text: str, tmp_path: Path):
    with pytest.raises((ConfigError, SpecError), match=text):
        ff.Transform(ops).export_onnx(tmp_path / "pixels.onnx", size=size)
    assert list(tmp_path.iterdir()) == []


def test_labels_are_left_out(tmp_path: Path):
    ops = [ff.CenterCrop(16), ff.OneHot(3), ff.Invert()]
    ff.Transform(ops).export_onnx(tmp_path / "pixels.onnx")
    (result, *_) = ran(tmp_path / "pixels.onnx", exported.LEVELS)
    np.testing.assert_array_equal(result, 255 - exported.LEVELS)


def test_places_that_cannot_be_written_are_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"cannot save a graph to .*: no folder .*; create it"):
        WHOLE.export_onnx(tmp_path / "nowhere" / "pixels.onnx")
