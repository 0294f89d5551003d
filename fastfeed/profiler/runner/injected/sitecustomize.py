"""Start the recorder in a profiled Python, then import its own `sitecustomize`."""

import os
import sys
from importlib.machinery import FileFinder, SourceFileLoader
from types import CodeType

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_LABEL = "<frozen-fastfeed>"  # in recordings: not a function of the program's


class _LabelingLoader(SourceFileLoader):
    """Modules whose functions have the label in place of a file."""

    def get_code(self, fullname):
        return _labeled(super().get_code(fullname))


def _labeled(code):
    constants = [
        _labeled(value) if isinstance(value, CodeType) else value for value in code.co_consts
    ]
    return code.replace(co_filename=_LABEL, co_consts=tuple(constants))


def _start_recorder() -> None:
    try:
        if sys.version_info < (3, 9):  # noqa: UP036  # the program's Python, not fastfeed's
            raise RuntimeError(f"Python 3.9 or later is needed, got {sys.version.split()[0]}")
        for folder in (_FOLDER, os.path.join(_FOLDER, "fastfeed_recorder")):
            sys.path_importer_cache[folder] = FileFinder(folder, (_LabelingLoader, [".py"]))
        import fastfeed_recorder

        fastfeed_recorder.begin()
    except Exception as error:  # the program runs on without a recording
        sys.stderr.write(f"fastfeed: nothing is recorded in process {os.getpid()}: {error}\n")


def _import_own() -> None:
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _FOLDER]
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
