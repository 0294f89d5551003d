"""The data path of Horovod's keras_imagenet_resnet50.py: one part of the images for each rank.

https://github.com/horovod/horovod/blob/master/examples/keras/keras_imagenet_resnet50.py
"""

import data
import keras

import fastfeed as ff


def feeds(root, batch=8, side=64, world=None):
    mean = tuple(value / 255 for value in (103.939, 116.779, 123.68))
    values = [ff.ToBGR(), ff.Normalize(mean, (1 / 255,) * 3), ff.OneHot()]
    whole = ff.Resize((side, side))
    moves = [ff.Affine(translate=(0.33, 0.33), scale=(0.67, 2.0)), ff.RandomFlip()]
    train = ff.Feed(
        ff.ImageFolder(root / "train"), [whole, *moves, *values], batch=batch, world=world
    )
    middle = [ff.Resize((side * 8 // 7, side * 8 // 7)), ff.CenterCrop(side), *values]
    val = ff.ImageFolder(root / "val")
    return train, ff.Feed(val, middle, batch=batch, world=world, shuffle=False, tail="pad")


def main():
    given = data.options()
    train, val = feeds(data.temporary(data.class_folders, given.data))
    layers = [keras.Input((64, 64, 3)), keras.layers.Conv2D(16, 7, 4, activation="relu")]
    layers += [keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(3, activation="softmax")]
    model = keras.Sequential(layers)
    model.compile("adam", "categorical_crossentropy")  # with Horovod: its DistributedOptimizer
    steps = {"steps_per_epoch": given.steps, "verbose": 2}
    model.fit(train.to_keras(), validation_data=val.to_keras(), **steps)


if __name__ == "__main__":
    main()
