"""Transforms in files: the same pixels after loading, or a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.op_examples.basic import darker, shares
from helpers.photos import jpeg

import fastfeed as ff
from fastfeed.errors import ConfigError
from fastfeed.feed.transform import saved

OPS = [ff.RandomResizedCrop(24), ff.RandomFlip(), ff.ColorJitter(0.4), ff.Normalize.imagenet()]


def written(folder: Path, ops: Any = OPS, **options: Any) -> Path:
    path = folder / "preprocessing.json"
    with ff.Transform(ops, **options) as transform:
        transform.save(path)
    return path


def edited(path: Path, **changes: Any) -> Path:
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value != "gone"}))
    return path


def test_arguments_of_the_pixels_come_back(tmp_path: Path):
    spec = ff.Spec((28, 28, 1), "uint8", "HWC")
    path = written(tmp_path, [ff.OneHot(), ff.Invert()], seed=7, classes=3, input_spec=spec)
    transform = ff.Transform.load(path, threads=1, memory=1 << 30)
    assert transform.ops == [ff.OneHot(), ff.Invert()]
    batch = transform([np.zeros((28, 28, 1), np.uint8)], fields={"label": [2]})
    assert batch.images.max() == 255 and batch.labels.tolist() == [[0, 0, 1]]
    assert json.loads(path.read_text())["seed"] == 7
    assert [*json.loads(path.read_text())["check"]] == ["pixels"], "files are refused"
    transform.close()


def test_the_seed_is_that_of_training(tmp_path: Path):
    path = written(tmp_path, seed=11)
    with ff.Transform(OPS, seed=11) as own, ff.Transform.load(path) as loaded:
        ids = [3, 2**40]
        np.testing.assert_array_equal(
            own([jpeg(0)] * 2, ids=ids, epoch=3).images,
            loaded([jpeg(0)] * 2, ids=ids, epoch=3).images,
        )


def test_the_ops_alone_are_read_and_drawn(tmp_path: Path):
    assert ff.load_ops(written(tmp_path)) == OPS


def test_other_decoders_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = written(tmp_path)
    other = jpeg(1, (72, 96))
    monkeypatch.setattr(saved, "_jpeg", lambda: other)
    with pytest.raises(
        ConfigError, match=r"is not loaded: JPEGs are decoded to other pixels.*decode='native'"
    ):
        ff.Transform.load(path, decode="native")


def test_other_ops_are_refused(tmp_path: Path):
    path = written(tmp_path)
    entries = json.loads(path.read_text())["ops"]
    for name, value in (("scale", [0.1, 1.0]), ("size", 25), ("filter", "box")):
        edited(path, ops=[entries[0] | {name: value}, *entries[1:]])
        with pytest.raises(ConfigError, match="its ops give other pixels here"):
            ff.Transform.load(path)
    edited(path, ops=entries)
    ff.Transform.load(path).close()
    edited(path, seed=1)
    with pytest.raises(ConfigError, match="its ops give other pixels here"):
        ff.Transform.load(path)


def test_views_are_checked_all(tmp_path: Path):
    path = written(tmp_path, [ff.MultiCrop((ff.View(16), ff.View(8, 2))), ff.Invert()])
    ff.Transform.load(path).close()
    assert "check" in json.loads(path.read_text())
    text = path.read_text()
    path.write_text(text.replace('"size": 8', '"size": 9'))
    with pytest.raises(ConfigError, match="its ops give other pixels here"):
        ff.Transform.load(path)


@pytest.mark.parametrize(
    "op",
    [darker, ff.Maybe(darker), ff.Map(shares, "label", out="share")],
    ids=["function", "nested", "map"],
)
def test_functions_are_not_checked_and_the_file_says_so(op: Any, tmp_path: Path):
    path = written(tmp_path, [ff.Resize((8, 8)), op])
    content = json.loads(path.read_text())
    assert content["unchecked"] == "pixels of your functions are not checked"
    assert "check" not in content
    with pytest.raises(ConfigError, match="allow_functions=True"):
        ff.Transform.load(path)
    with ff.Transform.load(path, allow_functions=True) as transform:
        assert transform.ops[1] == ff.Transform([ff.Resize((8, 8)), op]).ops[1]


def test_large_images_are_not_checked_and_cost_no_memory(tmp_path: Path):
    path = written(tmp_path, [ff.Resize((65_535, 65_535)), ff.Invert(), ff.CenterCrop(8)])
    unchecked = json.loads(path.read_text())["unchecked"]
    assert unchecked.startswith("images of 12,884,508,675 values are not checked")
    ff.Transform.load(path).close()
    edited(path, unchecked="gone", check={"jpeg": "", "pixels": ""})
    with pytest.raises(ConfigError, match="has a check, but images of 12,884,508,675 values"):
        ff.Transform.load(path)
    spec = {"op": "Spec", "shape": [65_535, 65_535, 3], "dtype": "uint8", "layout": "HWC"}
    edited(path, ops=[{"op": "CenterCrop", "size": 8}], input=spec)
    with pytest.raises(ConfigError, match="has a check, but images of 12,884,508,675 values"):
        ff.Transform.load(path)


def test_a_tiny_limit_of_pixels_is_checked_as_well(tmp_path: Path):
    path = written(tmp_path, [ff.Decode(max_pixels=9), ff.Resize((8, 8))])
    ff.Transform.load(path).close()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"seed": "gone"}, "it has no 'seed'; pass what Transform.save wrote"),
        ({"check": "gone"}, "it has no 'check'"),
        ({"check": "3f"}, "check must be an object"),
        ({"check": {}}, "its ops give other pixels"),
        ({"seed": -1}, "preprocessing.json: seed must be"),
        ({"classes": [1]}, "classes must be"),
        ({"input": 3}, "input must be a Spec"),
        ({"input": {"op": "Invert"}}, "input must be a Spec"),
        ({"meaning": 1}, "so that some ops give other pixels"),
        ({"more": 1}, "it has 'more'"),
        ({"ops": []}, "a batch needs samples of one size"),
        ({"ops": [{"op": "MixUp", "alpha": 0.2, "p": 1.0}]}, "."),
    ],
)
def test_files_that_are_no_transform_are_refused(changes: dict, text: str, tmp_path: Path):
    path = edited(written(tmp_path), **changes)
    with pytest.raises(ConfigError, match=text) as error:
        ff.Transform.load(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_places_that_cannot_be_written_are_named(tmp_path: Path):
    with pytest.raises(
        ConfigError, match=r"cannot save a transform to .*: no folder .*; create it"
    ):
        written(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="cannot read a transform from"):
        ff.Transform.load(tmp_path / "nowhere.json")
    assert list(tmp_path.iterdir()) == []


def test_arguments_of_other_types_are_refused(tmp_path: Path):
    transform = ff.Transform([ff.Resize((8, 8))])
    with pytest.raises(ConfigError, match=r"Transform.load: path must be a text or a path, got 3"):
        ff.Transform.load(3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"Transform.save: path must be a text or a path, got"):
        transform.save(None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"Transform.load\(\) has no argument 'allow_function'"):
        ff.Transform.load(tmp_path, allow_function=True)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="allow_functions must be True or False"):
        ff.Transform.load(tmp_path, allow_functions="yes")  # type: ignore[arg-type]
