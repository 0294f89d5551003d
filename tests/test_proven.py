"""Code whose path on GPUs is experimental says so, in docstrings and in print(feed), until a page
shows that it ran.
"""

import ast
import importlib
import operator
from pathlib import Path

import numpy as np
import pytest
from helpers.needs import missing

import fastfeed as ff
from fastfeed import gpu_support as proven
from fastfeed.feed.session import FeedSession

ROOT = Path(__file__).parents[1]
# whatever runs on a GPU uses one of these names; the profiler and fastfeed.live only read what
# others ran
MARKS = {
    "cupy",
    "cuda",
    "__cuda_array_interface__",
    "accelerator",
    "device_put",
    "gpu_count",
    "nvimgcodec",
}
PARTS = (
    "adapters",
    "backends",
    "decode",
    "distributed",
    "feed",
    "ops",
    "runtime",
    "sampling",
    "sources",
)
RUNS_NOTHING_THERE = {
    "adapters/batch_tuples.py:on_device": "decides where something runs",
    "adapters/synchronize.py:synchronize": "waits for a device, and returns where there is none",
    "adapters/synchronize.py:uses_gpu": "asks frameworks",
    "backends/dali/backend.py:compile": "makes a DaliBackend, which says it",
    "backends/dali/backend.py:engine": "chooses the processor's decoder",
    "backends/gpu_memory.py:find_cupy": "imports it",
    "backends/nvjpeg/backend.py:find_nvjpeg": "looks for a file",
    "feed/session.py:FeedSession": "prints it",
    "feed/transform/config.py:TransformConfig": "arguments of Transform, which says it",
    "runtime/placement.py:Placement": "the contract of placements, which say it",
    "runtime/placement.py:flatten": "looks for arrays",
    "runtime/placement.py:on_host": "copies to the processor, which CuPy does",
    "runtime/placement.py:wait_until_written": "waits for CuPy, where it is loaded",
}
ON_GPU = {  # what runs there: its path, and what it needs
    "fastfeed.feed.feed:Feed": ("feed",),
    "fastfeed.feed.feed:Feed.to_keras": ("keras",),
    "fastfeed.feed.feed:Feed.to_tfdata": ("tensorflow",),
    "fastfeed.feed.feed:Feed.to_jax": ("jax",),
    "fastfeed.feed.feed:Feed.to_torch": ("torch",),
    "fastfeed.backends.options:GpuDecode": ("dali",),
    "fastfeed.distributed.launch:pin_gpu": ("ranks",),
    "fastfeed.adapters.prefetch_to_device:prefetch_to_device": ("feed",),
    "fastfeed.adapters.torch:TorchPlacement": ("torch", "torch"),
    "fastfeed.adapters.torch:DeviceConvert": ("torch", "torch"),
    "fastfeed.adapters.jax:JaxPlacement": ("jax", "jax"),
    "fastfeed.adapters.tfdata:TfPlacement": ("tensorflow", "tensorflow"),
    "fastfeed.backends.dali.backend:DaliBackend": ("dali", "nvidia"),
    "fastfeed.backends.dali.pipeline:RenderPipeline": ("dali", "nvidia"),
    "fastfeed.backends.dali.pipeline:OpPipeline": ("dali", "nvidia"),
    "fastfeed.backends.gpu_memory:GpuMemory": ("dali",),
    "fastfeed.backends.nvjpeg.backend:NvjpegBackend": ("nvjpeg",),
    "fastfeed.backends.nvjpeg.decoder_stream:DecoderStream": ("nvjpeg",),
    "fastfeed.backends.nvjpeg.windows:WindowKernel": ("nvjpeg",),
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


@pytest.mark.parametrize("name", ON_GPU)
def test_docstrings_say_it(name):
    path, *needed = ON_GPU[name]
    if absent := missing(*needed):
        pytest.skip(absent)
    module, attribute = name.split(":")
    text = operator.attrgetter(attribute)(importlib.import_module(module)).__doc__
    assert ("GPU support is experimental: " in text) == (path in proven.EXPERIMENTAL)
    assert path not in proven.EXPERIMENTAL or f"{proven.EXPERIMENTAL[path][1]}.\n\n" in text


@pytest.mark.parametrize("name", ["torch cuda:0", "JAX gpu:0", "TensorFlow GPU:0"])
def test_print_says_it_of_accelerators_alone(feed, monkeypatch, name):
    monkeypatch.setattr(Accelerator, "name", name)
    known = proven.EXPERIMENTAL.get(name.split()[0].lower())
    assert "experimental" not in str(feed)
    FeedSession.of(feed).place_on(Accelerator())
    assert (
        f"placed on {name}{f' (experimental: {known[0]})' if known else ''}: at most 4 batches"
        in str(feed)
    )
    monkeypatch.setattr(Accelerator, "accelerator", False)
    FeedSession.of(feed).place_on(Accelerator())
    assert f"placed on {name}: at most" in str(feed) and str(feed).count("placed on") == 1


def test_a_path_without_a_line_is_silent(feed, monkeypatch):
    def decodes() -> None:
        """Runs there."""

    monkeypatch.setattr(proven, "EXPERIMENTAL", {"jax": proven.EXPERIMENTAL["jax"]})
    FeedSession.of(feed).place_on(Accelerator())
    assert "experimental" not in str(feed)
    assert proven.runs_on_gpu("torch")(decodes).__doc__ == "Runs there."
    assert "it has not been run on a GPU yet" in proven.runs_on_gpu("jax")(decodes).__doc__


def test_paths_are_known_and_the_page_is_there():
    assert set(proven.EXPERIMENTAL) <= set(proven.PATHS) == {path for path, *_ in ON_GPU.values()}
    assert (ROOT / proven.GPU_PAGE).is_file()


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
    """Public classes and functions with one of the marks and without the decorator:
    "adapters/torch.py:to_torch".
    """
    package = ROOT / "fastfeed"
    for path in sorted(path for part in PARTS for path in (package / part).rglob("*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if not isinstance(node, (ast.ClassDef, ast.FunctionDef)) or node.name.startswith("_"):
                continue
            decorators = {getattr(getattr(d, "func", d), "id", "") for d in node.decorator_list}
            if "runs_on_gpu" not in decorators and MARKS.intersection(_names(node)):
                yield f"{path.relative_to(package).as_posix()}:{node.name}"


def test_nothing_that_runs_on_a_gpu_is_silent_about_it():
    """A new one needs `@runs_on_gpu(...)`, or a reason in the table above why it runs nothing
    there.
    """
    assert set(_silent()) - set(RUNS_NOTHING_THERE) == set()


def test_exceptions_are_still_there():
    committed = {
        name for name in RUNS_NOTHING_THERE if (ROOT / "fastfeed" / name.split(":")[0]).is_file()
    }
    assert committed - set(_silent()) == set()
