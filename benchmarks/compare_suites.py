"""Are the native extension's pixels Pillow's?

`python compare_suites.py FOLDER...`: every PNG, TIFF and WebP below, at full size.

For the test suites of other projects, such as PngSuite. Counts files by what became of them, names
those that differ, and ends with 1 if there are any.
"""

from __future__ import annotations

import argparse
import sys
import threading
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from helpers.engines import Routed

from fastfeed.decode import (
    DecodeEngine,
    DecodeFailure,
    NativeEngine,
    PillowEngine,
    Request,
)
from fastfeed.ops import Decode
from fastfeed.ops.program.compile import Windows

EXTENSIONS = {".png": "PNG", ".tif": "TIFF", ".tiff": "TIFF", ".webp": "WebP"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    files = sorted(
        path
        for folder in parser.parse_args().folders
        for path in folder.rglob("*")
        if path.is_file()
    )
    warnings.simplefilter("ignore")  # of Pillow, about damaged files
    native, pillow = NativeEngine(Decode()), PillowEngine(Decode())
    found: Counter[tuple[str, str]] = Counter()
    for path in files:
        if path.suffix.lower() not in EXTENSIONS:
            continue
        blob = path.read_bytes()
        if isinstance(decoded(native, blob), DecodeFailure):
            what = "left to Pillow, or bad"
        else:
            ours, theirs = decoded(Routed(Decode()), blob), decoded(pillow, blob)
            what = "the same" if np.array_equal(ours, theirs) else "different"
        if what == "different":
            print(path)
        found[EXTENSIONS[path.suffix.lower()], what] += 1
    for (kind, what), count in sorted(found.items()):
        print(f"{kind:5}{what:24}{count:6}")
    sys.exit(any(what == "different" for _, what in found))


def decoded(engine: DecodeEngine, blob: bytes) -> np.ndarray | DecodeFailure:
    """uint8 (height, width, 3)."""
    (header,) = engine.probe([blob])
    if isinstance(header, DecodeFailure):
        return header
    size = header.height, header.width
    windows = Windows(
        np.array([[0.0, 0.0, *size]]), np.zeros((1, 2), bool), np.array([size], np.int64)
    )
    out = np.empty((1, *size, 3), np.uint8)
    (bad,) = engine.decode(Request([blob], [header], windows, "bilinear"), out, threading.Event())
    return out[0] if bad is None else bad


if __name__ == "__main__":
    main()
