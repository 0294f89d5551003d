"""Code that no GPU has run says so, in docstrings and in print(feed), until a page shows that one did."""

import ast
import importlib
import operator
from pathlib import Path

import numpy as np
import pytest
from helpers.needs import missing

import fastfeed as ff
from fastfeed import proven

ROOT = Path(__file__).parents[1]
# whatever runs on a GPU uses one of these names; the profiler and fastfeed.live only read what others ran
MARKS = {"cupy", "cuda", "__cuda_array_interface__", "accelerator", "device_put", "gpu_count", "nvimgcodec"}
PARTS = ("adapters", "backends", "decode", "distributed", "feed", "ops", "runtime", "sampling", "sources")
RUNS_NOTHING_THERE = {
    "adapters/device_convert.py:on_device": "decides where something runs",
    "adapters/synchronize.py:synchronize": "waits for a device, and returns where there is none",
    "adapters/synchronize.py:uses_gpu": "asks frameworks",
    "backends/dali/backend.py:compile": "makes a DaliBackend, which says it",
    "backends/dali/backend.py:engine": "chooses the processor's decoder",
    "feed/for_adapters.py:ForAdapters": "prints it",
    "runtime/placement.py:Placement": "the contract of placements, which say it",
    "runtime/placement.py:flatten": "looks for arrays",
    "runtime/placement.py:on_host": "copies to the processor, which CuPy does",
    "runtime/placement.py:wait_until_written": "waits for CuPy, where it is loaded",
}
ON_GPU = {  # what runs there, and what it needs
    "fastfeed.feed.feed:Feed": (),
    "fastfeed.feed.for_trainers:ForTrainers.to_keras": (),
    "fastfeed.feed.for_trainers:ForTrainers.to_tfdata": (),
    "fastfeed.feed.for_trainers:ForTrainers.to_jax": (),
    "fastfeed.feed.for_trainers:ForTrainers.to_torch": (),
    "fastfeed.backends.options:GpuDecode": (),
    "fastfeed.distributed.launch:pin_gpu": (),
    "fastfeed.adapters.prefetch_to_device:prefetch_to_device": (),
    "fastfeed.adapters.torch:TorchPlacement": ("torch",),
    "fastfeed.adapters.torch:DeviceConvert": ("torch",),
    "fastfeed.adapters.jax:JaxPlacement": ("jax",),
    "fastfeed.adapters.tfdata:TfPlacement": ("tensorflow",),
    "fastfeed.backends.dali.backend:DaliBackend": ("nvidia",),
    "fastfeed.backends.dali.pipeline:Lane": ("nvidia",),
    "fastfeed.backends.dali.memory:GpuMemory": ("nvidia",),
    "fastfeed.decode.gpu:NvImageCodec": ("nvidia",),
}


class Accelerator:
    """A placement on a device that is no processor."""

    name, accelerator = "torch cuda:0", True

    def memory(self, shape, dtype):
        return np.empty(shape, dtype)


@pytest.fixture
def feed():
    source = ff.Arrays(np.zeros((8, 8, 8, 3), np.uint8), np.zeros(8, np.int64))
    with ff.Feed(source, [ff.RandomFlip()], batch=4) as made:
        yield made


@pytest.mark.parametrize("path", ON_GPU)
def test_docstrings_say_it(path):
    if absent := missing(*ON_GPU[path]):
        pytest.skip(absent)
    module, name = path.split(":")
    text = operator.attrgetter(name)(importlib.import_module(module)).__doc__
    assert ("GPU support is experimental: it has not been run on a GPU yet." in text) == (not proven.GPU_PAGE)


def test_print_says_it_of_accelerators_alone(feed, monkeypatch):
    assert "experimental" not in str(feed)
    feed.place_on(Accelerator())
    assert "placed on torch cuda:0 (experimental: not run on a GPU yet): at most 4 batches" in str(feed)
    monkeypatch.setattr(Accelerator, "accelerator", False)
    feed.place_on(Accelerator())
    assert "placed on torch cuda:0: at most" in str(feed) and str(feed).count("placed on") == 1


def test_a_page_ends_it_everywhere(feed, monkeypatch):
    monkeypatch.setattr(proven, "GPU_PAGE", "gpu.md")
    feed.place_on(Accelerator())
    assert "experimental" not in str(feed)

    def decodes() -> None:
        """Runs there."""

    assert proven.runs_on_gpu(decodes).__doc__ == "Runs there."
    monkeypatch.setattr(proven, "GPU_PAGE", "")
    assert "it has not been run on a GPU yet" in proven.runs_on_gpu(decodes).__doc__


def test_the_page_that_is_named_is_there():
    assert not proven.GPU_PAGE or (ROOT / "benchmarks" / "results" / proven.GPU_PAGE).is_file()


def _names(tree):
    """Identifiers, attributes and strings, without docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _silent():
    """Public classes and functions with one of the marks and without the decorator: "adapters/torch.py:to_torch"."""
    package = ROOT / "fastfeed"
    for path in sorted(path for part in PARTS for path in (package / part).rglob("*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if not isinstance(node, (ast.ClassDef, ast.FunctionDef)) or node.name.startswith("_"):
                continue
            decorators = {getattr(decorator, "id", "") for decorator in node.decorator_list}
            if "runs_on_gpu" not in decorators and MARKS.intersection(_names(node)):
                yield f"{path.relative_to(package).as_posix()}:{node.name}"


def test_nothing_that_runs_on_a_gpu_is_silent_about_it():
    """A new one needs `@runs_on_gpu`, or a reason in the table above why it runs nothing there."""
    assert set(_silent()) - set(RUNS_NOTHING_THERE) == set()


def test_exceptions_are_still_there():
    committed = {name for name in RUNS_NOTHING_THERE if (ROOT / "fastfeed" / name.split(":")[0]).is_file()}
    assert committed - set(_silent()) == set()
