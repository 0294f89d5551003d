"""A plain tf.data pipeline under Keras: what can be known of its waiting as it is, and when it is
watched.

python examples/tfdata_watched.py           # and meanwhile, in a second terminal: fastfeed watch
"""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import made
import tensorflow as tf

import fastfeed as ff

parser = argparse.ArgumentParser()
parser.add_argument("--data", help="a folder with train/<class>/ and val/<class>/")
parser.add_argument("--epochs", type=int, default=14)
args = parser.parse_args()
root = made.photographs(args.data)
classes = sorted(path.name for path in (root / "train").iterdir())


def opened(path, label):
    image = tf.image.decode_jpeg(tf.io.read_file(path), channels=3)
    return tf.image.resize(image, (64, 64)), label


def pipeline(split):
    """The data set of the files of a split; broken ones are left out, as no position is kept
    anyway.
    """
    paths = sorted(str(path) for path in (root / split).rglob("*.jpg"))
    labels = [classes.index(os.path.basename(os.path.dirname(path))) for path in paths]
    data = tf.data.Dataset.from_tensor_slices((paths, labels)).shuffle(len(paths), seed=0)
    return (
        data.map(opened, num_parallel_calls=2)
        .ignore_errors(log_warning=False)
        .batch(16)
        .prefetch(2)
    )


layers = [keras.Input((64, 64, 3)), keras.layers.Rescaling(1 / 127.5, -1)]
for filters in (32, 48, 64, 96):
    layers += [keras.layers.Conv2D(filters, 3, padding="same", use_bias=False)]
    layers += [
        keras.layers.BatchNormalization(momentum=0.9),
        keras.layers.ReLU(),
        keras.layers.MaxPooling2D(),
    ]
model = keras.Sequential(
    [*layers, keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(len(classes))]
)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(2e-3), loss, metrics=["accuracy"], jit_compile=False)
train = pipeline("train")

# As it is: TensorFlow reads it in a graph, where no one sees the trainer wait. `fastfeed watch`
# says UNKNOWN, and shows the time of a step, a figure of the framework, and the use of the GPU, an
# estimate. Nothing is in the logs.
plain = model.fit(train, epochs=1, verbose=2, callbacks=[ff.Watch()])
print(f"plain: the logs have {', '.join(plain.history)}")

# Watched: Keras takes its batches through an adapter that counts how long it waits for them.
data = ff.watched(train, name="tf.data").to_keras()
watched = model.fit(data, epochs=args.epochs - 1, verbose=2, callbacks=[ff.Watch(data, every=5)])
wait, rate = (watched.history[name][-1] for name in ("feed_wait", "feed_rate"))
print(f"watched: training waited {wait:.0%} of the time, and got {rate:,.0f} images/s")

_, accuracy = model.evaluate(pipeline("val"), verbose=0)
print(f"accuracy {accuracy:.2f}, chance {1 / len(classes):.2f}")
