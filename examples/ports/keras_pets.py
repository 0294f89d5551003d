"""The data path of Keras's segmentation of pets: masks with classes from 1, made to begin at 0.

https://keras.io/examples/vision/oxford_pets_image_segmentation/
"""

import data
import keras

import fastfeed as ff


def feeds(root, batch=4, side=64, val=8, world=None):
    images = ff.ImageFolder(root / "images", labeled=False)
    masks = sorted(path for path in (root / "masks").iterdir() if path.suffix == ".png")
    source = ff.Objects(images, masks=masks)
    sides = ff.split(
        source, {"train": 1 - val / len(source), "val": val / len(source)}, by="random"
    )
    ops = [ff.Resize((side, side)), ff.Map(lambda mask: mask - 1, "masks", out="masks")]
    common = {"batch": batch, "world": world, "tail": "pad"}
    held_out = ff.Feed(sides["val"], ops, **common, shuffle=False)
    return ff.Feed(sides["train"], ops, **common), held_out


def main():
    given = data.options()
    train, val = feeds(data.temporary(data.trimaps, given.data))
    layers = [keras.Input((64, 64, 3)), keras.layers.Rescaling(1 / 255)]
    layers.append(keras.layers.Conv2D(3, 9, padding="same", activation="softmax"))
    model = keras.Sequential(layers)
    model.compile("rmsprop", "sparse_categorical_crossentropy")
    fields = ("image", "masks")
    model.fit(
        train.to_keras(yields=fields),
        steps_per_epoch=given.steps,
        verbose=2,
        validation_data=val.to_keras(yields=fields),
    )


if __name__ == "__main__":
    main()
