"""A tf.data pipeline that trains a Keras model: bytes in, images out, one call per batch.

python examples/loaders/tfdata_keras.py                     # pip install tensorflow
"""

import photos
import tensorflow as tf

import fastfeed as ff


def batches(paths, labels, transform, epoch=0):
    """A data set of one epoch: images, labels, and weights of 0 where a file is bad."""

    def prepare(ids, files, targets):
        fields = ("image", "label", "weight")
        return transform.tf(files, targets, ids=ids, epoch=epoch, yields=fields)

    data = tf.data.Dataset.from_tensor_slices((tf.range(len(paths), dtype=tf.int64), paths, labels))
    data = data.map(lambda i, path, label: (i, tf.io.read_file(path), label), tf.data.AUTOTUNE)
    return data.batch(8).map(prepare, tf.data.AUTOTUNE).prefetch(1)


def main():
    paths, labels = photos.files()
    transform = ff.Transform([ff.RandomResizedCrop(64), ff.RandomFlip()], seed=0)
    model = tf.keras.Sequential(
        [
            tf.keras.Input(transform.spec.shape),
            tf.keras.layers.Rescaling(1 / 255),
            tf.keras.layers.Conv2D(16, 7, strides=4, activation="relu"),
            tf.keras.layers.GlobalAveragePooling2D(),
            tf.keras.layers.Dense(3),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss)
    for epoch in range(2):
        model.fit(batches(paths, labels, transform, epoch), shuffle=False, verbose=2)
    transform.close()  # the graphs of TensorFlow, which it never frees, hold its threads


if __name__ == "__main__":
    main()
