"""`to_tfdata`: shapes, length, order and epochs, in a process of its own because TensorFlow stays in one."""

import importlib.util
import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")

PROGRAM = """
import json, os, threading
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np, tensorflow as tf, fastfeed as ff
images, labels = np.random.default_rng(0).integers(0, 256, (22, 8, 6, 3), dtype=np.uint8), np.arange(22)
feed = ff.Feed(ff.Arrays(images, labels), [ff.RandomFlip(), ff.ToFloat(), ff.ToLayout("CHW")], batch=4, seed=1)
pure = [[b for b in feed.batches(epoch)] for epoch in range(2)]
data = feed.to_tfdata()
result = {"spec": str(data.element_spec), "length": int(data.cardinality())}
walked = [list(data) for _ in range(2)]
result["same"] = all(
    np.array_equal(x.numpy(), b.images) and np.array_equal(y.numpy(), b.labels)
    for epoch, batches in zip(walked, pure) for (x, y), b in zip(epoch, batches, strict=True)
)
padded = ff.Feed(ff.Arrays(images, labels), [], batch=8, tail="pad", shuffle=False)
result["weights"] = np.concatenate([w.numpy() for _, _, w in padded.to_tfdata()]).tolist()
result["mapped"] = len(list(padded.to_tfdata().map(lambda x, y, w: (tf.cast(x, tf.float32), y)).take(2)))
feed.close(), padded.close()
result["threads"] = [t.name for t in threading.enumerate() if t.name.startswith("fastfeed")]
print(json.dumps(result))
"""


def test_a_dataset_walks_the_feed():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert "shape=(4, 3, 8, 6), dtype=tf.float32" in result["spec"]
    assert "shape=(4,), dtype=tf.int64" in result["spec"]
    assert result["length"] == 5
    assert result["same"]
    assert result["weights"] == [1.0] * 22 + [0.0] * 2
    assert result["mapped"] == 2
    assert result["threads"] == []
