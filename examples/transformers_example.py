"""Hugging Face's Trainer on a feed, with the time that training waits for it in every line of its
log. It crashes in the middle of an epoch, and resumes at the next batch.

python examples/transformers_example.py
"""

import argparse
import tempfile

import made
import numpy as np
from transformers import (
    ResNetConfig,
    ResNetForImageClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

import fastfeed as ff

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
args = parser.parse_args()
values = [ff.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)), ff.ToLayout("CHW")]
NAMES = {"pixel_values": "image", "labels": "label"}  # as models of Transformers take them


def feeds():
    feed = ff.Feed(
        made.pictures(2000, seed=0),
        [ff.RandomResizedCrop(32, scale=(0.6, 1)), *values],
        batch=64,
        seed=0,
    )
    held_out = ff.Feed(made.pictures(1000, seed=1), values, batch=256, shuffle=False, tail="pad")
    return feed, held_out


class FeedTrainer(Trainer):
    def get_train_dataloader(self):
        # on the Trainer's device where that is the first GPU, or the CPU
        return self.train_dataset.to_torch(yields=NAMES)

    def get_eval_dataloader(self, eval_dataset=None):
        return self.eval_dataset.to_torch(yields=NAMES)


class Crash(TrainerCallback):
    """The machine goes down in the second epoch."""

    def on_step_end(self, args, state, control, **_):
        if state.global_step == 45:
            raise ConnectionError("the machine is gone")


def accuracy(predicted):
    return {"accuracy": float(np.mean(np.argmax(predicted.predictions, 1) == predicted.label_ids))}


def trainer(folder, feed, held_out, *callbacks):
    config = ResNetConfig(
        embedding_size=32,
        hidden_sizes=[32, 64, 128],
        depths=[1, 1, 1],
        layer_type="basic",
        num_labels=10,
    )
    arguments = TrainingArguments(
        folder,
        num_train_epochs=args.epochs,
        per_device_train_batch_size=feed.plan.batch,
        learning_rate=2e-3,
        logging_steps=20,
        save_steps=20,
        report_to="none",
        disable_tqdm=True,
        seed=0,
    )
    return FeedTrainer(
        ResNetForImageClassification(config),
        arguments,
        train_dataset=feed,
        eval_dataset=held_out,
        compute_metrics=accuracy,
        callbacks=[
            *callbacks,
            ff.StepWatch(feed, every=10).to_transformers(),
        ],  # feed_wait and feed_rate in the log
    )


with tempfile.TemporaryDirectory() as folder:
    feed, held_out = feeds()
    try:
        trainer(folder, feed, held_out, Crash()).train()
    except ConnectionError as error:
        print(f"{error}, at epoch {feed.state()['epoch']} step {feed.state()['step']}")

    feed, held_out = feeds()  # as a new process would
    again = trainer(folder, feed, held_out)
    again.train(resume_from_checkpoint=True)
    result = again.evaluate()

print(f"{again.state.global_step} steps in all, {feed.stats().batches} since the checkpoint")
last = [line for line in again.state.log_history if "feed_wait" in line][-1]
print(
    f"waited {last['feed_wait']:.1%} of the time for batches, got {last['feed_rate']:,.0f} images/s"
)
print(f"accuracy {result['eval_accuracy']:.2f}, chance 0.10")
