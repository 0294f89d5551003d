"""The data path of Keras's autoencoder that removes noise: noisy images in, clean ones out.

https://keras.io/examples/vision/autoencoder/
"""

import data
import keras
import numpy as np

import fastfeed as ff


def feeds(images, batch=16, world=None, **options):
    images = np.repeat(images[..., None], 3, axis=-1)
    pairs = ff.Together({"noisy": ff.Arrays(images), "clean": ff.Arrays(images)})
    noise = [ff.GaussianNoise(0.4 * 255), ff.ToFloat()]
    lists = {"noisy": noise, "clean": [ff.ToFloat()]}
    return ff.Feed(pairs, lists, batch=batch, world=world, tail="pad", **options)


def main():
    given = data.options()
    images = data.digits() if given.data is None else np.load(given.data)
    feed = feeds(images)
    layers = [keras.layers.Conv2D(n, 3, padding="same", activation="relu") for n in (8, 8)]
    last = keras.layers.Conv2D(3, 3, padding="same", activation="sigmoid")
    model = keras.Sequential([keras.Input((28, 28, 3)), *layers, last])
    model.compile("adam", "binary_crossentropy")
    model.fit(feed.to_keras(yields=("noisy", "clean")), steps_per_epoch=given.steps, verbose=2)


if __name__ == "__main__":
    main()
