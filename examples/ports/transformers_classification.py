"""The data path of Transformers' run_image_classification.py: dicts of tensors for its Trainer.

https://github.com/huggingface/transformers/tree/main/examples/pytorch/image-classification
"""

import tempfile

import data
from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainingArguments

import fastfeed as ff


def feeds(root, batch=8, side=64, world=None):
    source = ff.ImageFolder(root / "train")
    sides = ff.split(source, {"train": 0.85, "validation": 0.15}, by="random")
    values = [ff.Normalize.imagenet(), ff.ToLayout("CHW")]
    crops = [ff.RandomResizedCrop(side), ff.RandomFlip(), *values]
    center = [ff.Resize(side), ff.CenterCrop(side), *values]
    common = {"batch": batch, "world": world, "tail": "pad"}
    val = ff.Feed(sides["validation"], center, **common, shuffle=False)
    return ff.Feed(sides["train"], crops, **common), val


def loaders(*feeds):
    names = {"pixel_values": "image", "labels": "label"}
    return [feed.to_torch(yields=names) for feed in feeds]


class FeedTrainer(Trainer):
    def get_train_dataloader(self):
        return self.train_dataset

    def get_eval_dataloader(self, eval_dataset=None):
        return self.eval_dataset


def main():
    given = data.options()
    train, val = loaders(*feeds(data.temporary(data.class_folders, given.data)))
    config = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "num_labels": 3}
    model = ResNetForImageClassification(ResNetConfig(**config, layer_type="basic"))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            max_steps=given.steps,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = FeedTrainer(model, arguments, train_dataset=train, eval_dataset=val)
        trainer.train()
        print(f"loss {trainer.evaluate()['eval_loss']:.3f}")


if __name__ == "__main__":
    main()
