"""Run by test_keras_fit.py, once per backend: `fit` with data that is no feed, as `fastfeed prove`
measures it. Prints what was found, by case.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

os.environ["KERAS_BACKEND"] = sys.argv[1]
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
from keras.src.trainers import epoch_iterator

import fastfeed as ff
from fastfeed.proof.measure import loaders
from fastfeed.proof.measure.block_sizes import BlockSizes
from fastfeed.proof.measure.record import ProofRecord
from fastfeed.proof.result import Proof
from fastfeed.proof.run import trainer
from fastfeed.proof.run.data_loaders import LoaderChoice, watch_fit
from fastfeed.proof.run.runner import ProofJob

STEP_MS = 10.0
X, Y = np.ones((24, 8), np.float32), np.ones((24, 1), np.float32)
initialize = epoch_iterator.EpochIterator.__init__
now = [0]  # time passes where it is spent
loaders.steady_ns = lambda: now[0]
loaders.choose = lambda *_: BlockSizes(rounds=4, warmup=3, steps=20)
trainer.refuse_loaded = lambda: None


def spend(ms):
    now[0] += round(ms * 1e6)


class Spend(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        spend(STEP_MS)


def batches(ms):
    while True:
        spend(ms)
        yield X[:4], Y[:4]


class Rows(keras.utils.PyDataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return X[:4], Y[:4]


def proved(feed=None, **fit):
    """What was measured in a run of `fit`; None if nothing was."""
    with tempfile.TemporaryDirectory() as folder:
        trainer.write_job(folder, ProofJob(seconds=1.0, feed=feed))
        os.environ[trainer.PROVE] = folder
        trainer._run.clear()
        epoch_iterator.EpochIterator.__init__ = initialize
        watch_fit(epoch_iterator, LoaderChoice())
        model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        try:
            model.fit(callbacks=[Spend()], verbose=0, **fit)
        except trainer.ProofDone:
            pass
        finally:
            del os.environ[trainer.PROVE]
        path = Path(folder, trainer.record_name(0))
        if not path.exists():
            return None
        record = ProofRecord.from_dict(json.loads(path.read_text()))
    proof = Proof.of(record)
    return {
        "source": proof.feed["source"],
        "batch": proof.feed["batch"],
        "steps": proof.feed["steps"],
        "parts": {name: part.ms for name, part in proof.parts.items()},
        "resident": proof.steps["resident"].ms,
        "block": proof.block_steps,
        "notes": proof.notes,
    }


images = np.zeros((8, 8, 8, 3), np.uint8)
many = {"steps_per_epoch": 100_000}
found = {
    "slow": proved(x=batches(30), **many),
    "fast": proved(x=batches(0), **many),
    "arrays": proved(x=X, y=Y, batch_size=4, validation_split=0.25),
    "rows": proved(x=Rows()),
    "epochs": proved(
        x=batches(30),
        steps_per_epoch=18,
        epochs=1000,
        validation_data=(X, Y),
        validation_batch_size=4,
    ),
    "named": proved(feed="train", x=X, y=Y, epochs=2),
    "watched": proved(x=ff.watched(batches(0)).to_keras(), **many),
}
print(json.dumps(found))
