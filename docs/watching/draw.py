"""Draws the pictures of docs/watching.md: python docs/watching/draw.py

Two ranks on two GPUs whose figures are made up: the tests' feeds and their stand-in for NVML. The web page needs
Chromium. The progress bar is that of a real run, Keras on TensorFlow on the demo's photographs.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from helpers.fake_nvml import FakeNvml
from helpers.live_pages import Trainer
from helpers.profiler.browser import browser, found
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from fastfeed.demo.photos import make_photos
from fastfeed.live.http.serve import Server
from fastfeed.live.nvml import Gpus
from fastfeed.live.screen import screen
from fastfeed.live.watch import FeedTable, Monitor

HERE = Path(__file__).parent
THEME = TerminalTheme(
    (15, 18, 22), (230, 233, 237),
    [
        *((0, 0, 0), (255, 123, 114), (74, 194, 107), (217, 165, 32)),
        *((88, 166, 255), (194, 151, 255), (86, 211, 219), (230, 233, 237)),
    ],
)  # fmt: skip


def view() -> FeedTable:
    """The end of four minutes, in the middle of which one rank began to starve."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = [Trainer(Path(folder), rank, name="imagenet", steps=5004) for rank in (0, 1)]
        gpus = Gpus(FakeNvml(devices=2, gpm={2: 64.0, 10: 31.0, 40: 0.0, 21: 1300.0}))
        watch = Monitor([folder], None, gpus, clock=lambda: ranks[1].now)
        for second in range(240):
            ranks[0].now = ranks[1].now
            ranks[1].train(
                1,
                0.004 if second < 110 else min(0.31, 0.02 * (second - 110)),
                2 if second < 110 else 0,
            )
            ranks[0].train(1, 0.003)
            last = watch.look()
    return last


def terminal(shown: FeedTable, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, record=True, force_terminal=True)
    console.print(screen(shown, width))
    return console.export_svg(title="fastfeed watch", theme=THEME, unique_id=f"watch{width}")


TRAINER = """
import sys, keras, fastfeed as ff
photos = ff.ImageFolder(sys.argv[1])
feed = ff.Feed(photos, [ff.RandomResizedCrop(224), ff.RandomFlip(), ff.ToFloat()], batch=8, threads=1)
model = keras.Sequential([keras.layers.Conv2D(16, 5, 4, activation="relu"), keras.layers.GlobalAveragePooling2D(),
                          keras.layers.Dense(5)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
model.fit(feed.to_keras(), epochs=4, callbacks=[ff.Watch(feed)])
"""


def progress_bar() -> str:
    """What Keras prints: of each line its last state."""
    with tempfile.TemporaryDirectory() as folder:
        photos = make_photos(Path(folder, "photos")).root / "train"
        environ = os.environ | {
            "KERAS_BACKEND": "tensorflow",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "COLUMNS": "120",
        }
        command = [sys.executable, "-c", TRAINER, str(photos)]
        printed = subprocess.run(
            command, env=environ, stdout=subprocess.PIPE, text=True, check=True
        ).stdout
    lines = [re.split(r"[\r\b]+", line)[-1] for line in printed.strip().split("\n")]
    console = Console(file=io.StringIO(), width=120, record=True, force_terminal=True)
    console.print(Text.from_ansi("\n".join(line for line in lines if line)))
    return console.export_svg(title="python train.py", theme=THEME, unique_id="bar")


def main() -> None:
    """All pictures."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    shown = view()
    for width in (80, 160):
        (folder / f"terminal{width}.svg").write_text(terminal(shown, width))
    (folder / "progress_bar.svg").write_text(progress_bar())
    if found() is None:
        print("no Chromium: the web page is not drawn", file=sys.stderr)
        return
    server = Server("127.0.0.1", 0, "--web")
    server.view = shown
    try:
        with browser() as chrome:
            for name, width, dark in (
                ("desk", 1000, False),
                ("desk_dark", 1000, True),
                ("phone_dark", 390, True),
            ):
                with chrome.tab(server.url + "/", width, dark=dark, touch=width < 600) as tab:
                    tab.wait("document.querySelector('article') !== null")
                    (folder / f"web_{name}.png").write_bytes(tab.picture())
    finally:
        server.close()


if __name__ == "__main__":
    os.environ.setdefault("FASTFEED_LIVE", tempfile.gettempdir())
    main()
