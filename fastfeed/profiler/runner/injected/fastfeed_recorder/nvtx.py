"""NVTX ranges through the library named in the environment, without any package.

The protocol is that of nvtx3/nvtxDetail/nvtxInit.h: the library asks for a table of functions and
fills it in.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Iterator
from typing import Any

_CALLBACKS = 1  # NVTX_ETID_CALLBACKS
_VERSION_INFO = 3  # NVTX_ETID_VERSIONINFO
_CORE = 1  # NVTX_CB_MODULE_CORE
# of NVTX's modules: entries in the table of each, the first unused
_SIZES = {1: 16, 2: 9, 3: 15, 4: 7, 5: 16, 6: 7}
_RANGE_START = 5  # NVTX_CBID_CORE_RangeStartA
_RANGE_END = 7
_RANGE_PUSH = 9
_RANGE_POP = 11
_VERSION = 3

_GetTable = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_uint)
)
_SetVersion = ctypes.CFUNCTYPE(None, ctypes.c_uint32)


class _Callbacks(ctypes.Structure):
    _fields_ = (("size", ctypes.c_size_t), ("get_table", _GetTable))


class _VersionInfo(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("version", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("set_version", _SetVersion),
    )


class _Library:
    """The functions of the library; None for those that it lacks."""

    def __init__(self, path: str) -> None:
        self._slots = {module: (ctypes.c_void_p * size)() for module, size in _SIZES.items()}
        self._tables = {module: _addresses(slots) for module, slots in self._slots.items()}
        self._get_table = _GetTable(self._give_table)
        self._callbacks = _Callbacks(ctypes.sizeof(_Callbacks), self._get_table)
        self._set_version = _SetVersion(lambda version: None)
        self._version = _VersionInfo(ctypes.sizeof(_VersionInfo), _VERSION, 0, self._set_version)
        self._export = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(self._exported)
        initialize = ctypes.CDLL(path).InitializeInjectionNvtx2
        initialize.argtypes = (ctypes.c_void_p,)
        if not initialize(ctypes.cast(self._export, ctypes.c_void_p)):
            raise RuntimeError(f"{path} does not take NVTX ranges")
        self.push = self._function(_RANGE_PUSH, ctypes.c_int, ctypes.c_char_p)
        self.pop = self._function(_RANGE_POP, ctypes.c_int)
        self.start = self._function(_RANGE_START, ctypes.c_uint64, ctypes.c_char_p)
        self.end = self._function(_RANGE_END, None, ctypes.c_uint64)

    def _exported(self, number: int) -> int | None:
        exported = {_CALLBACKS: self._callbacks, _VERSION_INFO: self._version}.get(number)
        return None if exported is None else ctypes.addressof(exported)

    def _give_table(self, module: int, table: Any, size: Any) -> int:
        if module not in self._tables:
            return 0
        table[0] = ctypes.addressof(self._tables[module])
        if size:
            size[0] = _SIZES[module]
        return 1

    def _function(self, at: int, result: Any, *arguments: Any) -> Any:
        address = self._slots[_CORE][at]
        return ctypes.CFUNCTYPE(result, *arguments)(address) if address else None


def _addresses(slots: Any) -> Any:
    """An array of pointers to the slots, and a null pointer after the last."""
    size = ctypes.sizeof(ctypes.c_void_p)
    addresses = [ctypes.addressof(slots) + at * size for at in range(len(slots))]
    return (ctypes.c_void_p * (len(slots) + 1))(*addresses, None)


@functools.lru_cache(1)
def load() -> _Library:
    """Load the library; RuntimeError if none is named or it refuses."""
    path = os.environ.get("NVTX_INJECTION64_PATH")
    if not path:
        raise RuntimeError("NVTX_INJECTION64_PATH, which names the library of nsys, is not set")
    return _Library(path)


@contextlib.contextmanager
def pushed(name: str) -> Iterator[None]:
    """A range of this thread."""
    library = load()
    if library.push is None or library.pop is None:
        yield
        return
    library.push(name.encode())
    try:
        yield
    finally:
        library.pop()


class NvtxRecorder:
    """Marks steps; Nsight Systems records."""

    suffix = ""

    def __init__(self) -> None:
        self._range = 0

    def start(self, has_functions: bool) -> None:
        """Load the NVTX library; RuntimeError if it is missing."""
        load()

    def mark(self, step: int) -> None:
        """End the range of a step and begin the next."""
        library = load()
        if library.start is None or library.end is None:
            return
        if self._range:
            library.end(self._range)
        self._range = library.start(f"ProfilerStep#{step}".encode())

    def stop(self, path: str) -> bool:
        """End the last range; there is no file."""
        library = load()
        if self._range and library.end is not None:
            library.end(self._range)
        return False

    def forked(self) -> None:
        """Record nothing in a child process."""
