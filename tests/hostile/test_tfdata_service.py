"""`feed.to_tfdata()` behind the tf.data service: what docs/frameworks.md says of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import environment

pytestmark = pytest.mark.slow

SCRIPT = """
import json, os, subprocess, sys
import numpy as np
import tensorflow as tf
import fastfeed as ff

service, how = tf.data.experimental.service, sys.argv[1]
if how == "worker":
    kept = service.WorkerServer(service.WorkerConfig(dispatcher_address=sys.argv[2]))
    print("up", flush=True)
    sys.stdin.read()
    os._exit(0)
dispatcher = service.DispatchServer()
address = dispatcher.target.split("://")[1]
if how == "elsewhere":
    pipe = subprocess.PIPE
    worker = subprocess.Popen([sys.executable, sys.argv[0], "worker", address], stdin=pipe, stdout=pipe)
    worker.stdout.readline()
else:
    kept = [service.WorkerServer(service.WorkerConfig(dispatcher_address=address)) for _ in range(2)]
mode = "parallel_epochs" if how == "elsewhere" else how
images = np.arange(16, dtype=np.uint8)[:, None, None, None] * np.ones((1, 4, 4, 3), np.uint8)
with ff.Feed(ff.Arrays(images, np.arange(16)), [], batch=4, threads=1) as feed:
    data = feed.to_tfdata().apply(service.distribute(processing_mode=mode, service=dispatcher.target))
    try:
        result = sorted(int(label) for _, labels in data for label in labels)
    except (tf.errors.InvalidArgumentError, tf.errors.UnknownError) as error:
        result = str(error)
print(json.dumps(result), flush=True)
if how == "elsewhere":
    worker.stdin.close()
    worker.wait()
os._exit(0)  # servers do not end by themselves
"""


@pytest.mark.parametrize("how", ["distributed_epoch", "parallel_epochs", "elsewhere"])
def test_what_workers_yield(tmp_path: Path, how: str):
    pytest.importorskip("tensorflow", reason="needs TensorFlow: pip install 'fastfeed[tf]'")
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py"), how]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout.splitlines()[-1])
    if how == "elsewhere":
        assert "Could not find callback with key=pyfunc_" in result
    elif how == "parallel_epochs":  # one after the other, or both at once: then one iteration ends the other
        ended = ("another iteration of this feed has begun", "the feed was closed while waiting for a batch")
        assert result == sorted([*range(16)] * 2) or any(words in result for words in ended)
    else:
        assert result == [*range(16)]
