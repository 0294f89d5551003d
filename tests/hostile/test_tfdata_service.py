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

service, pipe = tf.data.experimental.service, subprocess.PIPE
if len(sys.argv) > 1:  # a worker
    kept = service.WorkerServer(service.WorkerConfig(dispatcher_address=sys.argv[1]))
    print("up", flush=True)
    sys.stdin.read()
    os._exit(0)


def yields(dispatcher, mode):
    images = np.arange(16, dtype=np.uint8)[:, None, None, None] * np.ones((1, 4, 4, 3), np.uint8)
    with ff.Feed(ff.Arrays(images, np.arange(16)), [], batch=4, threads=1) as feed:
        data = feed.to_tfdata().apply(service.distribute(processing_mode=mode, service=dispatcher.target))
        try:
            return sorted(int(label) for _, labels in data for label in labels)
        except (tf.errors.InvalidArgumentError, tf.errors.UnknownError) as error:
            return str(error)


results, kept = {}, []
for mode in ("distributed_epoch", "parallel_epochs"):
    dispatcher = service.DispatchServer()
    address = dispatcher.target.split("://")[1]
    kept += [service.WorkerServer(service.WorkerConfig(dispatcher_address=address)) for _ in range(2)]
    results[mode] = yields(dispatcher, mode)
dispatcher = service.DispatchServer()
worker = subprocess.Popen([sys.executable, sys.argv[0], dispatcher.target.split("://")[1]], stdin=pipe, stdout=pipe)
worker.stdout.readline()
results["elsewhere"] = yields(dispatcher, "parallel_epochs")
print(json.dumps(results), flush=True)
worker.stdin.close()
worker.wait()
os._exit(0)  # servers do not end by themselves
"""


def test_what_workers_yield(tmp_path: Path):
    pytest.importorskip("tensorflow", reason="needs TensorFlow: pip install 'fastfeed[tf]'")
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py")]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment(), timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    results = json.loads(done.stdout.splitlines()[-1])
    assert results["distributed_epoch"] == [*range(16)]
    assert "Could not find callback with key=pyfunc_" in results["elsewhere"]
    # one after the other, or both at once: then one iteration ends the other
    ended = (
        "another iteration of this feed has begun",
        "the feed was closed while waiting for a batch",
    )
    both = results["parallel_epochs"]
    assert both == sorted([*range(16)] * 2) or any(words in both for words in ended)
