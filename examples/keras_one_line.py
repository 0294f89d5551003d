"""Keras's image_dataset_from_directory becomes a feed: one line changes, layers and fit stay.

python examples/keras_one_line.py
KERAS_BACKEND=jax python examples/keras_one_line.py --format keras     # without TensorFlow
"""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import made

# before: from keras.utils import image_dataset_from_directory
from fastfeed.keras import image_dataset_from_directory

parser = argparse.ArgumentParser()
parser.add_argument("--data", help="a folder with train/<class>/ and val/<class>/")
parser.add_argument("--format", default="tf", choices=["tf", "keras"])
parser.add_argument("--epochs", type=int, default=10)
args = parser.parse_args()
root = made.photographs(args.data)

options = {"image_size": (64, 64), "batch_size": 16, "format": args.format}
train = image_dataset_from_directory(root / "train", seed=0, **options)
val = image_dataset_from_directory(root / "val", shuffle=False, **options)

net = keras.Sequential(
    [
        keras.Input((64, 64, 3)),
        keras.layers.RandomFlip("horizontal"),
        keras.layers.RandomTranslation(0.1, 0.1),
        keras.layers.Rescaling(1 / 127.5, -1),
    ]
)
for filters in (32, 48, 64, 96):
    net.add(keras.layers.Conv2D(filters, 3, padding="same", use_bias=False))
    net.add(keras.layers.BatchNormalization(momentum=0.9))
    net.add(keras.layers.ReLU())
    net.add(keras.layers.MaxPooling2D())
net.add(keras.layers.GlobalAveragePooling2D())
net.add(keras.layers.Dense(len(train.class_names)))
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
net.compile(keras.optimizers.Adam(2e-3), loss, metrics=["accuracy"])
net.fit(train, validation_data=val, validation_freq=5, epochs=args.epochs, verbose=2)

_, accuracy = net.evaluate(val, verbose=0)
print(f"accuracy {accuracy:.2f}, chance {1 / len(train.class_names):.2f}")
print(train.feed.stats())
