"""How fast is a feed over files of several formats, next to tf.data and DALI?

200 files, 90 % JPEG, 6 % PNG and 4 % WebP: the photographs of `photos-large`, at most 1,600 pixels
a side, read from a folder; random crops to 224 x 224 and flips, batches of 50. Each library runs in
a process of its own (rival_feeds); a round is eight epochs of each in turn. `--before PYTHON`:
another installation of fastfeed to measure, too.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench_formats import FORMATS, photographs, saved
from rival_feeds import LIBRARIES
from rounds import finish, parser

MIX = [*["JPEG"] * 45, *["PNG"] * 3, *["WEBP"] * 2]
REPEAT, EPOCHS = 4, 8
SETTLE_S = 2.0  # each fills its queue again before the next one's turn


def main() -> None:
    made = parser(__doc__, rounds=7)
    made.add_argument(
        "--before", type=Path, metavar="PYTHON", help="of another installation of fastfeed"
    )
    options = made.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        processes = {
            name: Library(sys.executable, name, folder, options.threads) for name in LIBRARIES
        }
        if options.before:
            processes["fastfeed before"] = Library(
                str(options.before), "fastfeed", folder, options.threads
            )
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in processes}
        for i in range(options.rounds):
            for name in list(processes)[:: 1 if i % 2 else -1]:
                found[name].append(processes[name].run())
        for process in processes.values():
            process.end()
    result = {name: summary(rounds, found["fastfeed"]) for name, rounds in found.items()}
    finish("How fast is a feed over files of several formats?", {"result": result}, options.out)


def write_files(folder: Path) -> None:
    photos = photographs()
    for i, kind in enumerate(MIX * REPEAT):
        (folder / f"{i}.{kind.lower()}").write_bytes(
            saved(photos[i % len(photos)], kind, **FORMATS[kind])
        )


def summary(rounds: list[tuple[float, float]], own: list[tuple[float, float]]) -> dict[str, Any]:
    rates = [rate for rate, _ in rounds]
    return {
        "images_per_second": round(statistics.median(rates), 1),
        "cpu_ms_per_image": round(statistics.median(cpu for _, cpu in rounds), 3),
        "fastfeed / it": round(
            statistics.median(a / b for (a, _), b in zip(own, rates, strict=True)), 3
        ),
        "rounds": [round(rate, 1) for rate in rates],
    }


class Library:
    """A process of rival_feeds."""

    def __init__(self, python: str, name: str, folder: str, threads: int) -> None:
        script = Path(__file__).with_name("rival_feeds.py")
        self._process = subprocess.Popen(
            [python, script, name, folder, str(threads), str(EPOCHS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
        )
        assert self._process.stdin and self._process.stdout
        self._in, self._out = self._process.stdin, self._process.stdout
        while (line := self._out.readline()) != "ready\n":
            if not line:
                raise SystemExit(f"{name} did not start")

    def run(self) -> tuple[float, float]:
        """Images per second, and milliseconds of processor time per image."""
        self._in.write("go\n")
        self._in.flush()
        images, seconds, busy = map(float, self._out.readline().split())
        time.sleep(SETTLE_S)
        return images / seconds, 1e3 * busy / images

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


if __name__ == "__main__":
    main()
