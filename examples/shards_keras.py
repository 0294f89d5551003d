"""From large photographs to a trained classifier: preprocessed once into shards, then trained from
these.

python examples/shards_keras.py                    # made photographs
python examples/shards_keras.py --data photos      # one folder per class; shards go to
.fastfeed-demo/shards

Run it again: the shards are there already, and it says so in a moment.
"""

import argparse

import keras
import made

import fastfeed as ff
from fastfeed.preprocess import Packing, Recipe, Scaling, Selection, run

parser = argparse.ArgumentParser()
parser.add_argument("--data", help="a folder with one folder per class")
parser.add_argument(
    "--shards", default=".fastfeed-demo/shards", help="an empty folder, or that of an earlier run"
)
parser.add_argument("--epochs", type=int, default=12)
args = parser.parse_args()

photographs = args.data or made.photographs(None) / "train"
recipe = Recipe(
    Scaling(96), packing=Packing(samples=32), choice=Selection(shuffle=0, val=0.2, dedupe="near")
)
report = run(photographs, args.shards, recipe)
print(report)
for bad in report.bad:
    print("  bad:", bad)

train = ff.TarShards(f"{args.shards}/train/*.tar", classes=report.classes)
val = ff.TarShards(f"{args.shards}/val/*.tar", classes=report.classes)
crops = [ff.RandomResizedCrop(64, scale=(0.35, 1)), ff.RandomFlip(), ff.Normalize.imagenet()]
middle = [ff.Resize(72), ff.CenterCrop(64), ff.Normalize.imagenet()]
feed = ff.Feed(train, crops, batch=16, seed=0)
held_out = ff.Feed(val, middle, batch=16, shuffle=False, tail="pad")

model = keras.Sequential([keras.Input((64, 64, 3))])
for filters in (32, 48, 64, 96):
    model.add(keras.layers.Conv2D(filters, 3, padding="same", use_bias=False))
    model.add(keras.layers.BatchNormalization(momentum=0.9))
    model.add(keras.layers.ReLU())
    model.add(keras.layers.MaxPooling2D())
model.add(keras.layers.GlobalAveragePooling2D())
model.add(keras.layers.Dense(len(report.classes)))
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(2e-3), loss, weighted_metrics=["accuracy"])
history = model.fit(
    feed.to_keras(), validation_data=held_out.to_keras(), epochs=args.epochs, verbose=2
).history
print(f"accuracy {max(history['val_accuracy'][-3:]):.2f}, chance {1 / len(report.classes):.2f}")
print(feed.stats())
