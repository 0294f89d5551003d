"""Trainers that restore a feed's loader inside an epoch go on as if nothing had happened."""

from __future__ import annotations

import logging
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from helpers.needs import LazyModule, needs

import fastfeed as ff

torch = LazyModule("torch")
transformers = LazyModule("transformers")
lightning = LazyModule("lightning")
pytestmark = [needs("torch"), pytest.mark.slow]

IMAGES = np.random.default_rng(0).integers(0, 256, (44, 4, 4, 3), dtype=np.uint8)
EPOCHS = 2


def feed(**options):
    source = ff.Arrays(IMAGES, np.arange(44))
    return ff.Feed(source, [ff.ToFloat(), ff.ToLayout("CHW")], **{"batch": 8, "seed": 3, **options})


def newest(folder: Path) -> Path:
    return max(folder.iterdir(), key=lambda path: int(re.findall(r"\d+", path.name)[-1]))


def hugging_face(folder, accumulation, stop=None, resume=None):
    """Train with Transformers; returns the labels that were seen, and the weights."""
    seen = []

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(48, 1)

        def forward(self, pixel_values, labels):
            seen.append(labels.tolist())
            logits = self.linear(pixel_values.flatten(1))
            return {"loss": (logits.mean() - 1) ** 2, "logits": logits}

    class Trainer(transformers.Trainer):
        def get_train_dataloader(self):
            return self.train_dataset

    class Stop(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if state.global_step == stop:
                raise ConnectionError

    arguments = transformers.TrainingArguments(
        str(folder),
        num_train_epochs=EPOCHS,
        save_steps=1,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        gradient_accumulation_steps=accumulation,
        logging_strategy="no",
    )
    torch.manual_seed(0)
    with feed() as data:
        names = {"pixel_values": "image", "labels": "label"}
        loader = data.to_torch("cpu", yields=names)
        model = Model()
        trainer = Trainer(model, arguments, train_dataset=loader, callbacks=[Stop()])
        try:
            trainer.train(resume_from_checkpoint=resume)
        except ConnectionError:
            assert stop is not None
    return seen, model.linear.weight


@needs("transformers")
@pytest.mark.parametrize(("accumulation", "stop", "left"), [(1, 4, 7), (2, 5, 3)])
def test_the_hugging_face_trainer_resumes_inside_an_epoch(tmp_path, accumulation, stop, left):
    whole, weights = hugging_face(tmp_path / "whole", accumulation)
    with feed() as data:
        assert whole == [
            batch.labels.tolist() for epoch in range(EPOCHS) for batch in data.batches(epoch)
        ]
    hugging_face(tmp_path / "run", accumulation, stop)
    seen, resumed = hugging_face(
        tmp_path / "run", accumulation, resume=str(newest(tmp_path / "run"))
    )
    assert seen == whole[-left:]
    assert torch.equal(weights, resumed)


def with_lightning(folder, mode, every=None, stop=None, resume=None):
    """Train with Lightning on two feeds; returns the labels of each step."""
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.utilities import CombinedLoader

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(48, 1)
            self.seen = []

        def training_step(self, batch, _):
            self.seen.append([labels.tolist() for _, labels in batch.values()])
            return self.linear(batch["long"][0].flatten(1)).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    class Data(lightning.LightningDataModule):
        def setup(self, stage):
            self.feeds = {"short": feed(), "long": feed(batch=4)}

        def train_dataloader(self):
            loaders = {name: data.to_torch("cpu") for name, data in self.feeds.items()}
            return CombinedLoader(loaders, mode)

        def teardown(self, stage):
            for data in self.feeds.values():
                data.close()

    class Stop(lightning.Callback):
        def on_train_batch_end(self, trainer, *_):
            if trainer.global_step == stop:
                raise ConnectionError

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    saving = [ModelCheckpoint(folder, save_top_k=-1, every_n_train_steps=every)] if every else []
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        callbacks=[*saving, Stop()],
        logger=False,
        enable_checkpointing=bool(every),
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module, data = Module(), Data()
    try:
        trainer.fit(module, data, ckpt_path=resume, weights_only=False)
    except ConnectionError:
        data.teardown("fit")
    return module.seen


@needs("lightning")
@pytest.mark.filterwarnings("ignore:.*(num_workers|log_every_n_steps|does not have many workers)")
@pytest.mark.filterwarnings("ignore:.*callbacks used to create the checkpoint|.*LeafSpec")
@pytest.mark.parametrize(
    ("mode", "every", "stop", "kept"),
    [("min_size", 1, 8, 7), ("min_size", 5, 7, 5), ("max_size_cycle", 7, 9, 7)],
)
def test_lightning_resumes_two_feeds_that_are_combined(tmp_path, mode, every, stop, kept):
    whole = with_lightning(tmp_path, mode)
    with_lightning(tmp_path, mode, every, stop)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert with_lightning(tmp_path, mode, resume=str(newest(tmp_path))) == whole[kept:]
    kept_its_own = [w for w in caught if "as one that is cycled within an epoch" in str(w.message)]
    assert len(kept_its_own) == (mode == "max_size_cycle")
