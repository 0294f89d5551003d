"""A tf.data pipeline becomes a feed: one line of the training script changes.

python examples/tfdata_one_line.py
"""

import argparse

import made
import tensorflow as tf

import fastfeed as ff

parser = argparse.ArgumentParser()
parser.add_argument("--data", help="a folder with train/<class>/ and val/<class>/")
parser.add_argument("--epochs", type=int, default=14)
args = parser.parse_args()
root = made.photographs(args.data)

images = ff.ImageFolder(root / "train")
feed = ff.Feed(
    images,
    [ff.RandomResizedCrop(64, scale=(0.35, 1)), ff.RandomFlip()],
    batch=16,
)
val = ff.Feed(
    ff.ImageFolder(root / "val"), [ff.Resize((64, 64))], batch=16, shuffle=False, tail="pad"
)

# before (one broken file ends the run, and no position is kept):
# train = tf.keras.utils.image_dataset_from_directory(root / "train", image_size=(64, 64),
# batch_size=16).prefetch(2)
train = feed.to_tfdata()

classes = len(images.classes)
net = tf.keras.Sequential([tf.keras.Input((64, 64, 3)), tf.keras.layers.Rescaling(1 / 127.5, -1)])
for filters in (32, 48, 64, 96):
    net.add(tf.keras.layers.Conv2D(filters, 3, padding="same", use_bias=False))
    net.add(tf.keras.layers.BatchNormalization(momentum=0.9))
    net.add(tf.keras.layers.ReLU())
    net.add(tf.keras.layers.MaxPooling2D())
net.add(tf.keras.layers.GlobalAveragePooling2D())
net.add(tf.keras.layers.Dense(classes))
optimizer = tf.keras.optimizers.Adam(2e-3)
cross_entropy = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf.function
def step(images, labels):
    with tf.GradientTape() as tape:
        loss = cross_entropy(labels, net(images, training=True))
    optimizer.apply_gradients(
        zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables, strict=True)
    )
    return loss


for epoch in range(args.epochs):
    for (
        images,
        labels,
    ) in train:  # the next epoch, in another order; further tf.data methods may follow
        loss = step(images, labels)
    print(f"epoch {epoch}: loss {loss:.2f}")

accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
for images, labels in val.to_tfdata():
    accuracy.update_state(labels, net(images))
print(f"accuracy {accuracy.result():.2f}, chance {1 / classes:.2f}")
print(feed.stats())
