"""Start the recorder in a Python that `fastfeed profile` runs, then import the environment's own `sitecustomize`."""

import os
import sys


def _start_recorder() -> None:
    try:
        import fastfeed_recorder

        fastfeed_recorder.begin()
    except Exception as error:  # the program runs on without a recording
        sys.stderr.write(f"fastfeed: nothing is recorded in process {os.getpid()}: {error}\n")


def _import_own() -> None:
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != folder]
    injected = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # noqa: F401  # the next one on the path
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", injected)


_start_recorder()
_import_own()
