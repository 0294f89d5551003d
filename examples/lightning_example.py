"""Lightning: a feed is a loader of a DataModule, and a checkpoint taken inside an epoch resumes
at its next batch.

python examples/lightning_example.py                                # crashes in the middle of an
epoch, then resumes
"""

import argparse
import tempfile

import lightning
import made
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

import fastfeed as ff

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
args = parser.parse_args()
lightning.seed_everything(0, verbose=False)
values = [ff.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)), ff.ToLayout("CHW")]


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        layers = []
        for before, filters in ((3, 32), (32, 64), (64, 128)):
            layers += [
                nn.Conv2d(before, filters, 3, padding=1),
                nn.BatchNorm2d(filters),
                nn.ReLU(),
                nn.MaxPool2d(2),
            ]
        self.net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))

    def training_step(self, batch, index):
        images, labels = batch
        return nn.functional.cross_entropy(self.net(images), labels)

    def validation_step(self, batch, index):
        images, labels = batch
        right = (self.net(images).argmax(1) == labels).float().mean()
        # the last batch may be shorter: weigh by length
        self.log("accuracy", right, batch_size=len(labels))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


class Pictures(lightning.LightningDataModule):
    def __init__(self):
        super().__init__()
        crops = [ff.RandomResizedCrop(32, scale=(0.6, 1)), *values]
        self.feed = ff.Feed(made.pictures(2000, seed=0), crops, batch=64, seed=0)
        self.held_out = ff.Feed(
            made.pictures(1000, seed=1), values, batch=256, shuffle=False, tail="pad"
        )

    def train_dataloader(self):
        return self.feed.to_torch()

    def val_dataloader(self):
        return self.held_out.to_torch()


def trainer(feed, *callbacks):
    return lightning.Trainer(
        max_epochs=args.epochs,
        callbacks=[
            *callbacks,
            ff.StepWatch(feed).to_lightning(),
        ],  # feed_wait and feed_rate in the log
        use_distributed_sampler=False,  # a feed gives every rank its own part
        logger=False,
        enable_checkpointing=bool(callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
    )


class Crash(lightning.Callback):
    """The machine goes down in the second epoch."""

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == trainer.num_training_batches + 25:
            raise ConnectionError("the machine is gone")


with tempfile.TemporaryDirectory() as folder:
    # saved inside fit: what is saved after a fit that max_steps has ended counts, for Lightning, as
    # a finished epoch
    saving = ModelCheckpoint(folder, every_n_train_steps=20, save_top_k=1)
    data = Pictures()
    feed = data.feed
    try:
        trainer(feed, saving, Crash()).fit(Classifier(), data)
    except ConnectionError as error:
        print(f"{error}, at epoch {feed.state()['epoch']} step {feed.state()['step']}")

    data = Pictures()  # as a new process would
    feed = data.feed
    again = trainer(feed)
    again.fit(Classifier(), data, ckpt_path=saving.best_model_path, weights_only=False)

print(
    f"{again.global_step} steps in all, {feed.stats().batches} since the checkpoint, to epoch"
    f" {feed.state()['epoch']}"
)
print(f"accuracy {again.callback_metrics['accuracy']:.2f}, chance 0.10")
print(feed.stats())
