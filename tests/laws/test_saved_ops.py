"""Every op survives a file: equal with all of its arguments, readable, and none runs code."""

from __future__ import annotations

import inspect
import json

import numpy as np
import pytest
from helpers.op_examples import ALL, basic, one_of_each

import fastfeed as ff
from fastfeed import ops as every
from fastfeed.errors import ConfigError

WEIRD = [None, True, -1, 3, 0.5, 1e308, "", "x", [], [1, 2], [[1]], {}, {"a": 1}, {"op": "Invert"}]


def labeled(image: np.ndarray, numbers: np.ndarray, label: int) -> np.ndarray:
    """What a user may write."""
    return image


# arguments of ops for which `ALL` has the default alone
MORE = [
    ff.AutoAugment(filter="bilinear", fill=(1, 2, 3)),
    ff.Affine(3, (0.1, 0.2), (0.5, 2), (-1, 1, -2, 2), "nearest", (1, 2, 3)),
    ff.AugMix(1, 2, 4, 0.5, False, "nearest", (1, 2, 3)),
    ff.ColorJitter((0.1, 1), 0.25, 0.125, (-0.1, 0.2)),
    ff.CutOut(5, (1, 2, 3)),
    ff.Decode((1, 2, 3), 99, 1, "float32"),
    ff.GaussianBlur(5, (0.5, 1.5)),
    ff.GridMask((9, 30), 0.25, (1, 2, 3)),
    ff.Function(labeled, 0, ["label"], ff.Spec((4, 5, 3), "float32", "HWC")),
    ff.Map(
        basic.shares, "label", "weight", out=["a", "label"], shape={"a": (None, 2)}, dtype="int64"
    ),
    ff.MultiCrop([ff.View((9, 8), 3, (0.1, 0.5), (0.5, 2), [basic.darker], "box")]),
    ff.IoUCrop((0.1, 0.5), (0.5, 0.9), (0.75, 1.5)),
    ff.Perspective(0.25, 1.0, "nearest", (1, 2, 3)),
    ff.RandAugment(3, 4, 7, "bilinear", (1, 2, 3)),
    ff.RandomErasing(0.1, (0.1, 0.2), (1, 2), "noise", False),
    ff.Rotate((-3, 4), "nearest", (1, 2, 3)),
    ff.TrivialAugmentWide(5, "bilinear", (1, 2, 3)),
]


def saved(tmp_path, ops):
    ff.save_ops(tmp_path / "ops.json", ops)
    return tmp_path / "ops.json"


@pytest.mark.parametrize("op", [*ALL, *MORE], ids=repr)
def test_round_trip(op, tmp_path):
    path = saved(tmp_path, [op])
    assert ff.load_ops(path, allow_functions=True) == [op]
    entry = json.loads(path.read_text())["ops"][0]
    arguments = ["of" if name == "op" else name for name in inspect.signature(type(op)).parameters]
    assert [*entry] == ["op", *arguments], "all arguments, in order"


def test_each_argument_was_saved_with_another_value_than_its_default():
    missing = []
    for kind in map(every.__dict__.get, every.__all__):
        if kind is ff.View:
            continue
        of_kind = [op for op in (*ALL, *MORE) if type(op) is kind]
        for parameter in inspect.signature(kind).parameters.values():
            name = parameter.name
            values = [op.arguments[name] if kind is ff.Map else getattr(op, name) for op in of_kind]
            if all(value == parameter.default for value in values):
                missing.append(f"{kind.__name__}.{name}")
    assert not missing, "please add an example to MORE"


def test_the_file_is_readable(tmp_path):
    lines = saved(tmp_path, [ff.RandomFlip(), ff.Normalize.imagenet()]).read_text().splitlines()
    assert lines[1:4] == [
        f' "fastfeed": "{ff.__version__}",',
        ' "format": 1,',
        ' "meaning": 2,',
    ]
    assert lines[5] == '  {"op": "RandomFlip", "p": 0.5, "direction": "horizontal"},'
    assert lines[6].startswith('  {"op": "Normalize", "mean": [0.485, 0.456, 0.406], "std"')


@pytest.mark.parametrize("op", one_of_each(op for op in ALL if op.kind != "map"), ids=repr)
def test_any_value_of_any_argument_is_accepted_or_refused_in_a_sentence(op, tmp_path):
    path = saved(tmp_path, [op])
    document = json.loads(path.read_text())
    entry = document["ops"][0]
    for name in entry:
        for value in WEIRD:
            document["ops"] = [entry | {name: value}]
            path.write_text(json.dumps(document))
            try:
                (loaded,) = ff.load_ops(path)
            except ConfigError as error:
                assert str(path) in str(error) and "\n" not in str(error)
            else:
                assert hash(loaded) is not None and repr(loaded)


@pytest.mark.parametrize("ops", [[basic.darker], [ff.Maybe(ff.Function(basic.darker))]])
def test_functions_are_imported_only_if_the_caller_allows_it(ops, tmp_path, monkeypatch):
    path = saved(tmp_path, ops)
    assert "helpers.op_examples.basic:darker" in path.read_text()
    monkeypatch.setattr("importlib.import_module", lambda name: pytest.fail(f"imported {name}"))
    with pytest.raises(ConfigError, match=r"basic:darker'.*imported.*allow_functions=True"):
        ff.load_ops(path)


