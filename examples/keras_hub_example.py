"""KerasHub: an image classifier with its preprocessor and Keras's layers behind a feed.

pip install keras-hub
python examples/keras_hub_example.py
"""

import argparse

import keras
import keras_hub
import made
import tensorflow as tf

import fastfeed as ff

parser = argparse.ArgumentParser()
parser.add_argument("--data", help="a folder with train/<class>/ and val/<class>/")
parser.add_argument("--epochs", type=int, default=20)
args = parser.parse_args()
root = made.photographs(args.data)

train = ff.ImageFolder(root / "train")
val = ff.ImageFolder(root / "val", classes=train.classes)
feed = ff.Feed(train, [ff.RandomResizedCrop(48, scale=(0.35, 1)), ff.RandomFlip()], batch=16)
held_out = ff.Feed(val, [ff.Resize((48, 48))], batch=16, shuffle=False, tail="pad")


def batches(feed):
    """Tasks of KerasHub take a tf.data.Dataset alone; fit should know the length of an epoch."""
    return feed.to_tfdata().apply(tf.data.experimental.assert_cardinality(len(feed)))


# a small network; with weights: keras_hub.models.ImageClassifier.from_preset(...)
backbone = keras_hub.models.ResNetBackbone(
    input_conv_filters=[64],
    input_conv_kernel_sizes=[3],
    stackwise_num_filters=[64, 128],
    stackwise_num_blocks=[1, 1],
    stackwise_num_strides=[1, 2],
    block_type="basic_block",
    image_shape=(48, 48, 3),
)
converter = keras_hub.layers.ResNetImageConverter(image_size=(48, 48), scale=1 / 255)
model = keras_hub.models.ResNetImageClassifier(
    backbone=backbone,
    num_classes=len(train.classes),
    preprocessor=keras_hub.models.ResNetImageClassifierPreprocessor(image_converter=converter),
)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(1e-3), loss, metrics=["accuracy"])
model.fit(batches(feed), epochs=args.epochs, verbose=2)

_, accuracy = model.evaluate(batches(held_out), verbose=0)
print(f"accuracy {accuracy:.2f}, chance {1 / len(train.classes):.2f}")
print(feed.stats())
