"""What the programs of these tests train, the same in NumPy, and how their processes are started.

Softmax regression on 45 pictures, each a class of its own: labels say which samples a rank was
given. SGD with momentum on batches of a world of one is what every framework must end with, however
many ranks and devices it has.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import fastfeed as ff

SAMPLES, PIXELS, EPOCHS = 45, 4 * 4 * 3, 2
RATE, MOMENTUM = 0.1, 0.9
UNEVEN_BATCH = 7  # of which two ranks have 3 and 4 samples
LIMIT_S = float(os.environ.get("FASTFEED_TEST_LIMIT_S", 180))  # ends a hang
HERE = Path(__file__).parent
IMAGES = np.random.default_rng(0).integers(0, 256, (SAMPLES, 4, 4, 3), dtype=np.uint8)


def feed(global_batch: int = 8, flip: bool = True, **options: Any) -> ff.Feed:
    """5 steps per epoch, with different augmentation in each; the world is detected, not passed."""
    chosen = {"global_batch": global_batch, "seed": 3, "threads": 1, **options}
    if "batch" in options:
        del chosen["global_batch"]
    ops = [ff.RandomFlip(), ff.ToFloat()] if flip else [ff.ToFloat()]
    return ff.Feed(ff.Arrays(IMAGES, np.arange(SAMPLES)), ops, **chosen)


def validation() -> ff.Feed:
    """All pictures as they are, once each."""
    return feed(flip=False, shuffle=False, tail="pad")


def start() -> tuple[np.ndarray, np.ndarray]:
    """Weights before training, shapes (pixels, classes) and (classes,), float32."""
    return np.sin(np.arange(PIXELS * SAMPLES, dtype=np.float32)).reshape(
        PIXELS, SAMPLES
    ) / 10, np.zeros(SAMPLES, np.float32)


def trained(
    steps: int | None = None, factors: Mapping[int, float] | None = None, **options: Any
) -> dict[str, Any]:
    """By NumPy, in a world of one: weights, and the mean loss of each step.

    `factors` weigh samples by label.
    """
    kernel, bias = (array.astype(np.float64) for array in start())
    speeds, losses = [np.zeros_like(kernel), np.zeros_like(bias)], []
    with feed(**options, world=ff.World()) as data:
        for batch in islice(
            data.batches(epochs=None), EPOCHS * len(data) if steps is None else steps
        ):
            x, n = (
                batch.images.reshape(len(batch.labels), PIXELS).astype(np.float64),
                len(batch.labels),
            )
            weights = batch.weights * np.array(
                [(factors or {}).get(int(label), 1.0) for label in batch.labels]
            )
            logits = x @ kernel + bias
            logits -= logits.max(1, keepdims=True)
            logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
            losses.append(float(-(logs[np.arange(n), batch.labels] * weights).sum() / n))
            slope = (np.exp(logs) - np.eye(SAMPLES)[batch.labels]) * weights[:, None] / n
            for i, (array, gradient) in enumerate(
                zip((kernel, bias), (x.T @ slope, slope.sum(0)), strict=True)
            ):
                speeds[i] = MOMENTUM * speeds[i] - RATE * gradient
                array += speeds[i]
    return {"kernel": kernel, "bias": bias, "losses": losses}


def same(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """The weights that a program told are these, but for rounding."""
    for name in ("kernel", "bias"):
        np.testing.assert_allclose(
            np.asarray(found[name]), wanted[name], rtol=0, atol=2e-4, err_msg=name
        )


def order(epochs: int = EPOCHS, **options: Any) -> list[list[int]]:
    """The ids of every global batch."""
    with feed(**options, world=ff.World()) as data:
        return [batch.ids.tolist() for batch in data.batches(epochs=epochs)]


def joined(ranks: Sequence[Sequence[Sequence[int]]]) -> list[list[int]]:
    """What the ranks were given, as global batches; they must have made equally many steps."""
    return [[id for part in parts for id in part] for parts in zip(*ranks, strict=True)]


def environment(**more: str) -> dict[str, str]:
    """This process's, with the package and this folder importable, and few threads."""
    paths = [
        str(HERE.parents[1]),
        str(HERE.parent),
        str(HERE),
        *filter(None, [os.environ.get("PYTHONPATH")]),
    ]
    quiet = {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    return os.environ | quiet | {"PYTHONPATH": os.pathsep.join(paths)} | more


def ports(count: int) -> list[int]:
    """A port that is not in use."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("localhost", 0))
    found = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return found


def work(
    program: str,
    *arguments: object,
    launcher: Sequence[str] = (),
    asked: bool = False,
    errors: Any = subprocess.PIPE,
    **environ: str,
) -> subprocess.Popen[str]:
    """Start a program of this folder; `asked`: it reads from us; `errors`: a file for them."""
    command = [sys.executable, "-W", "ignore", *launcher, str(HERE / program), *map(str, arguments)]
    return subprocess.Popen(
        command,
        env=environment(**environ),
        stdin=subprocess.PIPE if asked else None,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        start_new_session=True,  # a launcher that hangs ends with all of its ranks
    )


def ended(processes: Sequence[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    """(return code, stdout, stderr) of each once all have ended."""
    try:
        with ThreadPoolExecutor(
            len(processes)
        ) as pool:  # all at once: one may wait for another that cannot write
            said = list(pool.map(lambda process: process.communicate(timeout=LIMIT_S), processes))
        return [
            (process.returncode, *texts) for process, texts in zip(processes, said, strict=True)
        ]
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def told(processes: Sequence[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    """The JSON object in the last line of each, all of which must have ended well."""
    found = []
    for code, out, err in ended(processes):
        assert code == 0, f"ended with {code}:\n{err[-4000:]}"
        found.append(json.loads(out.splitlines()[-1]))
    return found
