"""Bends trace files at random, reads and analyzes them: run.sh readers [SECONDS] [SEED] [--reader
NAME].

Files of every dialect, or of one: NAME is a key of `fastfeed.profiler.readers.READERS`. Seconds are
processor time.

What is read has to be sound, or refused in one sentence; what is sound is analyzed and written as
JSON and as a page, and the causes of each device have to sum to its idle time. Whatever else
happens is a finding, and so is a file that takes more than 20 s of processor time: it is kept in
build/fuzz/readers, and the summary says where each came from.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import io
import json
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

from helpers.profiler.kineto_files import training, write
from helpers.profiler.mutations import mutate
from helpers.profiler.nvprofs import training as nvprof_training
from helpers.profiler.simulator.cases import ALL
from helpers.profiler.simulator.write import WRITERS
from helpers.profiler.simulator.write import write as write_run
from helpers.profiler.soundness import assert_sound
from helpers.real_data import real_data
from helpers.records import example
from helpers.traces import DIALECTS, steady
from rich.console import Console

from fastfeed.errors import FastfeedError, TraceError
from fastfeed.profiler import analysis, readers
from fastfeed.profiler.merge import merge
from fastfeed.profiler.reports import document, page, text
from fastfeed.profiler.runner import nsight

ROOT = Path(__file__).resolve().parents[2]
KINDS = {  # dialect, or ending of a file -> format
    "nsys": "sqlite",
    "nsys_graph": "sqlite",
    "nvprof": "sqlite",
    "nvprof_text": "text",
    "nvprof_csv": "text",
    "chrome": "json",
    "xplane": "protobuf",
    "timeline": "json",
    "nsys_report": "text",
    ".sqlite": "sqlite",
    ".json": "json",
    ".pb": "protobuf",
    ".txt": "text",
    ".csv": "text",
}
SCENARIOS = ("pageable_copy", "across_streams", "graphs", "no_core", "late_peer", "two_processes")
MAX_SEED = 3_000_000  # bytes; larger files take too long each
LIMIT = 20  # seconds of processor time for one file


class Slow(Exception):
    """A file that takes longer than LIMIT."""


def seeds(folder: Path, data: Path) -> list[tuple[str, str, bytes]]:
    """(name, format, content) of sound files: small ones, simulated runs, and real traces where
    they are.
    """
    found = []
    for dialect, writer in DIALECTS.items():
        writer(folder / "small", steady())
        found.append((f"small {dialect}", KINDS[dialect], (folder / "small").read_bytes()))
        (folder / "small").unlink()
    write(folder / "training.json", training())
    found.append(("training chrome", "json", (folder / "training.json").read_bytes()))
    nvprof_training().write(folder / "training.nvprof")
    found.append(("training nvprof", "sqlite", (folder / "training.nvprof").read_bytes()))
    for scenario in SCENARIOS:
        run = ALL[scenario].make(0)
        for dialect in WRITERS:
            if scenario == "two_processes" and not dialect.startswith("nsys"):
                continue
            own = folder / scenario / dialect
            own.mkdir(parents=True)
            path = write_run(run, dialect, own, together=scenario == "two_processes")[0]
            found.append((f"{scenario} {dialect}", KINDS[dialect], _unpacked(path)))
    for path in sorted((data / "traces").rglob("*")) if data.is_dir() else ():
        ending = Path(path.name.removesuffix(".gz")).suffix
        if path.is_file() and ending in KINDS and path.suffix != ".xz":
            found.append((path.name, KINDS[ending], _unpacked(path)))
    return [seed for seed in found if 0 < len(seed[2]) <= MAX_SEED]


def of_reader(
    reader: str, folder: Path, corpus: list[tuple[str, str, bytes]]
) -> list[tuple[str, str, bytes]]:
    """Those that this reader reads."""
    found = []
    for seed in corpus:
        (folder / "run.trace").write_bytes(seed[2])
        with contextlib.suppress(TraceError):  # not a trace
            if readers.detect(folder / "run.trace") == reader:
                found.append(seed)
    return found


def write_seeds(folder: Path) -> int:
    """Pieces of Chrome traces, databases, and TFRecords' Examples, each behind the byte that says
    which it is.
    """
    with tempfile.TemporaryDirectory() as made:
        for at, (_, kind, content) in enumerate(seeds(Path(made), Path("/nowhere"))):
            if kind == "sqlite":
                (folder / f"{at}").write_bytes(b"\1" + content[:60_000])
            elif kind == "json" and b"traceEvents" in content:
                events = content[content.index(b"{", content.index(b"traceEvents")) + 1 :]
                (folder / f"{at}").write_bytes(b"\0" + events[:20_000])
    for at in range(4):
        (folder / f"record{at}").write_bytes(
            b"\2" + example({"image/encoded": bytes(range(at * 40)), "i": [at]})
        )
    return 0


def _unpacked(path: Path) -> bytes:
    content = path.read_bytes()
    return gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content


def check(path: Path, dice: random.Random) -> str:
    """Read, analyze and report one file. Returns what became of it; any exception is a finding."""
    try:
        trace = readers.read(path)
    except TraceError as error:
        sentence = str(error)
        assert path.name in sentence and "\n" not in sentence and 20 < len(sentence) < 800, sentence
        return "refused"
    assert_sound(trace)
    try:
        result = analysis.analyze(merge.combine([trace]))
    except FastfeedError as error:
        assert "\n" not in str(error), error
        return "not analyzed"
    for device in result.devices:
        budget = device.whole.budget
        assert sum(device.whole.causes.values()) == budget.idle, (dict(device.whole.causes), budget)
    json.dumps(document.as_dict(result), allow_nan=False)
    if dice.random() < 0.1:
        page.page(result).encode()
        text.render(result, Console(file=io.StringIO()))
    return "analyzed"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("seconds", type=float, nargs="?", default=1200)
    parser.add_argument("seed", type=int, nargs="?", default=int(time.time()))
    parser.add_argument("--data", type=Path, default=real_data())
    parser.add_argument(
        "--reader", choices=list(readers.READERS), help="bend files of this dialect alone"
    )
    parser.add_argument(
        "--seeds", type=Path, help="only write the small files here, for fuzz_traces.cpp"
    )
    options = parser.parse_args()
    if options.seeds:
        return write_seeds(options.seeds)
    kept = ROOT / "build" / "fuzz" / "readers" / (options.reader or "all")
    kept.mkdir(parents=True, exist_ok=True)
    dice, outcomes, findings = random.Random(options.seed), Counter[str](), dict[str, str]()
    warnings.simplefilter("error", RuntimeWarning)  # of NumPy: a figure that is not one
    signal.signal(signal.SIGVTALRM, _too_long)
    nsight.find = lambda: None  # Nsight Systems is not ours to bend
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        corpus = seeds(folder, options.data)
        if options.reader:
            corpus = of_reader(options.reader, folder, corpus)
        until = time.process_time() + options.seconds
        while time.process_time() < until:
            name, kind, content = dice.choice(corpus)
            bent = mutate(content, kind, dice, folder)
            path = folder / "run.trace"
            path.write_bytes(bent)
            (kept / "current").write_bytes(bent)  # what ended the process, if one does
            outcomes[_outcome(path, name, bent, kept, findings, dice)] += 1
    (kept / "current").unlink()
    print(
        f"{options.reader or 'all readers'}, seed {options.seed}, {len(corpus)} files bent:",
        dict(outcomes),
    )
    for place, finding in findings.items():
        print(f"{place}\n    {finding}")
    return 1 if findings else 0


def _outcome(
    path: Path, name: str, bent: bytes, kept: Path, findings: dict[str, str], dice: random.Random
) -> str:
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT)
    try:
        return check(path, dice)
    except Exception as error:
        frames = [
            one for one in traceback.extract_tb(error.__traceback__) if "/fastfeed/" in one.filename
        ]
        frames = frames or traceback.extract_tb(error.__traceback__)
        place = f"{type(error).__name__} at {Path(frames[-1].filename).name}:{frames[-1].lineno}"
        if place not in findings:
            file = kept / hashlib.sha1(bent).hexdigest()[:10]
            file.write_bytes(bent)
            findings[place] = f"{file} from {name}: {str(error)[:200]!r}"
            print(f"{place}\n    {findings[place]}", flush=True)
        return "FOUND"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _too_long(*_: object) -> None:
    raise Slow(f"longer than {LIMIT} s")


if __name__ == "__main__":
    sys.exit(main())
