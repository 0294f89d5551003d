"""Fits with ff.keras.backup that kill themselves after some batches, to be started until one ends
by itself.

Argument: the backend. Each line of input starts a fit in a process of its own, forked once Keras is
loaded, which takes
longer than the fit: [folder, save_freq ("epoch" or batches), batches to live (0: to the end), steps
per execution] as JSON; how it ended is printed. The folder gets a line in trained.jsonl for each
batch: [attempt, epoch, step, labels]; weights.json at the end. With "words" and a folder instead of
a backend it prints what is refused.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow" if sys.argv[1] == "words" else sys.argv[1]

import keras
import ranks_at_work as at_work

import fastfeed as ff
from fastfeed.feed.session import FeedSession

EPOCHS = 3
drawn: list[list[Any]] = []  # batches that Keras has been given and not yet trained on


def noted(self: FeedSession, place: Any, raw: bool = False, plain: Any = FeedSession.placed) -> Any:
    """What Keras is given, on the thread that it asks with."""
    place.both = getattr(place, "both", None) or (lambda batch: (batch, place(batch)))
    for batch, placed in plain(self, place.both, raw):
        drawn.append([batch.epoch, batch.step, batch.ids.tolist()])
        yield placed


class Killer(keras.callbacks.Callback):
    def __init__(self, folder: Path, lives: int) -> None:
        super().__init__()
        self._log, self._lives, self._count = folder / "trained.jsonl", lives, 0
        self._attempt = len(list(folder.glob("attempt-*")))
        (folder / f"attempt-{self._attempt}").touch()

    def on_train_batch_end(self, step, logs=None):
        self._count += len(drawn)
        with self._log.open("a") as file:
            file.write("".join(json.dumps([self._attempt, *batch]) + "\n" for batch in drawn))
        drawn.clear()
        if self._lives and self._count >= self._lives:
            os.kill(os.getpid(), signal.SIGKILL)


def model(together: int = 1, build: bool = True) -> Any:
    net = keras.Sequential(
        [keras.layers.Flatten(), keras.layers.Dense(at_work.SAMPLES, name="dense")]
    )
    net.compile(
        keras.optimizers.SGD(at_work.RATE, at_work.MOMENTUM),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
        steps_per_execution=together,
    )
    if build:
        net.build((None, 4, 4, 3))
        net.get_layer("dense").set_weights(at_work.start())
    return net


def run(folder: Path, every: str | int, lives: int, together: int) -> None:
    FeedSession.placed = noted
    net = model(together)
    with at_work.feed() as data:
        callbacks = [
            ff.keras.backup(data, folder / "backup", save_freq=every),
            Killer(folder, lives),
        ]
        net.fit(data.to_keras(), epochs=EPOCHS, verbose=0, callbacks=callbacks)
    kernel, bias = (weights.tolist() for weights in net.get_layer("dense").get_weights())
    (folder / "weights.json").write_text(json.dumps({"kernel": kernel, "bias": bias}))


def words(folder: Path) -> dict[str, str]:
    """Error texts, by what is wrong."""
    found = {}

    def fit(
        name: str, made: ff.Feed, every: Any = "epoch", build: bool = True, **options: Any
    ) -> None:
        try:
            backup = ff.keras.backup(made, folder / name, every, **options)
            model(build=build).fit(made.to_keras(), epochs=1, verbose=0, callbacks=[backup])
        except (ff.errors.FastfeedError, ValueError) as error:
            found[name] = f"{type(error).__name__}: {error}"

    for name, text in (("other", '{"seed": 3}'), ("torn", '{"keras_'), ("list", "[]")):
        (folder / name).mkdir()
        (folder / name / "state.json").write_text(text)
        with at_work.feed() as data:
            fit(name, data)
    with at_work.feed() as data:
        fit("kept", data, delete_checkpoint=False)
    (folder / "unbuilt").symlink_to(folder / "kept")
    (folder / "another batch").symlink_to(folder / "kept")
    with at_work.feed() as data:
        fit("unbuilt", data, build=False)
        for name, every in (("zero", 0), ("true", True), ("half", 0.5), ("batch", "batch")):
            fit(name, data, every)
    with at_work.feed(9) as data:
        fit("another batch", data)
    (folder / "another data set").symlink_to(folder / "kept")
    others = ff.Arrays(255 - at_work.IMAGES)
    with ff.Feed(others, [ff.ToFloat()], batch=8, seed=3) as data:
        fit("another data set", data)
    (folder / "mine").mkdir()
    (folder / "mine" / "best.weights.h5").write_text("a user's own")
    with at_work.feed() as data:
        fit("mine", data, 1)
    return found


def serve() -> None:
    for line in sys.stdin:
        folder, *arguments = json.loads(line)
        pid = os.fork()
        if not pid:
            status = 1
            try:
                run(Path(folder), *arguments)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    os._exit(0)  # at once: taking frameworks down takes seconds


if __name__ == "__main__":
    if sys.argv[1] == "words":
        print(json.dumps(words(Path(sys.argv[2]))))
    else:
        serve()
