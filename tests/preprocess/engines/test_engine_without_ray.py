"""Where Ray is not installed, asking for it says how to get it, and nothing else asks for it."""

from __future__ import annotations

from collections.abc import Callable
from subprocess import CompletedProcess

Python = Callable[[str], "CompletedProcess[str]"]


def test_the_command_is_said(python: Python) -> None:
    done = python(
        "import sys; sys.modules['ray'] = None\n"
        "import fastfeed.preprocess.job.job\n"
        "from fastfeed.errors import MissingExtra\n"
        "from fastfeed.preprocess.engines.named import engine_for\n"
        "try: engine_for('ray:auto', None, None, 1.0)\n"
        "except MissingExtra as error: print(error)\n"
    )
    assert done.stdout == "engine \"ray\" needs Ray: pip install 'fastfeed[ray]'\n", done.stderr


def test_no_other_engine_imports_ray(python: Python) -> None:
    done = python(
        "import sys; import fastfeed.preprocess.job.job\n"
        "import fastfeed.preprocess.engines.executor, fastfeed.preprocess.engines.local\n"
        "print('ray' in sys.modules)\n"
    )
    assert done.stdout == "False\n", done.stderr
