"""The data path of Keras's OCR model for captchas: the text of an image is its file's name.

https://keras.io/examples/vision/captcha_ocr/
"""

import data
import keras
import numpy as np

import fastfeed as ff


def feeds(root, batch=8, world=None):
    paths = sorted(root.glob("*.png"))
    source = ff.Files(paths, labels=[path.stem for path in paths], label_kind="text")
    letters = sorted({letter for path in paths for letter in path.stem})

    def numbers(texts):
        return np.array([[1 + letters.index(letter) for letter in text] for text in texts])

    ops = [ff.Resize((50, 200)), ff.Grayscale(), ff.ToFloat()]
    ops.append(ff.Map(lambda image: image[..., :1].swapaxes(1, 2), "image", out="turned"))
    ops.append(ff.Map(numbers, "label", out="letters"))
    sides = ff.split(source, {"train": 0.9, "val": 0.1}, by="random")
    common = {"batch": batch, "world": world, "tail": "pad"}
    val = ff.Feed(sides["val"], ops, **common, shuffle=False)
    return ff.Feed(sides["train"], ops, **common), val, letters


def main():
    given = data.options()
    train, _, letters = feeds(data.temporary(data.captchas, given.data))
    images = keras.Input((200, 50, 1))
    features = keras.layers.Conv2D(8, 5, 4, activation="relu")(images)
    steps = keras.layers.Reshape((49, 12 * 8))(features)
    model = keras.Model(images, keras.layers.Dense(1 + len(letters))(steps))
    model.compile("adam", keras.losses.CTC())
    batches = train.to_keras(yields=("turned", "letters"))
    model.fit(batches, steps_per_epoch=given.steps, verbose=2)


if __name__ == "__main__":
    main()
