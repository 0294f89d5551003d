"""Programs that use the real package mosaicml-streaming, each in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

MISSING = (
    "no mosaicml-streaming, or no torch; pip install --no-deps mosaicml-streaming catalogue; pip"
    " install torch"
)

# streaming imports tokenizers, vision models and compressors whatever it is to do; none of them has
# a part in reading a plain shard, so that empty ones stand in for those that are not here
STREAMING = """
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
"""


def streaming(program: str, *words: str, folder: Path) -> str:
    """What a program prints, with temporary files in a folder."""
    if any(importlib.util.find_spec(name) is None for name in ("streaming", "torch", "catalogue")):
        pytest.skip(MISSING)
    environ = os.environ | {"TMPDIR": str(folder), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", STREAMING + program, *words]
    run = subprocess.run(
        command, env=environ, capture_output=True, text=True, check=False, timeout=200
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout
