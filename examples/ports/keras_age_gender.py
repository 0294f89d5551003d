"""The data path of Age-Gender-Predictor's train.py: two outputs from the columns of a table.

https://github.com/dandynaufaldi/Age-Gender-Predictor
"""

import data
import keras
import numpy as np

import fastfeed as ff


def feeds(table, root, fold=0, batch=8, side=64, world=None):
    source = ff.Table(table, image="image_id", columns=["age", "gender"], root=root)
    sides = ff.folds(source, 10, by="order")[fold]
    ages, genders = np.eye(101, dtype="float32"), np.eye(2, dtype="float32")
    ops = [ff.Resize((side, side)), ff.ToBGR(), ff.Normalize((0.5,) * 3, (0.5,) * 3)]
    ops.append(ff.Map(lambda age: ages[age], "age", out="ages"))
    ops.append(ff.Map(lambda gender: genders[gender], "gender", out="genders"))
    common = {"batch": batch, "world": world, "tail": "pad"}
    return [ff.Feed(part, ops, **common) for part in sides]


FIELDS = ("image", {"age_prediction": "ages", "gender_prediction": "genders"})


def main():
    given = data.options()
    root = data.temporary(data.table, given.data)
    train, val = feeds(root / "train.csv", root / "photos")
    images = keras.Input((64, 64, 3))
    features = keras.layers.Conv2D(16, 7, 4, activation="relu")(images)
    features = keras.layers.GlobalAveragePooling2D()(features)
    outputs = {
        "age_prediction": keras.layers.Dense(101, activation="softmax")(features),
        "gender_prediction": keras.layers.Dense(2, activation="softmax")(features),
    }
    model = keras.Model(images, outputs)
    model.compile("adam", dict.fromkeys(outputs, "categorical_crossentropy"))
    steps = {"steps_per_epoch": given.steps, "verbose": 2}
    model.fit(train.to_keras(yields=FIELDS), validation_data=val.to_keras(yields=FIELDS), **steps)


if __name__ == "__main__":
    main()
