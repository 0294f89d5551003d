"""The data path of Age-Gender-Predictor's train_ssrnet.py: a number for each image.

https://github.com/dandynaufaldi/Age-Gender-Predictor
"""

import data
import keras

import fastfeed as ff


def feeds(table, root, target="age", fold=0, batch=8, side=64, world=None):
    options = {"label": target, "label_kind": "value", "root": root}
    source = ff.Table(table, image="image_id", **options)
    sides = ff.folds(source, 10, by="random", seed=1)[fold]
    ops = [ff.Resize((side, side), filter="bicubic"), ff.ToBGR()]
    common = {"batch": batch, "world": world, "tail": "pad"}
    return [ff.Feed(part, ops, **common) for part in sides]


def main():
    given = data.options()
    root = data.temporary(data.table, given.data)
    train, val = feeds(root / "train.csv", root / "photos")
    layers = [keras.Input((64, 64, 3)), keras.layers.Rescaling(1 / 255)]
    layers += [keras.layers.Conv2D(16, 7, 4, activation="relu"), keras.layers.Flatten()]
    model = keras.Sequential([*layers, keras.layers.Dense(1)])
    model.compile("adam", "mae")
    steps = {"steps_per_epoch": given.steps, "verbose": 2}
    model.fit(train.to_keras(), validation_data=val.to_keras(), **steps)


if __name__ == "__main__":
    main()
