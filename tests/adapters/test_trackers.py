"""Experiment trackers: what each is called with, by stand-ins of the same interface.

`test_real_trackers.py` writes to the real ones, and reads back.
"""

import itertools
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from helpers.feeds import numbers
from helpers.needs import needs

import fastfeed as ff
from fastfeed.errors import ConfigError
from fastfeed.feed.session import FeedSession


class Recorder:
    """A run of a library: notes the calls of the methods that it has."""

    def __init__(self, calls, **methods):
        for name, result in methods.items():
            setattr(self, name, self._method(calls, name, result))

    @staticmethod
    def _method(calls, name, result):
        def method(*args, **options):
            calls.append((name, args, options))
            return result

        return method


def run_of(module, calls, **methods):
    """A run whose class is derived from one of this module."""
    base = type("Base", (Recorder,), {"__module__": module})
    return type("Run", (base,), {"__module__": "users"})(calls, **methods)


METRICS = {"feed_wait": 0.25, "feed_bad": 3}


def summary_writer(calls, _):
    return run_of("torch.utils.tensorboard.writer", calls, add_scalar=None, add_text=None)


def wandb(calls, _):
    return run_of("wandb.sdk.wandb_run", calls, define_metric=None, log=None, log_artifact=None)


def wandb_module(calls, monkeypatch):
    module = ModuleType("wandb")
    module.run = wandb(calls, monkeypatch)
    return module


def mlflow(calls, monkeypatch):
    library = run_of("mlflow", calls, log_metrics=None, log_artifact=None)
    monkeypatch.setitem(sys.modules, "mlflow", library)
    run = run_of("mlflow.tracking.fluent", calls)
    run.info = SimpleNamespace(run_id="r7")
    return run


def mlflow_module(calls, monkeypatch):
    run, module = mlflow(calls, monkeypatch), ModuleType("mlflow")
    sys.modules["mlflow"].active_run = lambda: run
    return module


def aim(calls, _):
    return run_of("aim.sdk.run", calls, track=None, log_artifact=None)


def clearml(calls, _):
    logger = Recorder(calls, report_scalar=None)
    return run_of("clearml.task", calls, get_logger=logger, upload_artifact=None)


def meter(calls, _):
    return run_of(
        "opentelemetry.sdk.metrics._internal", calls, create_gauge=Recorder(calls, set=None)
    )


MLFLOW = [
    ("log_metrics", (METRICS,), {"step": 50, "run_id": "r7"}),
    ("log_artifact", ("FILE",), {"run_id": "r7"}),
]
WANDB = [
    ("define_metric", ("feed_*",), {"step_metric": "feed_step"}),
    ("log", ({**METRICS, "feed_step": 50},), {}),
    ("log_artifact", ("FILE",), {"name": "my_proof.json", "type": "report"}),
]
CALLS = {
    summary_writer: [
        ("add_scalar", ("feed_wait", 0.25, 50), {}),
        ("add_scalar", ("feed_bad", 3, 50), {}),
        ("add_text", ("my proof.json", '    {"a":\n     1}\n'), {}),
    ],
    wandb: WANDB,
    wandb_module: WANDB,
    mlflow: MLFLOW,
    mlflow_module: MLFLOW,
    aim: [
        ("track", (0.25,), {"name": "feed_wait", "step": 50}),
        ("track", (3,), {"name": "feed_bad", "step": 50}),
        ("log_artifact", ("FILE",), {"name": "my proof.json"}),
    ],
    clearml: [
        ("get_logger", (), {}),
        ("report_scalar", ("feed_wait", "fastfeed", 0.25, 50), {}),
        ("report_scalar", ("feed_bad", "fastfeed", 3, 50), {}),
        ("upload_artifact", ("my proof.json", "PATH"), {}),
    ],
}


@pytest.mark.parametrize("opened", CALLS, ids=lambda opened: opened.__name__)
def test_what_a_tracker_is_called_with(opened, monkeypatch, tmp_path):
    file = tmp_path / "my proof.json"
    file.write_text('{"a":\n 1}')
    calls = []
    tracker = ff.Tracker(opened(calls, monkeypatch))
    tracker.log(METRICS, step=50)
    tracker.artifact(file)
    names = {"FILE": str(file), "PATH": file}
    expected = [
        (name, tuple(names.get(arg, arg) if isinstance(arg, str) else arg for arg in args), options)
        for name, args, options in CALLS[opened]
    ]
    assert calls == expected


