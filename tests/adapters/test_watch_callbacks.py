"""How long training waits, as every framework's log has it."""

import json
import os
import subprocess
import sys
import time
import types
import warnings

import numpy as np
import pytest
from helpers.feeds import numbers
from helpers.needs import needs

import fastfeed as ff
from fastfeed.adapters.watch import loader as watched_loader
from fastfeed.errors import ConfigError
from fastfeed.feed.session import FeedSession
from fastfeed.live.folder import folders
from fastfeed.live.page import read_page
from fastfeed.live.watch import find_pages


class Clock:
    def __init__(self):
        self.now = 1

    def __call__(self):
        return self.now


def starved_loop(feed, clock, minutes, wait, steps_per_second=2, **options):
    """A loop that waits for this share of each step, on a clock of its own."""
    watch = ff.StepWatch(feed, every=10, clock=clock, **options)
    train(
        feed, clock, watch, int(minutes * 60 * steps_per_second), wait, int(1e9 / steps_per_second)
    )
    return watch


def train(feed, clock, watch, steps, wait, step_ns=500_000_000):
    FeedSession.of(feed).timeline.clock = clock
    for _ in range(steps):
        FeedSession.of(feed).meter.record_request(clock.now, 0)
        FeedSession.of(feed).live.requested(clock.now, 0)
        asked = clock.now
        clock.now += int(step_ns * wait)
        FeedSession.of(feed).meter.record_delivery(asked, clock.now, 10)
        FeedSession.of(feed).live.delivered(clock.now, (0, 0))
        clock.now += step_ns - int(step_ns * wait)
        watch.step()


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


@pytest.mark.parametrize(
    ("wait", "options"), [(0.1, {}), (0.9, {"warn": None}), (0.3, {"warn": 0.5})]
)
def test_no_warning_below_the_mark(wait, options):
    with numbers() as feed, warnings.catch_warnings():
        warnings.simplefilter("error")
        starved_loop(feed, Clock(), 3, wait, **options)


def test_an_epoch_of_fewer_steps_has_its_values_at_its_end():
    with numbers() as feed:
        clock = Clock()
        watch = ff.StepWatch(feed, clock=clock)  # every 50 steps
        for wait in (0.25, 0.75):
            watch.begin()
            train(feed, clock, watch, 7, wait)
            assert watch.end()["feed_wait"] == pytest.approx(wait, abs=0.01)
            clock.now += 1  # nothing was trained since, so there is no other value
            assert watch.end()["feed_wait"] == pytest.approx(wait, abs=0.01)


def test_steps_that_a_callback_times_are_on_the_page():
    with numbers() as feed:
        clock = Clock()
        watch = ff.StepWatch(feed, clock=clock)
        for _ in feed:
            clock.now += 25_000_000
            watch.step()
        counters = read_page(FeedSession.of(feed).live.path).counters
    assert counters["framework_steps"] == 4
    assert counters["framework_ns"] == 4 * 25_000_000


def test_other_loaders_are_watched(monkeypatch, tmp_path):
    clock = Clock()
    monkeypatch.setattr(watched_loader, "steady_ns", clock)
    monkeypatch.setenv("FASTFEED_LIVE", str(tmp_path))  # no one else's pages

    def batches():
        for _ in range(20):
            clock.now += 20_000_000
            yield {"image": np.zeros((16, 3)), "label": 0}

    class Loader:
        def __iter__(self):
            return batches()

        def __len__(self):
            return 20

    loader = ff.watched(Loader(), name="mine")
    watch = ff.StepWatch(loader, every=5, clock=clock)
    for epoch in range(2):
        seen = []
        for batch in loader:
            clock.now += 5_000_000
            log = watch.step()
            seen.append(batch["image"].shape)
        assert seen == [(16, 3)] * len(loader)
        (found,) = find_pages(folders()).pages
        assert found.page.counters["images"] == 320 * (epoch + 1)
        assert found.page.counters["phase"] == 0
    assert log["feed_wait"] == pytest.approx(0.8, abs=0.01)
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


@pytest.mark.parametrize(
    "options", [{"warn": 0}, {"warn": 2}, {"warn": "0.2"}, {"every": 0}, {"every": 2.5}]
)
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
        [sys.executable, "-W", "ignore", "-c", LIGHTNING],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert "['feed_rate', 'feed_wait'] True" in done.stdout, done.stderr[-3000:]


