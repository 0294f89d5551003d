"""Is it the input? An ordinary Keras trainer, on any backend, to be measured from outside.

fastfeed prove --seconds 30 -- python examples/prove_keras.py
fastfeed prove --seconds 30 --html proof.html -- python examples/prove_keras.py
python examples/prove_keras.py                                       # trains as ever
"""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import made

import fastfeed as ff

parser = argparse.ArgumentParser()
parser.add_argument("--data", help="folder with train/<class>/ of photographs")
parser.add_argument("--epochs", type=int, default=3)
args = parser.parse_args()

source = ff.ImageFolder(made.photographs(args.data) / "train")
ops = [ff.RandomResizedCrop(96), ff.RandomFlip(), ff.Normalize.imagenet()]
feed = ff.Feed(source, ops, batch=16, seed=0, name="train")

model = keras.Sequential(
    [
        keras.layers.Input((96, 96, 3)),
        keras.layers.Conv2D(16, 5, strides=4, activation="relu"),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(len(source.classes)),
    ]
)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(feed.to_keras(), epochs=args.epochs, verbose=2)
print(feed.stats())