def test_a_meter_has_a_gauge_for_each_metric():
    calls = []
    tracker = ff.Tracker(meter(calls, None))
    for wait in (0.5, 0.25):
        tracker.log({"feed_wait": wait}, step=1)
    assert calls == [
        ("create_gauge", ("feed_wait",), {}),
        ("set", (0.5,), {}),
        ("set", (0.25,), {}),
    ]


@needs("opentelemetry")
def test_a_meter_of_the_api_without_an_sdk_is_taken():
    from opentelemetry import metrics

    ff.Tracker(metrics.get_meter("training")).log(METRICS, step=50)


def test_a_watch_logs_at_the_batches_since_epoch_0():
    logged = []

    def log(metrics, step):
        logged.append((step, sorted(metrics)))

    with numbers() as feed:  # five batches
        watch = ff.StepWatch(feed, every=2, tracker=log)
        feed.seek(epoch=3, step=1)
        for _ in itertools.chain(feed, feed):
            watch.step()
    names = ["feed_bad", "feed_rate", "feed_wait"]
    assert logged == [(19, names), (21, names), (23, names), (25, names)]


def test_bad_samples_of_a_feed_are_logged(tmp_path):
    source = ff.Files(
        [tmp_path / f"{k}.jpg" for k in range(4)],
    )
    logged = []
    policy = ff.FaultPolicy("mask", max_share=1)
    with ff.Feed(source, [ff.Resize((4, 4))], batch=2, on_bad=policy, threads=1) as feed:
        watch = ff.StepWatch(feed, every=1, tracker=lambda metrics, step: logged.append(metrics))
        for _ in feed:
            watch.step()
    assert logged[-1]["feed_bad"] == 4


def test_other_loaders_have_no_count_of_bad_samples():
    logged = []
    loader = ff.watched(iter([np.zeros(3)] * 3))  # of unknown length
    watch = ff.StepWatch(loader, every=1, tracker=lambda *arguments: logged.append(arguments))
    for _ in loader:
        watch.step()
    loader.close()
    assert [(sorted(metrics), step) for metrics, step in logged] == [
        (["feed_rate", "feed_wait"], 2),
        (["feed_rate", "feed_wait"], 3),
    ]


@pytest.mark.slow
@needs("keras", "tensorflow")
def test_keras_logs_to_a_tracker_during_an_epoch():
    import keras

    logged = []
    with numbers(batch=5) as feed:
        model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten()])
        model.add(keras.layers.Dense(1))
        model.compile("sgd", "mse")
        watch = ff.Watch(every=4, tracker=lambda metrics, step: logged.append((step, metrics)))
        model.fit(feed.to_keras(), epochs=2, verbose=0, callbacks=[watch])
        assert FeedSession.of(feed).meter.batches == 20
    assert len(logged) == 4
    assert all(metrics.keys() == {"feed_wait", "feed_rate", "feed_bad"} for _, metrics in logged)
    steps = [step for step, _ in logged]
    assert steps == sorted(set(steps))


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (3, "got int; pass lambda"),
        (dict, "got type; pass lambda"),
        (run_of("mlflow.tracking.client", []), "a Run of mlflow logs no metrics"),
        (run_of("clearml.logger", []), "a Run of clearml logs no metrics"),
    ],
)
def test_what_is_no_run(run, text, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", ModuleType("mlflow"))
    with pytest.raises(ConfigError, match=text) as error:
        ff.Tracker(run)
    assert error.value.field == "run"


def test_a_library_without_an_active_run_is_refused(monkeypatch):
    module = ModuleType("wandb")
    module.run = None
    with pytest.raises(ConfigError, match=r"call wandb\.init\(\) first"):
        ff.Tracker(module)


def test_files_that_cannot_be_attached(tmp_path):
    page = tmp_path / "proof.html"
    with pytest.raises(ConfigError, match="an existing file"):
        ff.Tracker(print).artifact(page)
    page.write_text("<!doctype html>")
    with pytest.raises(ConfigError, match="takes no files"):
        ff.Tracker(print).artifact(page)
    with pytest.raises(ConfigError, match=r"\.json, \.md, \.txt for TensorBoard"):
        ff.Tracker(summary_writer([], None)).artifact(page)
