"""How long training waits, as every framework's log has it."""

import importlib.util
import json
import os
import subprocess
import sys
import time
import types
import warnings
from pathlib import Path

import numpy as np
import pytest
from helpers.feeds import numbers
from helpers.needs import needs

import fastfeed as ff
from fastfeed.errors import ConfigError
from fastfeed.live.pages import find_pages
from fastfeed.runtime.live_folder import folders
from fastfeed.runtime.live_page import read_page

BACKENDS = [pytest.param(name, marks=needs("keras", name)) for name in ("tensorflow", "jax", "torch")]


@pytest.fixture(scope="module", params=BACKENDS)
def session(request):
    program = Path(__file__).with_name("keras_watch_session.py")
    command = [sys.executable, "-W", "ignore", str(program), request.param]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return request.param, json.loads(done.stdout.splitlines()[-1])


def test_keras_has_the_true_wait_on_every_backend(session):
    """Keras takes batches inside of its training function on TensorFlow and JAX: no gap between callbacks tells."""
    backend, result = session
    known = [wait for wait in result["seen"] if wait is not None]
    assert len(known) >= 15
    # (make - step) / make, where the step is its sleep of 0.15 s and a little training
    assert (0.4 - 0.15 - 0.06) / 0.4 <= known[-1] <= (0.4 - 0.15) / 0.4 + 0.02
    assert result["history"]["feed_wait"] == [known[-1]]
    assert result["rate"] == pytest.approx(4 / 0.4, rel=0.2)
    blind = result["gaps"] < 0.2
    assert blind == (backend != "torch")


def test_keras_need_not_wait_for_the_callback(session):
    backend, result = session
    assert result["async"] == result["may_be_async"], backend


class Clock:
    def __init__(self):
        self.now = 1

    def __call__(self):
        return self.now


def starved_loop(feed, clock, minutes, wait, steps_per_second=2, **options):
    """A loop that waits for this share of each step, on a clock of its own."""
    feed.timeline.clock = clock
    watch, meter = ff.StepWatch(feed, every=10, clock=clock, **options), feed._meter
    step = int(1e9 / steps_per_second)
    for _ in range(int(minutes * 60 * steps_per_second)):
        meter.record_request(clock.now, 0)
        feed.live.requested(clock.now, 0)
        asked = clock.now
        clock.now += int(step * wait)
        meter.record_delivery(asked, clock.now, 10)
        feed.live.delivered(clock.now, (0, 0))
        clock.now += step - int(step * wait)
        watch.step()
    return watch


def test_one_warning_per_run_and_only_after_a_minute():
    with numbers() as feed, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        watch = starved_loop(feed, Clock(), 0.9, 0.5)
        assert not caught
        assert watch.values["feed_wait"] == pytest.approx(0.5)
        assert watch.values["feed_rate"] == pytest.approx(20)
        starved_loop(feed, Clock(), 5, 0.5)
    (warning,) = caught
    assert warning.category is ff.GPUStarved
    assert "has waited for its input 50% of the last" in str(warning.message)
    assert "it gets 20 images/s and could use 40" in str(warning.message)


@pytest.mark.parametrize(("wait", "options"), [(0.1, {}), (0.9, {"warn": None}), (0.3, {"warn": 0.5})])
def test_no_warning_below_the_mark(wait, options):
    with numbers() as feed, warnings.catch_warnings():
        warnings.simplefilter("error")
        starved_loop(feed, Clock(), 3, wait, **options)


def test_steps_that_a_callback_times_are_on_the_page():
    with numbers() as feed:
        clock = Clock()
        watch = ff.StepWatch(feed, clock=clock)
        for _ in feed:
            clock.now += 25_000_000
            watch.step()
        counters = read_page(feed.live.path).counters
    assert counters["framework_steps"] == 4
    assert counters["framework_ns"] == 4 * 25_000_000


def test_other_loaders_are_watched():
    def batches():
        for _ in range(20):
            time.sleep(0.02)
            yield {"image": np.zeros((16, 3)), "label": 0}

    class Loader:
        def __iter__(self):
            return batches()

        def __len__(self):
            return 20

    loader = ff.watched(Loader(), name="mine")
    watch = ff.StepWatch(loader, every=5)
    for epoch in range(2):
        seen = []
        for batch in loader:
            time.sleep(0.005)
            log = watch.step()
            seen.append(batch["image"].shape)
        assert seen == [(16, 3)] * len(loader)
        (found,) = find_pages(folders()).pages
        assert found.page.counters["images"] == 320 * (epoch + 1)
        assert found.page.counters["phase"] == 0
    assert log["feed_wait"] == pytest.approx(0.8, abs=0.1)
    assert found.page.identity["name"] == "mine"
    assert isinstance(iter(loader), types.GeneratorType)  # what Keras takes
    del loader, watch
    assert not find_pages(folders()).pages


