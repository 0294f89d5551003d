"""Run by test_scripted_trainers.py, once per framework: proofs, as `fastfeed prove` makes them, of
trainers with known costs. Prints how often the truth was found, by part.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

os.environ["KERAS_BACKEND"] = sys.argv[1].removeprefix("keras-")
os.environ["OMP_NUM_THREADS"] = "1"  # the machine may be busy
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from helpers.scripted import ALL, Pages, Script, scripted_feed

import fastfeed as ff
import fastfeed.proof.measure.session
from fastfeed.proof.measure.record import ProofRecord
from fastfeed.proof.result import Proof
from fastfeed.proof.run import trainer
from fastfeed.proof.run.runner import ProofJob

FRAMEWORK, FIRST, PROOFS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
fastfeed.proof.measure.session.FilePages = Pages  # type: ignore[misc]


def keras_trainer(feed, script):
    import keras

    class Spend(keras.callbacks.Callback):
        async_safe = True

        def on_train_batch_begin(self, batch, logs=None):
            script.train_on(feed)

    model = keras.Sequential([keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, jit_compile=FRAMEWORK == "keras-jax")
    callbacks = [
        Spend(),
        keras.callbacks.ModelCheckpoint("model.keras"),
        ff.keras.backup(feed, "backup"),
    ]
    model.fit(feed.to_keras(), epochs=2, verbose=0, callbacks=callbacks)


def torch_trainer(feed, script):
    import torch

    weight = torch.zeros(3, requires_grad=True)
    for _epoch in range(2):
        for images, _labels in feed.to_torch("cpu"):
            (images.float() @ weight).sum().backward()
            script.train_on(feed)
        torch.save(weight, "weight.pt")


def jax_trainer(feed, script):
    import jax

    loss = jax.jit(lambda weight, images: (images * weight).sum())
    for _epoch in range(2):
        for images, _labels in feed.to_jax():
            loss(2.0, images)
            script.train_on(feed)


TRAINERS = {"torch": torch_trainer, "jax": jax_trainer}
TRAINERS |= dict.fromkeys(("keras-tensorflow", "keras-jax", "keras-torch"), keras_trainer)


def proved(seed):
    costs = ALL[seed % len(ALL)]
    script = Script(costs, seed)
    with tempfile.TemporaryDirectory() as folder, scripted_feed(script) as feed:
        trainer.write_job(folder, ProofJob(seconds=40.0))
        os.environ["FASTFEED_PROVE"] = folder
        os.chdir(folder)
        trainer._run.clear()
        try:
            TRAINERS[FRAMEWORK](feed, script)
            raise AssertionError("the trainer ended by itself")
        except trainer.ProofDone as done:
            assert done.code == 0
        saved = [
            path.name
            for path in Path(folder).iterdir()
            if path.suffix in (".keras", ".pt") or path.is_dir()
        ]
        assert not saved, saved
        record = ProofRecord.from_dict(json.loads(Path(folder, trainer.record_name(0)).read_text()))
        os.chdir("/")
    proof = Proof.of(record)
    assert sum(part.ns for part in proof.parts.values()) == proof.input.ns
    found = {**proof.parts, "input": proof.input}
    return {name: part.holds(costs.truth[name] * 1e6) for name, part in found.items()}


results = [proved(seed) for seed in range(FIRST, FIRST + PROOFS)]
print(json.dumps({name: sum(result[name] for result in results) for name in results[0]}))
