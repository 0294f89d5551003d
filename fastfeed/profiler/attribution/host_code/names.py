"""Origins and signs of functions, by their names in recordings of PyTorch and JAX."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fastfeed.profiler.model.kernel_names import signatures


class Sign(IntEnum):
    """Evidence in a function's name about the code that it runs."""

    ITERATES = 0  # the protocol of iterators
    BLOCKS = 1  # waits for another thread, another process, or the clock
    DECODES = 2  # libraries that decode and transform samples
    # words that people use for it; they say little about a function in the middle of a step
    PREPARES = 3
    RECORDS = 4  # logging, metrics, saving
    SIMULATES = 5  # an environment of reinforcement learning
    TRANSFERS = 6  # reads or writes files and sockets
    COLLECTS = 7  # the garbage collector
    PROFILES = 8  # the profiler itself
    RECEIVES = 9  # takes from a queue or a pipe
    SENDS = 10  # puts into a queue or a pipe


class RecordedFunction(NamedTuple):
    """A function by its name in a recording."""

    name: str  # preprocess
    file: str  # as recorded, train/images.py; "" for a function that is not written in Python
    line: int  # where it was entered or resumed; 0 unknown
    is_users: bool  # not of the standard library, of a framework, or installed

    @property
    def package(self) -> str:
        """First folder of the file below Python's search path; "" for a script."""
        return self.file.removeprefix("./").rpartition("/")[0].split("/")[0]

    def __str__(self) -> str:
        return (
            f"{self.name} ({self.file.rsplit('/', 1)[-1]}:{self.line})" if self.file else self.name
        )


_FRAMEWORK = re.compile(
    "torch|torchvision|torchaudio|jax|jaxlib|flax|optax|haiku|equinox|orbax|"
    "tensorflow|keras|tf_keras|lightning|pytorch_lightning|accelerate|transformers|"
    "diffusers|deepspeed|numpy|scipy|PIL|cv2|pandas|pyarrow|fsspec"
)
_LIBRARY = re.compile(r"(site|dist)-packages/|lib/python3|^<frozen|^<string>")
_FRAME = re.compile(r"^(?P<file>[^<>]*\.pyx?|<[^<>]*>)\((?P<line>\d+)\): (?P<name>.+)$")
_METHOD = re.compile(
    r"^<built-in (?:function (?P<function>[\w.]+)|method (?P<method>\w+) of (?P<owner>[\w.]+).*)>?$"
)


_SIGNS = {Sign[name]: pattern for name, pattern in signatures("signs").items()}


@lru_cache(maxsize=65_536)
def parse(name: str) -> RecordedFunction:
    """The function of a frame's name; the names of other ranges are unchanged."""
    match = _FRAME.match(name)
    if match:
        file = match["file"]
        top = re.split(r"[/\\.]", file.removeprefix("./"), maxsplit=1)[0]
        is_library = (
            top in sys.stdlib_module_names
            or _FRAMEWORK.fullmatch(top) is not None
            or _LIBRARY.search(file) is not None
        )
        return RecordedFunction(match["name"], file, int(match["line"]), not is_library)
    match = _METHOD.match(name)
    if match:
        return RecordedFunction(
            match["function"] or f"{match['owner']}.{match['method']}", "", 0, False
        )
    return RecordedFunction(name, "", 0, False)


def signs(names: Sequence[str]) -> np.ndarray:
    """Which signs each name has: bool, shape (len(names), len(Sign))."""
    table = np.zeros((len(names), len(Sign)), bool)
    for at, name in enumerate(names):
        for sign, pattern in _SIGNS.items():
            table[at, sign] = pattern.search(name) is not None
    return table
