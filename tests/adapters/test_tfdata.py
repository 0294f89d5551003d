"""`to_tfdata`: shapes, length, order and epochs, in one other process, where TensorFlow stays."""

import json
import subprocess
import sys

import pytest
from helpers.needs import needs

pytestmark = needs("tensorflow")

PROGRAM = """
import gc, json, os, threading, time, weakref
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np, tensorflow as tf, fastfeed as ff
images, labels = np.random.default_rng(0).integers(0, 256, (22, 8, 6, 3), dtype=np.uint8), np.arange(22)
feed = ff.Feed(ff.Arrays(images, labels), [ff.RandomFlip(), ff.ToFloat(), ff.ToLayout("CHW")], batch=4, seed=1)
pure = [[b for b in feed.batches(epoch)] for epoch in range(2)]
data = feed.to_tfdata()
result = {"spec": str(data.element_spec)}
walked = [list(data) for _ in range(2)]
result["same"] = all(
    np.array_equal(x.numpy(), b.images) and np.array_equal(y.numpy(), b.labels)
    for epoch, batches in zip(walked, pure) for (x, y), b in zip(epoch, batches, strict=True)
)
padded = ff.Feed(ff.Arrays(images, labels), [], batch=8, tail="pad", shuffle=False)
result["padded"] = [len(y) for _, y in padded.to_tfdata()]
result["mapped"] = len(list(padded.to_tfdata().map(lambda x, y: (tf.cast(x, tf.float32), y)).take(2)))
result["again"] = {}
with ff.Feed(ff.Arrays(images), [], batch=8, world=ff.World(1, 2, 1, 2)) as ranks:
    for name, again in {"shuffle": lambda d: d.shuffle(99), "shard": lambda d: d.shard(2, 1)}.items():
        try:
            again(ranks.to_tfdata())
        except ff.errors.ConfigError as error:
            result["again"][name] = str(error)
len(list(padded.to_tfdata().shuffle(3).shard(1, 0)))
result["shares"] = []
for rank, size in [(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3)]:
    world = ff.World(rank, size, rank, size)
    with ff.Feed(ff.Arrays(images, labels), [], batch=8, tail="pad", shuffle=False, world=world) as ranks:
        result["shares"].append([y.numpy().tolist() for _, y in ranks.to_tfdata()])
with ff.Feed(ff.Arrays(images, labels), [], batch=7, tail="pad", world=ff.World(1, 3, 1, 3)) as ranks:
    try:
        ranks.to_tfdata()
    except ff.errors.ConfigError as error:
        result["refused"] = str(error)
ranks = ff.Feed(
    ff.Arrays(images, labels), [], batch=8, tail="pad", shuffle=False, world=ff.World(1, 2, 1, 2), on_bad="mask"
)
result["weights"] = [w.numpy().tolist() for _, _, w in ranks.to_tfdata()]
soft = ff.Feed(ff.Arrays(images, labels), [ff.OneHot(22), ff.CutMix()], batch=4, seed=1)
result["soft_spec"] = str(soft.to_tfdata().element_spec[1])
result["soft"] = all(
    np.array_equal(y.numpy(), b.labels) and np.allclose(y.numpy().sum(1), 1)
    for (_, y), b in zip(soft.to_tfdata(), soft.batches(0), strict=True)
)
soft.close()
half = ff.Feed(ff.Arrays(images), [ff.ToFloat("bfloat16")], batch=4, shuffle=False)
exact = tf.constant(images[:4] / np.float32(255))
result["bfloat16"] = bool(tf.reduce_all(next(iter(half.to_tfdata()))[0] == tf.cast(exact, tf.bfloat16)))
half.close()
boxes, masks = [[[i % 4, 1, 6, 7]] * (i % 3) for i in range(22)], [np.full((8, 6), i, np.uint8) for i in range(22)]
located = ff.Feed(ff.Objects(ff.Arrays(images), boxes, masks=masks), [ff.RandomFlip()], batch=4, seed=1)
result["located_spec"] = {k: str(v) for k, v in located.to_tfdata().element_spec[1].items()}
result["located"] = all(
    np.array_equal(y["boxes"], b.objects.boxes) and np.array_equal(y["labels"], b.objects.labels)
    and np.array_equal(y["masks"], b.masks)
    for (_, y), b in zip(located.to_tfdata(), located.batches(0), strict=True)
)
located.close()
feed.seek(5, 3)
result["restored"] = len(list(data))
ranks.close(), padded.close()

from fastfeed.feed.session import FeedSession
watched = weakref.ref(FeedSession.of(feed))
mapped = data.map(lambda x, y: x)
lost = tf.data.experimental.from_variant(tf.data.experimental.to_variant(data), structure=data.element_spec)
del feed, data, walked
gc.collect()
result["held_by_a_dataset"] = watched() is not None and len(list(mapped))
del mapped
gc.collect()
result["collected"] = watched() is None
try:
    list(lost)
except tf.errors.UnknownError as error:
    result["lost"] = str(error)
time.sleep(0.2)
result["threads"] = [t.name for t in threading.enumerate() if t.name.startswith("fastfeed")]
print(json.dumps(result))
"""


