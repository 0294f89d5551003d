"""The data path of Keras's image classification from scratch: folders split as Keras does it.

https://keras.io/examples/vision/image_classification_from_scratch/
"""

import data
import keras

import fastfeed as ff


def feeds(root, batch=8, side=64, world=None):
    sides = ff.split(ff.ImageFolder(root), keras_split=0.2, seed=1337)
    moves = [ff.RandomFlip(), ff.Rotate(36)]
    common = {"batch": batch, "world": world, "tail": "pad"}
    values = [ff.Resize((side, side), filter="bilinear"), ff.ToFloat()]
    train = ff.Feed(sides["training"], [*values[:1], *moves, *values[1:]], **common)
    return train, ff.Feed(sides["validation"], values, **common, shuffle=False)


def main():
    given = data.options()
    train, val = feeds(data.temporary(data.class_folders, given.data) / "train")
    model = keras.Sequential(
        [
            keras.Input((64, 64, 3)),
            keras.layers.Conv2D(16, 7, 4, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(3),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, weighted_metrics=["accuracy"])
    model.fit(
        train.to_keras(), steps_per_epoch=given.steps, validation_data=val.to_keras(), verbose=2
    )


if __name__ == "__main__":
    main()
