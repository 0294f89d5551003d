"""Origins and signs of functions, by their names in recordings of PyTorch and JAX."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

import numpy as np


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


class Function(NamedTuple):
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


def _pattern(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_SIGNS = {
    Sign.ITERATES: _pattern(
        r"\): (__a?next__|__a?iter__|__getitems?__|a?next|get_next)$|"
        r"<built-in function a?next>",
        r"^builtins a?next$",
    ),
    Sign.BLOCKS: _pattern(
        r"(acquire|join|wait|get|put) of _?(thread|queue)\b|^_?thread \w*acquire|"
        r"built-in function sleep|^time sleep$",
        r"threading\.py\(\d+\): (wait|join|acquire|_wait\w*)$|queue\.py\(\d+\): get$|"
        r"selectors\.py",
        r"^<unknown> (acquire|wait|recv\w*|poll|select)$",
        r"concurrent/futures/\S*\): (result|wait|as_completed)$|asyncio/\S*\): (run\w*|"
        r"_run_once)$",
        r"(multiprocessing/|^)(queues|connection|pool|synchronize|managers)\.py\(\d+\): (get|"
        r"poll|wait|next|_?recv\w*)$",
        r"method (poll|select|recv\w*|accept|kqueue) of |built-in function (select|wait\w*|"
        r"_?poll)>",
    ),
    Sign.DECODES: _pattern(
        r"(^|/)(PIL|cv2|torchvision/(transforms|io|datasets)|albumentations|imageio|skimage|"
        r"turbojpeg)/",
        r"(^|/)(av|decord|librosa|torchaudio|soundfile|tokenizers|sentencepiece|tiktoken|nltk|"
        r"spacy)/",
        r"ImagingCore|ImagingDecoder|imdecode|imread|^cv2\b|Tokenizer object|\bpin_memory\b|"
        r"\bcollate",
    ),
    Sign.PREPARES: _pattern(
        r"\): (\w*_)?(data|batch|load|fetch|sampl|collat|augment|transform|preproc|prepare|"
        r"tokeni[sz]|decod|prefetch|read|crop|resiz|feed|image|frames?|generat|input|iter)",
    ),
    Sign.RECORDS: _pattern(
        r"(^|/)(logging|wandb|mlflow|tensorboard\w*|comet_ml|neptune|aim|torchmetrics|"
        r"matplotlib|tqdm)/",
        r"built-in function print>|^builtins print$|json/|pickle\.py\(\d+\): dump|"
        r"sklearn/metrics/",
        r"\): _*((\w+_)?(log|logs|logger|logging|metrics?|checkpoints?|save|saves|saved|"
        r"report|plot|summary|eval|evaluate|evaluation|validate|validation)(_\w+)?)$",
    ),
    Sign.SIMULATES: _pattern(
        r"(^|/)(gym|gymnasium|pettingzoo|envpool|dm_env|dm_control|ale_py|mujoco|pufferlib)/",
        r"(^|[/_])(vec_)?(env|envs|environments?|simulators?)\w*(/\S*)?\.py\(\d+\): (step\w*|"
        r"reset\w*)$",
        r"\): (env|environment|vec_env|simulator)_step$",
        # by convention; steps of trainers and schedules that launch nothing have such file names
        r"^(?!\S*(torch|jax|tensorflow|keras|optax|lightning|trainer|optim|sched|ema|scal|"
        r"solver|profil|accelerat))\S+\.py\(\d+\): step(_async|_wait)?$",
    ),
    Sign.TRANSFERS: _pattern(
        r"method (read\w*|write|flush|send\w*|connect|seek) of |built-in function (open|read|"
        r"p?read|fsync)>",
        r"^(io|_io|posix|socket) \w+$|(^|/)(http|ssl|urllib3?|botocore|requests|shutil)(/|"
        r"\.py)",
    ),
    Sign.COLLECTS: _pattern(
        r"built-in function collect>|^gc collect$|^gc\b|garbage[ _]?collect",
    ),
    Sign.RECEIVES: _pattern(
        r"(^|/)(queues?|connection|pool|managers)\.py\(\d+\): (get|next|_?recv\w*)$",
        r"method (get|recv\w*) of |^<unknown> (get|recv\w*)$|^_?queue \w* ?get$",
    ),
    Sign.SENDS: _pattern(
        r"(^|/)(queues?|connection)\.py\(\d+\): (put|_?send\w*)$|method (put|send\w*) of ",
    ),
    Sign.PROFILES: _pattern(
        r"torch/(autograd/)?profiler\b|torch/profiler/|jax/_src/profiler|^profiler\.py\(",
    ),
}


@lru_cache(maxsize=65_536)
def parse(name: str) -> Function:
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
        return Function(match["name"], file, int(match["line"]), not is_library)
    match = _METHOD.match(name)
    if match:
        return Function(match["function"] or f"{match['owner']}.{match['method']}", "", 0, False)
    return Function(name, "", 0, False)


def signs(names: Sequence[str]) -> np.ndarray:
    """Which signs each name has: bool, shape (len(names), len(Sign))."""
    table = np.zeros((len(names), len(Sign)), bool)
    for at, name in enumerate(names):
        for sign, pattern in _SIGNS.items():
            table[at, sign] = pattern.search(name) is not None
    return table
