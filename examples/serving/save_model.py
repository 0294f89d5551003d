"""Train a classifier, and save next to its weights how its images have to be prepared.

`fastapi_app.py` and `triton/` serve the folder that this fills.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import keras

import fastfeed as ff

sys.path.append(str(Path(__file__).parents[1]))
import made

OPS = [
    ff.RandomResizedCrop(96, scale=(0.5, 1.0)),
    ff.RandomFlip(),
    ff.ColorJitter(0.2, 0.2),
    ff.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
]


def classifier(classes: int) -> keras.Model:
    """From images to probabilities."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((96, 96, 3)),
            layers.Conv2D(16, 5, 4, activation="relu"),
            layers.Conv2D(32, 3, 2, activation="relu"),
            layers.Conv2D(32, 3, 2, activation="relu"),
            layers.Flatten(),
            layers.Dense(classes, activation="softmax"),
        ]
    )


def save(folder: Path, data: Path, epochs: int) -> float:
    """Train on data/train, and save the model, its transform and its classes; the accuracy."""
    source = ff.ImageFolder(data / "train")
    model = classifier(len(source.classes))
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    with ff.Feed(source, OPS, batch=16) as feed:
        model.fit(feed.to_keras(), epochs=epochs, verbose=0)
        serving = ff.Transform.of(feed).evaluation
    folder.mkdir(parents=True, exist_ok=True)
    model.save(folder / "model.keras")
    serving.save(folder / "preprocessing.json")
    (folder / "classes.json").write_text(json.dumps(list(source.classes)))
    with ff.Feed(ff.ImageFolder(data / "val"), serving.ops, batch=16, tail="pad") as feed:
        return model.evaluate(feed.to_keras(), verbose=0, return_dict=True)["accuracy"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default="served")
    parser.add_argument("--data")
    parser.add_argument("--epochs", type=int, default=30)
    options = parser.parse_args()
    data = made.photographs(options.data)
    accuracy = save(options.folder, data, options.epochs)
    print(f"accuracy {accuracy:.2f}, saved in {options.folder}")


if __name__ == "__main__":
    main()