ON_DEVICE = """
import json, os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np, tensorflow as tf, fastfeed as ff
from fastfeed.adapters.tfdata import TfPlacement
from fastfeed.errors import ConfigError
images = np.random.default_rng(0).integers(0, 256, (22, 8, 6, 3), dtype=np.uint8)
feed = ff.Feed(ff.Arrays(images, np.arange(22)), [ff.RandomFlip(), ff.ToFloat()], batch=4, seed=1)
pure = [list(feed.batches(epoch)) for epoch in range(3)]
result = {}
data = feed.to_tfdata(device="/CPU:0")
result["device"] = all(
    np.array_equal(x.numpy(), b.images) for epoch in pure[:2] for (x, _), b in zip(data, epoch, strict=True)
)
feed.seek(0)
own = feed.to_tfdata().apply(tf.data.experimental.prefetch_to_device("/CPU:0"))
result["own_prefetch"] = all(np.array_equal(y.numpy(), b.labels) for (_, y), b in zip(own, pure[0], strict=True))
feed.seek(0)
kept = [x for _ in range(3) for x, _ in feed.to_tfdata()]
result["kept"] = all(np.array_equal(x.numpy(), b.images) for x, b in zip(kept, sum(pure, []), strict=True))
feed.seek(0)
result["placed"] = [
    [type(b.images).__name__, np.array_equal(b.images.numpy(), p.images), b.step]
    for b, p in zip(ff.prefetch_to_device(feed, "tf:CPU:0"), pure[0], strict=True)
]
buffer = np.zeros((3, 3), np.float32)
def refilled():
    for i in range(8):
        buffer[:] = i
        yield {"x": buffer, "y": np.array(["text"]), "z": np.array([True])}
result["refilled"] = [float(item["x"][1, 1]) for item in list(ff.prefetch_to_device(refilled(), "tf:/CPU:0"))]
result["about"] = str(feed).splitlines()[-1]
for name in ("/GPU:0", "tf:GPU:7"):
    try:
        ff.prefetch_to_device([np.zeros(1)], name if ":" in name[:3] else "tf:" + name)
    except ConfigError as error:
        result[name] = str(error)
offset = np.arange(65, dtype=np.int64)[1:]  # TensorFlow's own kernels end the process at memory that is not aligned
result["offset"] = [int(tf.reduce_sum(tf.cast(x, tf.float32))) for x in TfPlacement("CPU:0", 4).put((offset, offset[:9]))]
first, second = iter(feed.to_tfdata()), iter(feed.to_tfdata())
next(first), next(second)
try:
    next(first)
except tf.errors.UnknownError as error:
    result["twice"] = str(error)
print(json.dumps(result))
"""


@pytest.fixture(scope="module")
def results() -> list[dict]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM + ON_DEVICE],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()[-2:]]


def test_a_dataset_walks_the_feed(results):
    result, _ = results
    assert "shape=(4, 3, 8, 6), dtype=tf.float32" in result["spec"]
    assert "shape=(4,), dtype=tf.int64" in result["spec"]
    assert result["same"]
    assert "shape=(4, 22), dtype=tf.float32" in result["soft_spec"] and result["soft"]
    assert result["located"] and result["located_spec"] == {
        "boxes": "TensorSpec(shape=(4, 2, 4), dtype=tf.float32, name=None)",
        "labels": "TensorSpec(shape=(4, 2), dtype=tf.int64, name=None)",
        "masks": "TensorSpec(shape=(4, 8, 6), dtype=tf.uint8, name=None)",
    }
    assert result["bfloat16"]
    assert result["padded"] == [8, 8, 6]
    one, *two, a, b, c = result["shares"]
    assert [list(map(len, rank)) for rank in two] == [[8, 3], [8, 3]]
    assert [list(map(len, rank)) for rank in (a, b, c)] == [[8], [7], [7]]
    for shares in ([one], two, [a, b, c]):
        assert sorted(label for rank in shares for batch in rank for label in batch) == list(
            range(22)
        )
    assert result["refused"].startswith(
        'tail="pad" leaves 1 of 22 samples to the last batch of 3 ranks'
    )
    assert result["weights"] == [[1.0] * 8, [1.0] * 3 + [0.0] * 5]
    assert result["restored"] == 2
    assert result["held_by_a_dataset"] == 5
    assert result["collected"]
    assert (
        "the feed of this dataset was garbage collected; keep a reference to the feed, or to what"
        in result["lost"]
    )
    assert result["mapped"] == 2
    assert result["threads"] == []


def test_a_second_shuffle_or_split_is_refused(results):
    again = results[0]["again"]
    assert again["shuffle"] == (
        ".shuffle() of to_tfdata() would do to whole batches what the feed has done to samples:"
        " leave .shuffle(...) out, or pass shuffle=False to Feed"
    )
    assert again["shard"].endswith("leave .shard(...) out, or pass world=ff.World() to Feed")


def test_batches_on_a_device(results):
    _, result = results
    assert result["device"] and result["own_prefetch"] and result["kept"]
    assert result["placed"] == [["EagerTensor", True, step] for step in range(5)]
    assert result["refilled"] == [float(i) for i in range(8)]
    assert "placed on TensorFlow CPU:0: at most 4 batches" in result["about"]
    assert (
        "device must be one of TensorFlow's here (/device:CPU:0), got '/GPU:0'" in result["/GPU:0"]
    )
    assert "got 'GPU:7'" in result["tf:GPU:7"]
    assert result["offset"] == [64 * 65 // 2, 9 * 10 // 2]
    assert "another iteration of this feed has begun" in result["twice"]
