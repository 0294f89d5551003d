"""Data that is not watched: what can be known is said, and nothing else."""

import io
import json
import subprocess
import sys

import pytest
from helpers.needs import needs
from rich.console import Console

from fastfeed.adapters.watch.loader import StepsOnly
from fastfeed.adapters.watch.steps import StepWatch
from fastfeed.live.document import document
from fastfeed.live.folder import folders
from fastfeed.live.http.prometheus import metrics
from fastfeed.live.screen import screen
from fastfeed.live.states import State
from fastfeed.live.watch import Monitor


class Clock:
    now = 1_000_000_000

    def __call__(self):
        return self.now


def test_steps_are_timed_and_no_waiting_is_claimed():
    clock, data = Clock(), StepsOnly("PyDataset")
    steps, watch = StepWatch(data, every=1, clock=clock), Monitor(folders(), clock=clock)
    for _ in range(20):
        for _ in range(4):
            clock.now += 250_000_000
            assert steps.step() == {}
        view = watch.look()
    (row,) = view.rows
    assert row.judgment.state is State.UNKNOWN
    assert "how long it waits is not known; a step takes 250 ms" in row.judgment.reason
    (feed,) = json.loads(json.dumps(document(view)))["feeds"]
    assert feed["exact"]["wait_10s"] is None
    assert feed["framework"] == {"step_ms": 250.0}
    assert "fastfeed_wait_ratio{" not in metrics(view)
    console = Console(file=io.StringIO(), width=80)
    console.print(screen(view, 80))
    assert "waits -" in [line.strip() for line in console.file.getvalue().splitlines()]
    steps.end()
    clock.now += 5_000_000_000
    assert "not iterated for 5 s" in watch.look().rows[0].judgment.reason
    data.live.close()


PLAIN = """
import json, os
os.environ["KERAS_BACKEND"] = "tensorflow"
import keras, numpy as np, tensorflow as tf
import fastfeed as ff
from fastfeed.live.watch import Monitor
from fastfeed.live.document import document
from fastfeed.live.folder import folders
def fit(*data, **options):
    views = []
    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            views.append(document(watch.look()))
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    callback, watch = ff.Watch(), Monitor(folders(), os.getpid())
    history = model.fit(*data, **options, epochs=2, verbose=0, callbacks=[callback, Look()])
    counters = callback._watch._status.page().counters
    print(json.dumps({"history": sorted(history.history), "counters": counters, "feeds": views[-1]["feeds"]}))
x, y = np.zeros((40, 3)), np.zeros((40, 1))
fit(x, y, batch_size=4)
fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(4).prefetch(2))
"""


@needs("keras", "tensorflow")
@pytest.mark.slow
def test_plain_data_under_keras():
    """Arrays, then a `tf.data.Dataset`."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PLAIN], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results = [json.loads(line) for line in done.stdout.splitlines()[-2:]]
    assert len(results) == 2
    for result in results:
        assert result["history"] == ["loss"]
        assert result["counters"]["framework_steps"] >= 16
        assert result["counters"]["phase"] == 0
        (feed,) = result["feeds"]
        assert feed["state"] == "UNKNOWN"
        assert "how long it waits is not known; a step takes" in feed["reason"]
        assert feed["framework"]["step_ms"] > 0
        assert feed["exact"]["wait"] is None and feed["remedy"] is None
