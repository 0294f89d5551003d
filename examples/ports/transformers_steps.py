"""Training by Transformers' Trainer that the ports share. No part of the API."""

import tempfile

from transformers import Trainer, TrainingArguments


class FeedTrainer(Trainer):
    def get_train_dataloader(self):
        return self.train_dataset

    def get_eval_dataloader(self, eval_dataset=None):
        return self.eval_dataset


def train(model, batches, held_out, steps):
    """Steps over an iterable of dicts, then an evaluation; prints its loss."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            max_steps=steps,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = FeedTrainer(model, arguments, train_dataset=batches, eval_dataset=held_out)
        trainer.train()
        print(f"loss {trainer.evaluate()['eval_loss']:.3f}")