TRANSFORMERS = """
import json, sys, tempfile, numpy as np, torch, transformers
import fastfeed as ff
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(192, 2)
    def forward(self, images, labels):
        loss = torch.nn.functional.cross_entropy(self.layer(images.flatten(1)), labels)
        return {"loss": loss}
class Loader:
    def __iter__(self):
        return ({"images": images, "labels": labels} for images, labels in feed.to_torch("cpu"))
    def __len__(self):
        return len(feed)
class Trainer(transformers.Trainer):
    def get_train_dataloader(self):
        return Loader()
    def get_eval_dataloader(self, data=None):
        return [{"images": torch.zeros(4, 8, 8, 3), "labels": torch.zeros(4, dtype=torch.long)}] * 3
class First(transformers.TrainerCallback):  # of the reporters: those of W&B and TensorBoard are called in this place
    def on_log(self, args, state, control, logs=None, **_):
        seen.append(dict(logs))
feed = ff.Feed(ff.Arrays(np.zeros((80, 8, 8, 3), np.uint8), np.zeros(80, int)), [ff.ToFloat()], batch=4, threads=1)
results = {}
with tempfile.TemporaryDirectory() as folder:
    options = transformers.TrainingArguments(folder, num_train_epochs=2, logging_steps=10, report_to="none",
        save_strategy="no", eval_strategy="epoch", disable_tqdm=True, use_cpu=True)
    for place in ("last", "first"):
        seen, watch = [], ff.StepWatch(feed, every=5).to_transformers()
        trainer = Trainer(Model(), options, eval_dataset=[0], callbacks=[First(), watch])
        if place == "first":
            trainer.remove_callback(watch)
            trainer.callback_handler.callbacks.insert(0, watch)
        trainer.train()
        results[place] = {"history": trainer.state.log_history, "seen": seen}
json.dump(results, sys.stderr)
"""


@pytest.mark.slow
@needs("torch", "transformers")
def test_transformers_logs_both_values_of_training():
    """As docs/watching.md says: in `state.log_history`, and for reporters if it is put before
    them.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TRANSFORMERS],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for place, result in json.loads(done.stderr.splitlines()[-1]).items():
        training = [line for line in result["history"] if "loss" in line]
        assert [line["step"] for line in training] == [10, 20, 30, 40]
        assert all(0 <= line["feed_wait"] <= 1 and line["feed_rate"] > 0 for line in training)
        others = [line for line in result["history"] if "loss" not in line]
        assert {"eval_loss", "train_loss"} <= {name for line in others for name in line}
        assert not any("feed_wait" in line for line in others)
        assert [("feed_wait" in logs) for logs in result["seen"] if "loss" in logs] == [
            place == "first"
        ] * 4


@needs("grain")
def test_a_grain_loader_is_watched():
    """Grain reads ahead in threads of its own: only what the loop waits for counts."""
    import grain

    def slow(index):
        time.sleep(0.02)
        return np.full(3, index)

    data = grain.MapDataset.range(24).map(slow).batch(4)
    loader = ff.watched(
        data.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=1)), name="grain"
    )
    watch = ff.StepWatch(loader, every=3)
    for _ in range(2):
        assert [batch.shape for batch in loader] == [(4, 3)] * 6
    for _ in loader:
        log = watch.step()
    counters = read_page(loader.live.path).counters
    assert (counters["batches"], counters["images"], counters["phase"]) == (18, 72, 0)
    assert log["feed_wait"] > 0.5
    loader.close()


def test_a_step_costs_less_than_a_five_hundredth_of_20_ms():
    """Processor time of this thread, pages and callback together; the best of several rounds."""
    with numbers() as feed:
        list(feed)
        watch, meter, rounds = ff.StepWatch(feed), FeedSession.of(feed).meter, []
        for _ in range(10):
            began = time.thread_time_ns()
            for step in range(500):
                FeedSession.of(feed).live.requested(step, 0)
                FeedSession.of(feed).live.delivered(step, (0, step))
                meter.record_delivery(step, step, 10)
                watch.step()
            rounds.append((time.thread_time_ns() - began) / 500)
    assert min(rounds) < 0.002 * 20e6, os.uname()
