"""Hugging Face's Trainer on a feed, with the time that training waits for it in every line of its
log.

python examples/transformers_example.py
"""

import argparse
import tempfile

import made
import numpy as np
from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainingArguments

import fastfeed as ff

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
args = parser.parse_args()
values = [ff.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)), ff.ToLayout("CHW")]
feed = ff.Feed(
    made.pictures(2000, seed=0),
    [ff.RandomResizedCrop(32, scale=(0.6, 1)), *values],
    batch=64,
    seed=0,
)
held_out = ff.Feed(made.pictures(1000, seed=1), values, batch=256, shuffle=False, tail="pad")


NAMES = {"pixel_values": "image", "labels": "label"}  # as models of Transformers take them


class FeedTrainer(Trainer):
    def get_train_dataloader(self):
        # on the Trainer's device where that is the first GPU, or the CPU
        return feed.to_torch(yields=NAMES)

    def get_eval_dataloader(self, eval_dataset=None):
        return held_out.to_torch(yields=NAMES)


def accuracy(predicted):
    return {"accuracy": float(np.mean(np.argmax(predicted.predictions, 1) == predicted.label_ids))}


model = ResNetForImageClassification(
    ResNetConfig(
        embedding_size=32,
        hidden_sizes=[32, 64, 128],
        depths=[1, 1, 1],
        layer_type="basic",
        num_labels=10,
    )
)
with tempfile.TemporaryDirectory() as folder:
    trainer = FeedTrainer(
        model,
        TrainingArguments(
            folder,
            num_train_epochs=args.epochs,
            per_device_train_batch_size=feed.plan.batch,
            learning_rate=2e-3,
            logging_steps=20,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            seed=0,
        ),
        compute_metrics=accuracy,
        callbacks=[
            ff.StepWatch(feed, every=10).to_transformers()
        ],  # feed_wait and feed_rate in the log
    )
    trainer.train()
    result = trainer.evaluate()

last = [line for line in trainer.state.log_history if "feed_wait" in line][-1]
print(
    f"waited {last['feed_wait']:.1%} of the time for batches, got {last['feed_rate']:,.0f} images/s"
)
print(f"accuracy {result['eval_accuracy']:.2f}, chance 0.10")