def test_an_error_of_a_loader_is_its_own():
    def batches():
        yield np.zeros(3)
        raise KeyError("own")

    loader = ff.watched(batches())
    with pytest.raises(KeyError, match="own"):
        list(loader)
    assert read_page(loader.live.path).counters["failed"] == 1
    loader.close()


@pytest.mark.parametrize("data", [3, None])
def test_what_cannot_be_watched(data):
    with pytest.raises(ConfigError, match="needs a loader to iterate"):
        ff.watched(data)
    with pytest.raises(ConfigError, match="wrap the loader"):
        ff.StepWatch([1, 2])


def test_items_by_index_are_refused():
    class ByIndex:
        def __getitem__(self, index):
            return index

    with pytest.raises(ConfigError, match="by index"):
        ff.watched(ByIndex())


@pytest.mark.parametrize("options", [{"warn": 0}, {"warn": 2}, {"warn": "0.2"}, {"every": 0}, {"every": 2.5}])
def test_options_are_checked(options):
    with numbers() as feed, pytest.raises(ConfigError, match=next(iter(options))):
        ff.StepWatch(feed, **options)


@needs("torch")
def test_a_torch_loop():
    with numbers() as feed:
        watch = ff.StepWatch(data := feed.to_torch("cpu"), every=1)
        for _images, _labels in data:
            log = watch.step()
    assert set(log) == {"feed_wait", "feed_rate"}


@needs("jax")
def test_a_jax_loop():
    with numbers() as feed:
        watch = ff.StepWatch(data := feed.to_jax(), every=1)
        for _images, _labels in data:
            log = watch.step()
    assert set(log) == {"feed_wait", "feed_rate"}


LIGHTNING = """
import lightning, torch, numpy as np, logging
import fastfeed as ff
logging.getLogger("lightning").setLevel(logging.ERROR)
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(192, 2)
    def training_step(self, batch, index):
        images, labels = batch
        return torch.nn.functional.cross_entropy(self.layer(images.flatten(1)), labels)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
feed = ff.Feed(ff.Arrays(np.zeros((80, 8, 8, 3), np.uint8), np.zeros(80, int)), [ff.ToFloat()], batch=4, threads=1)
trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False,
    callbacks=[ff.StepWatch(feed, every=5).to_lightning()])
trainer.fit(Model(), feed.to_torch("cpu"))
print(sorted(trainer.callback_metrics), float(trainer.callback_metrics["feed_rate"]) > 0)
"""


@pytest.mark.slow
@needs("lightning")
def test_lightning_logs_both_values():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LIGHTNING], capture_output=True, text=True, timeout=200
    )
    assert "['feed_rate', 'feed_wait'] True" in done.stdout, done.stderr[-3000:]


def test_transformers_logs_get_both_values(monkeypatch):
    """Against the callback's calls alone where the package is missing; its base class has them, too."""
    if importlib.util.find_spec("transformers") is None:
        monkeypatch.setitem(
            sys.modules, "transformers", types.SimpleNamespace(TrainerCallback=type("TrainerCallback", (), {}))
        )
    with numbers() as feed:
        callback = (watch := ff.StepWatch(feed, every=1)).to_transformers()
        callback.on_epoch_begin(None, None, None)
        for _ in feed:
            callback.on_step_end(None, None, None)
        training, evaluation = {"loss": 1.0}, {"eval_loss": 1.0}
        state = types.SimpleNamespace(log_history=[{"step": 5}, training | {"step": 10}])
        callback.on_log(None, state, None, logs=training)
        callback.on_log(None, state, None, logs=evaluation)
    assert state.log_history == [{"step": 5}, {"loss": 1.0, "step": 10} | watch.values]
    assert training == {"loss": 1.0} | watch.values
    assert set(watch.values) == {"feed_wait", "feed_rate"}
    assert evaluation == {"eval_loss": 1.0}


def test_a_step_costs_less_than_a_five_hundredth_of_20_ms():
    """Processor time of this thread, pages and callback together; the best of several rounds."""
    with numbers() as feed:
        list(feed)
        watch, meter, rounds = ff.StepWatch(feed), feed._meter, []
        for _ in range(10):
            began = time.thread_time_ns()
            for step in range(500):
                feed.live.requested(step, 0)
                feed.live.delivered(step, (0, step))
                meter.record_delivery(step, step, 10)
                watch.step()
            rounds.append((time.thread_time_ns() - began) / 500)
    assert min(rounds) < 0.002 * 20e6, os.uname()
