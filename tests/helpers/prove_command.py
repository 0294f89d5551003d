"""`fastfeed prove` as a command, and the beginning of a trainer for it."""

import os
import subprocess
import sys
import textwrap

from helpers.commands import fastfeed

FASTFEED = [
    sys.executable,
    "-c",
    "import sys; sys.argv[0] = 'fastfeed'; from fastfeed.cli import main; main()",
    "prove",
]
TRAINER = """
    import sys, time
    import numpy as np
    import fastfeed as ff

    def feed(name="", **more):
        source = ff.Arrays(np.zeros((64, 4, 4, 3), np.uint8), np.zeros(64, np.int64))
        return ff.Feed(source, [ff.ToFloat()], batch=4, threads=1, name=name, **more)
"""
LONG = """
    train = feed()
    for epoch in range(1000):
        for batch in train:
            time.sleep(0.001)
    print('ended by itself')
"""


def trainer(folder, body):
    """A file with this trainer."""
    path = folder / "train.py"
    path.write_text(textwrap.dedent(TRAINER) + textwrap.dedent(body))
    return path


def clean(**more):
    """The environment without what fastfeed reads, but for `more`."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith("FASTFEED")
    } | more


def run(folder, command, *options, code=0, **more):
    """Prove a command for a second; its exit code is checked."""
    done = subprocess.run(
        [*FASTFEED, "--seconds", "1", *options, "--", *command],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
        check=False,
        cwd=folder,
        env=clean(**more),
    )
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done


def refused(*options):
    """The reason for which `fastfeed prove` does not even start a command, in this process and
    folder.
    """
    code, text = fastfeed(
        "prove", "--seconds", "1", *options, "--", sys.executable, "-c", "open('ran', 'w')"
    )
    assert code == 2 and not os.path.exists("ran")
    return text