class Gray:
    """An object that is called."""

    def __call__(self, image: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        return image


def test_functions_without_an_import_path_are_refused(tmp_path, monkeypatch):
    def inner(image, numbers):
        return image

    def moved(image, numbers):
        return image

    monkeypatch.setattr(moved, "__qualname__", "test_round_trip")
    script = type(moved)(moved.__code__, {"__name__": "__main__"})
    cases = {
        "is a lambda": lambda image, numbers: image,
        "inside another": inner,
        "is an object": Gray(),
        "is not what": moved,
        "belongs to the program": script,
    }
    for reason, function in cases.items():
        with pytest.raises(ConfigError, match=rf"ops\[1\] Function function .*{reason}.*module"):
            ff.save_ops(tmp_path / "ops.json", [ff.Invert(), ff.Function(function)])
    assert not (tmp_path / "ops.json").exists()


class Kind:
    """An op of somebody else."""

    kind = "change"


def document(**more):
    return {"fastfeed": "0.2.0", "format": 1, "meaning": 2, "ops": []} | more


def _deep(levels):
    text = "[" * levels + '{"op": "Invert"}' + "]" * levels
    return '{"fastfeed": "1", "format": 1, "meaning": 2, "ops": ' + text + "}"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", "is not a saved list of ops"),
        ("[]", "got list"),
        ('{"fastfeed": NaN}', "NaN is no number"),
        ('{"fastfeed": 1e999}', "1e999 is no number"),
        (f'{{"fastfeed": {"9" * 5000}}}', "more than 64 bits"),
        ('{"fastfeed": "1", "ops": [], "ops": []}', "'ops' twice"),
        ("[" * 100_000, "is not a saved list of ops"),
        (_deep(40), "more than 16 levels deep"),
        (
            document(ops=[{"op": "Invert"}] * 1000),
            "has 1,001 ops and other objects, more than 1,000",
        ),
        ("\ud800".encode("utf-8", "surrogatepass"), "is not a saved list of ops"),
        (document(format=2), "has format 2 of fastfeed 0.2.0, and fastfeed .* has 1; use that"),
        (document(meaning=1), "has meaning 1 .* has 2, so that some ops give other pixels"),
        (document(meaning=True), "meaning must be an integer"),
        (document(fastfeed=1), "fastfeed must be a version"),
        (document(more=1), "it has 'more'"),
        ({"fastfeed": "1", "format": 1, "meaning": 2}, "it has no 'ops'"),
        (document(ops={}), "'ops' must be a list"),
        (document(ops=[3]), r"ops\[0\] must be an op, got 3"),
        (document(ops=[{"op": "Spec", "shape": [1], "dtype": "uint8", "layout": "HWC"}]), "an op"),
        (document(ops=[{"op": "RandomHorizontalFlip"}]), r"write ff.RandomFlip\(\)"),
        (document(ops=[{"op": "OrderedDict"}]), "a newer version may have it"),
        (document(ops=[{"op": 3}]), "got 3"),
        (document(ops=[{"op": "Resize"}]), r"ops\[0\] Resize needs 'size'"),
        (document(ops=[{"op": "Resize", "size": 4, "sise": 4}]), "Resize has no argument 'sise'"),
        (document(ops=[{"op": "Resize", "size": "big"}]), "Resize size must be"),
        (document(ops=[{"op": "Function", "function": 3}]), "must be 'module:function', got 3"),
        (
            document(ops=[{"op": "Map", "function": "os:getcwd", "inputs": "label", "out": "a"}]),
            "allow_functions=True",
        ),
    ],
)
def test_files_of_others_are_refused_in_a_sentence(content, text, tmp_path):
    path = tmp_path / "ops.json"
    if isinstance(content, dict):
        content = json.dumps(content)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ConfigError, match=text) as error:
        ff.load_ops(path)
    assert str(path) in str(error.value) and len(str(error.value)) < 600


@pytest.mark.parametrize(
    ("function", "text"),
    [
        ("no_such_module:f", "no_such_module raised ModuleNotFoundError"),
        ("os:no_such", "os has none called 'no_such'"),
        ("os:sep", "os has none called 'sep'"),
        ("os", "must be 'module:function'"),
    ],
)
def test_functions_that_cannot_be_imported_are_named(function, text, tmp_path):
    path = tmp_path / "ops.json"
    path.write_text(json.dumps(document(ops=[{"op": "Function", "function": function}])))
    with pytest.raises(ConfigError, match=text):
        ff.load_ops(path, allow_functions=True)


def test_large_files_are_not_read_whole(tmp_path):
    path = tmp_path / "ops.json"
    with open(path, "wb") as file:
        file.truncate(1 << 40)  # no block of it is on the disk
    with pytest.raises(ConfigError, match="more than 4,194,304 bytes"):
        ff.load_ops(path)


def test_ops_of_others_are_refused(tmp_path):
    for wrong in (object(), every.Invert, np.zeros(3), 3, ff.View(8), Kind()):
        with pytest.raises(ConfigError, match=r"ops\[0\] must be an op of fastfeed.*, got"):
            ff.save_ops(tmp_path / "ops.json", [wrong])
    assert not (tmp_path / "ops.json").exists()
    with pytest.raises(ConfigError, match="has 1,001 ops"):
        ff.save_ops(tmp_path / "ops.json", [every.Invert()] * 1001)
    with pytest.raises(ConfigError, match="ops must be a list"):
        ff.save_ops(tmp_path / "ops.json", "Resize(4)")
