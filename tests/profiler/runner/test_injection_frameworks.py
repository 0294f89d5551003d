"""Programs of every framework, each with loaders that no profiler knows, recorded as they are, on
the CPU.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from conftest import environment

from fastfeed.profiler import analysis, readers
from fastfeed.profiler.model.trace import RangeKind
from fastfeed.profiler.runner.session import record
from fastfeed.profiler.runner.settings import Recording, RecordingSettings

pytestmark = pytest.mark.slow

SKIPPED = 3
RECORDED = 5
COMMON = """
    import io, queue, sys, threading, time
    import numpy as np

    def batch(number):
        time.sleep(0.005)
        return np.full((4, 8), number % 3, np.float32), np.ones((4, 1), np.float32)
"""
LOADERS = {
    "queue": (
        """
        def batches(count):
            ready = queue.Queue(2)
            threading.Thread(target=lambda: [ready.put(batch(n)) for n in range(count)], daemon=True).start()
            for _ in range(count):
                yield ready.get()
    """
    ),
    "images": (
        """
        from PIL import Image

        def batches(count):
            file = io.BytesIO()
            Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(file, "PNG")
            for n in range(count):
                Image.open(io.BytesIO(file.getvalue())).resize((8, 8)).load()
                yield batch(n)
    """
    ),
    "nodes": (
        """
        class batches:
            def __init__(self, count):
                self.numbers = iter(range(count))

            def __iter__(self):
                return self

            def __next__(self):
                return batch(next(self.numbers))
    """
    ),
}
PROGRAMS = {
    "torch": (
        """
        import torch
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for x, y in batches(12):
            optimizer.zero_grad()
            loss = ((model(torch.from_numpy(x)) - torch.from_numpy(y)) ** 2).mean()
            loss.backward()
            optimizer.step()
        print(loss.item())
    """
    ),
    "jax": (
        """
        import jax

        @jax.jit
        def scale(x):
            return x / 2

        @jax.jit
        def step(weights, x, y):
            loss = lambda weights: ((x @ weights - y) ** 2).mean()
            value, slope = jax.value_and_grad(loss)(weights)
            return weights - 0.01 * slope, value

        weights = np.ones((8, 1), np.float32)
        for x, y in batches(12):
            weights, loss = step(weights, scale(x), y)
        print(float(loss))
    """
    ),
    "keras": (
        """
        import keras
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        history = model.fit((pair for pair in batches(12)), steps_per_epoch=12, verbose=0)
        print(history.history["loss"][0])
    """
    ),
    "tensorflow": (
        """
        import tensorflow as tf
        weights = tf.Variable(tf.ones((8, 1)))
        optimizer = tf.keras.optimizers.SGD(0.01)

        @tf.function
        def step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((x @ weights - y) ** 2)
            optimizer.apply_gradients([(tape.gradient(loss, weights), weights)])
            return loss

        for x, y in batches(12):
            loss = step(x, y)
        print(float(loss))
    """
    ),
}
KERAS = {"keras on torch": "torch", "keras on jax": "jax", "keras on tensorflow": "tensorflow"}
IN_CI = {("torch", "queue"), ("jax", "images"), ("keras on torch", "nodes")}
NIGHTLY = [
    (program, loader)
    for program in ("torch", "jax", "tensorflow", *KERAS)
    for loader in LOADERS
    if (program, loader) not in IN_CI
]


def train(folder: Path, program: str, loader: str, recorded: bool = True) -> Recording:
    parts = (COMMON, LOADERS[loader], PROGRAMS[program.split()[0]])
    script = folder / "train.py"
    script.write_text("\n".join(map(textwrap.dedent, parts)))
    environ = environment(KERAS_BACKEND=KERAS.get(program, "tensorflow"), TF_CPP_MIN_LOG_LEVEL="3")
    skipped = SKIPPED if recorded else 1000
    tool = KERAS.get(program, program)
    settings = RecordingSettings(
        (sys.executable, str(script)),
        folder / "out",
        tool,
        skip_steps=skipped,
        record_steps=RECORDED,
    )
    return record(settings, environ)


@pytest.mark.parametrize(
    ("program", "loader"),
    [*sorted(IN_CI), *(pytest.param(*pair, marks=pytest.mark.nightly) for pair in NIGHTLY)],
)
def test_records_the_steps_and_the_functions_of_the_program(
    tmp_path: Path, program: str, loader: str
):
    done = train(tmp_path, program, loader)
    assert (done.code, done.notes, len(done.traces)) == (0, (), 1)
    trace = readers.read(done.traces[0])
    is_step = trace.ranges.kind == RangeKind.STEP
    names = sorted(
        trace.name(name).replace("#", " ") for name in trace.ranges.name[is_step].tolist()
    )
    assert names == [f"ProfilerStep {number}" for number in range(SKIPPED, SKIPPED + RECORDED)]
    assert analysis.analyze([trace]).verdict.headline.startswith(
        "The recording has no device activity."
    )
    if KERAS.get(program, program) == "tensorflow":
        return  # its profiler records no Python functions
    in_step = np.zeros(len(is_step), bool)
    for start, end in zip(trace.ranges.start[is_step], trace.ranges.end[is_step], strict=True):
        in_step |= (trace.ranges.start >= start) & (trace.ranges.end <= end)
    functions = {
        trace.name(name)
        for name in trace.ranges.name[in_step & (trace.ranges.kind == RangeKind.PYTHON)]
    }
    assert any(
        re.search(r"train\.py\(\d+\): (batches|__next__)$", function) for function in functions
    )


@pytest.mark.nightly
@pytest.mark.parametrize("program", ["torch", "jax", "tensorflow", *KERAS])
def test_the_result_is_as_without_a_recording(
    tmp_path: Path, program: str, capfd: pytest.CaptureFixture[str]
):
    losses = []
    for recorded in (True, False):
        done = train(tmp_path, program, "nodes", recorded)
        assert done.code == 0 and bool(done.traces) == recorded
        losses.append(capfd.readouterr().out)
    assert losses[0] == losses[1] and float(losses[0]) > 0
