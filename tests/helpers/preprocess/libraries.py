"""Programs that read shards with mosaicml-streaming or TensorFlow, in forks of one process that has
imported it.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
from pathlib import Path

import pytest

from helpers.commands import ForkedPrograms
from helpers.needs import require

MISSING = (
    "no mosaicml-streaming, or no torch; pip install --no-deps mosaicml-streaming catalogue; pip"
    " install torch"
)

# streaming imports tokenizers, vision models and compressors whatever it is to do; none of them has
# a part in reading a plain shard, so that empty ones stand in for those that are not here
_STREAMING = """
import importlib.machinery, importlib.util, json, sys, types

class StandIn:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("brotli", "snappy", "torchvision", "transformers", "xxhash", "zstd"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.algorithms_available = ()
        def member(name):
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {})
        module.__getattr__ = member
        return module
    def exec_module(self, module):
        pass

sys.meta_path.append(StandIn())
import streaming
"""


@functools.cache
def _programs(imports: str, **environ: str) -> ForkedPrograms:
    """The process for all tests of this one: to import either takes four seconds."""
    programs = ForkedPrograms(imports, **environ)
    atexit.register(programs.end)
    return programs


def streaming(program: str, *words: str, folder: Path) -> str:
    """What a program prints, with temporary files in a folder."""
    if any(importlib.util.find_spec(name) is None for name in ("streaming", "torch", "catalogue")):
        pytest.skip(MISSING)
    programs = _programs(_STREAMING, PYTHONWARNINGS="ignore")
    done = programs.run(f"import tempfile\ntempfile.tempdir = {str(folder)!r}\n{program}", *words)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def tensorflow(program: str, *words: object) -> str:
    """What a program prints; it may use `tf`."""
    require("tensorflow")
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "TF_NUM_INTRAOP_THREADS": "1"}
    done = _programs("import tensorflow as tf", **quiet).run(program, *words)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
