"""Files are recoded without the native extension, with one warning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.photos import folder

CODE = """
import importlib.util, logging, sys
logging.basicConfig(format="%(name)s: %(message)s")
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "fastfeed._native" else find(name, *rest)
import fastfeed as ff
from fastfeed.decode import Recoder
from pathlib import Path
files = [path.read_bytes() for path in sorted(Path(sys.argv[1]).rglob("*.jpg"))]
for _ in range(2):
    assert all(isinstance(file, bytes) for file in Recoder([ff.Resize(16)]{decode})(files))
"""


@pytest.mark.parametrize(("decode", "times"), [("", 1), (', decode="pillow"', 0)])
def test_a_missing_kernel_is_told_of_once(
    decode: str, times: int, tmp_path: Path, python: Callable[..., Any]
) -> None:
    folder(tmp_path, {"a": 4, "b": 4}, (24, 24))
    done = python(CODE.format(decode=decode), tmp_path)
    assert done.returncode == 0, done.stderr
    said = "fastfeed: The native extension is not part of this installation: JPEGs are decoded by"
    assert done.stderr.count(said) == times, done.stderr
