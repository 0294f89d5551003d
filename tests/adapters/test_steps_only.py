"""Data that is not watched: what can be known is said, and nothing else."""

import io
import json

import numpy as np
import pytest
from helpers.needs import needs
from rich.console import Console

import fastfeed as ff
from fastfeed.adapters.step_watch import StepWatch
from fastfeed.adapters.steps_only import StepsOnly
from fastfeed.live.document import document
from fastfeed.live.prometheus import metrics
from fastfeed.live.screen import screen
from fastfeed.live.states import State
from fastfeed.live.watch import Watch
from fastfeed.runtime.live_folder import folders


class Clock:
    now = 1_000_000_000

    def __call__(self):
        return self.now


def test_steps_are_timed_and_no_waiting_is_claimed():
    clock, data = Clock(), StepsOnly("PyDataset")
    steps, watch = StepWatch(data, every=1, clock=clock), Watch(folders(), clock=clock)
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
    assert "waits - (10 s)" in console.file.getvalue()
    steps.end()
    clock.now += 5_000_000_000
    assert "not iterated for 5 s" in watch.look().rows[0].judgment.reason
    data.live.close()


@needs("keras")
@pytest.mark.slow
def test_plain_data_under_keras():
    import keras

    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    callback = ff.Watch()
    history = model.fit(np.zeros((40, 3)), np.zeros((40, 1)), batch_size=4, epochs=2, verbose=0, callbacks=[callback])
    assert set(history.history) == {"loss"}
    counters = callback._watch._status.page().counters
    assert counters["framework_steps"] >= 16
    assert counters["phase"] == 0
