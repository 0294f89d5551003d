"""The site of `make docs`, built for a test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from helpers.needs import missing

LIMIT_S = 600  # ends a hang
OWN = ROOT / "build" / "docs-env" / "bin" / "python"  # made by `make docs` and `make test-ci`


def build(folder: Path) -> Path:
    """Build the site into a folder, or return the one that FASTFEED_TEST_SITE names, as CI does.

    Without MkDocs, in this environment or that of `make docs`, skip.
    """
    if built := os.environ.get("FASTFEED_TEST_SITE"):
        return Path(built)
    python = sys.executable if not missing("mkdocs", "material", "mkdocstrings") else str(OWN)
    if not Path(python).exists():
        pytest.skip("mkdocs missing: make docs brings it")
    done = subprocess.run(
        [python, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder
