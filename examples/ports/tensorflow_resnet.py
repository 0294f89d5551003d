"""The data path of TensorFlow's official ResNet-50: TFRecords of ImageNet, labels from 1.

https://github.com/tensorflow/models/tree/master/official/legacy/image_classification/resnet
"""

import data
import keras

import fastfeed as ff


def feeds(root, batch=8, side=64, resized=73, world=None):
    mean = tuple(value / 255 for value in (123.68, 116.78, 103.94))
    values = [ff.Normalize(mean, (1 / 255,) * 3)]
    values.append(ff.Map(lambda label: (label - 1).astype("float32"), "label", out="label"))
    train, val = (ff.TFRecords(sorted(root.glob(f"{part}-*"))) for part in ("train", "validation"))
    crops = [ff.RandomResizedCrop(side, scale=(0.05, 1.0), ratio=(0.75, 1.33)), ff.RandomFlip()]
    common = {"batch": batch, "world": world}
    middle = [ff.Resize(resized), ff.CenterCrop(side), *values]
    held_out = ff.Feed(val, middle, **common, shuffle=False, tail="pad")
    return ff.Feed(train, [*crops, *values], **common), held_out


def main():
    given = data.options()
    train, val = feeds(data.temporary(data.records, given.data))
    layers = [keras.Input((64, 64, 3)), keras.layers.Conv2D(16, 7, 4, activation="relu")]
    layers += [keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(3, activation="softmax")]
    model = keras.Sequential(layers)
    model.compile("adam", "sparse_categorical_crossentropy")
    steps = {"steps_per_epoch": given.steps, "verbose": 2}
    model.fit(train.to_keras(), validation_data=val.to_keras(), **steps)


if __name__ == "__main__":
    main()
