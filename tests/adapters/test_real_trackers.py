"""Metrics and a file of a feed, written to real trackers and read back by their own readers."""

import json
import os
import subprocess
import sys

import pytest
from helpers.needs import needs

pytestmark = pytest.mark.nightly

LOOP = """
import json, sys, numpy as np, fastfeed as ff

def train(run, name="proof.json"):
    with open(name, "w") as file:
        file.write('{"fastfeed_prove": 1}')
    tracker = ff.Tracker(run)
    source = ff.Arrays(np.zeros((40, 8, 8, 3), np.uint8), np.zeros(40, int))
    with ff.Feed(source, [], batch=4, threads=1) as feed:
        watch = ff.StepWatch(feed, every=3, tracker=tracker)
        for _ in feed:
            watch.step()
    tracker.artifact(name)

def told(points, attached):
    print("READ", json.dumps([points, attached]))
"""
READ_EVENTS = """
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

def read_events():
    events = EventAccumulator("logs")
    events.Reload()
    names = [name for name in events.Tags()["scalars"] if name.startswith("feed_")]
    points = {name: [event.step for event in events.Scalars(name)] for name in names}
    if not points:  # of TensorFlow
        names = [name for name in events.Tags()["tensors"] if name.startswith("feed_")]
        points = {name: [event.step for event in events.Tensors(name)] for name in names}
    (name,) = {name for name in events.Tags()["tensors"] if name.startswith("proof.json")}
    return points, events.Tensors(name)[0].tensor_proto.string_val[0].decode().strip()
"""
TRACKERS = {
    "torch": (
        ["torch", "tensorboard"],
        READ_EVENTS
        + """
from torch.utils.tensorboard import SummaryWriter
with SummaryWriter("logs") as writer:
    train(writer)
told(*read_events())
""",
    ),
    "tensorboardX": (
        ["tensorboardX", "tensorboard"],
        READ_EVENTS
        + """
from tensorboardX import SummaryWriter
with SummaryWriter("logs") as writer:
    train(writer)
told(*read_events())
""",
    ),
    "tensorflow": (
        ["tensorflow", "tensorboard"],
        READ_EVENTS
        + """
import tensorflow as tf
writer = tf.summary.create_file_writer("logs")
train(writer)
writer.close()
told(*read_events())
""",
    ),
    "wandb": (
        ["wandb"],
        """
import glob, struct, wandb
from wandb.proto.wandb_internal_pb2 import Record

def records(data):  # the log format of LevelDB, after a header of seven bytes
    at, parts = 7, b""
    while at + 7 <= len(data):
        if (room := 32768 - at % 32768) < 7:
            at += room
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(parts)
            parts = b""

run = wandb.init(mode="offline", project="p", settings=wandb.Settings(silent=True))
run.log({"loss": 1.0})
train(run)
run.log({"loss": 0.5})
run.finish()
wandb.teardown()  # the file is complete when the process that writes it has ended
(name,) = glob.glob("wandb/offline-run-*/*.wandb")
points, attached = {}, ""
for record in records(open(name, "rb").read()):
    row = {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
    for name in row:
        if name.startswith("feed_") and name != "feed_step":
            points.setdefault(name, []).append(row["feed_step"])
    artifact = record.artifact if record.WhichOneof("record_type") == "artifact" else record.request.log_artifact.artifact
    for entry in artifact.manifest.contents:
        attached = open(entry.local_path).read()
told(points, attached)
""",
    ),
    "mlflow": (
        ["mlflow"],
        """
import mlflow
mlflow.set_tracking_uri("file:./runs")
with mlflow.start_run() as run:
    train(run)
client = mlflow.MlflowClient()
names = client.get_run(run.info.run_id).data.metrics
points = {name: [m.step for m in client.get_metric_history(run.info.run_id, name)] for name in names}
(path,) = [file.path for file in client.list_artifacts(run.info.run_id)]
told(points, open(client.download_artifacts(run.info.run_id, path, ".")).read())
""",
    ),
    "aim": (
        ["aim"],
        """
import aim, os
run = aim.Run(repo=".", system_tracking_interval=None, log_system_params=False)
run.set_artifacts_uri("file://" + os.path.abspath("artifacts"))
train(run)
(stored,) = run.artifacts.values()
metrics = {m.name: m for m in run.metrics() if m.name.startswith("feed_")}
points = {name: metric.data.indices_list() for name, metric in metrics.items()}
run.close()
told(points, open(stored.uri.removeprefix("file://")).read())
""",
    ),
    "clearml": (
        ["clearml"],
        """
import zipfile
from clearml import Task
Task.set_offline(True)
task = Task.init("p", "t", auto_connect_frameworks=False, auto_resource_monitoring=False)
train(task)
folder = task.get_offline_mode_folder()
task.close()
lines = []
with zipfile.ZipFile(str(folder) + ".zip") as kept:
    lines = [json.loads(line) for line in kept.read("metrics.jsonl").splitlines()]
    (path,) = [name for name in kept.namelist() if name.endswith("proof.json")]
    attached = kept.read(path).decode()
points = {}
for event in (event for line in lines for event in line):
    if event["metric"].startswith("feed_"):
        points.setdefault(event["metric"], []).append(event["iter"])
told(points, attached)
""",
    ),
}


@pytest.mark.parametrize(
    "script",
    [pytest.param(s, id=name, marks=needs(*packages)) for name, (packages, s) in TRACKERS.items()],
)
def test_a_tracker_has_the_metrics_and_the_file(script, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LOOP + script],
        cwd=tmp_path,
        env=os.environ | {"HOME": str(tmp_path), "MLFLOW_ALLOW_FILE_STORE": "true"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("READ ")]
    points, attached = json.loads(line.removeprefix("READ "))
    assert points == {name: [4, 7, 10] for name in ("feed_wait", "feed_rate", "feed_bad")}
    assert json.loads(attached) == {"fastfeed_prove": 1}


def test_a_meter_of_the_sdk_has_the_metrics():
    pytest.importorskip("opentelemetry.sdk", reason="needs pip install opentelemetry-sdk")
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    import fastfeed as ff

    reader = InMemoryMetricReader()
    tracker = ff.Tracker(MeterProvider([reader]).get_meter("training"))
    for wait in (0.5, 0.25):
        tracker.log({"feed_wait": wait}, step=1)
    (metric,) = json.loads(reader.get_metrics_data().to_json())["resource_metrics"][0][
        "scope_metrics"
    ][0]["metrics"]
    assert metric["name"] == "feed_wait"
    assert [point["value"] for point in metric["data"]["data_points"]] == [0.25]
