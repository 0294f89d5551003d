"""`make gpu-kit ARGS="--gpu 9.0"`: wheels with device code for one generation of GPUs.

Nothing in a library moves.
"""

# ruff: noqa: F811  fixtures
import importlib.util
import struct
import zipfile
from pathlib import Path

import pytest
from helpers.gpu_kits import kit  # noqa: F401  fixture

PTX, CUBIN = 1, 2


def entry(kind: int, generation: int, code: bytes) -> bytes:
    """Of a fat binary: 64 bytes, the capability at 28, then the code."""
    return (
        struct.pack("<HHIQ", kind, 0x101, 64, len(code)).ljust(28, b"\1")
        + struct.pack("<I", generation).ljust(36, b"\1")
        + code
    )


def fat(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def library(sections: dict[str, bytes]) -> bytes:
    """A 64-bit ELF file of these sections, large enough not to be left as it is."""
    sections = {"": b"", **sections, ".padding": b"\3" * (1 << 20)}
    names = b"".join(name.encode() + b"\0" for name in [*sections, ".shstrtab"])
    sections[".shstrtab"] = names
    content, headers = b"", b""
    for name, body in sections.items():
        start = names.index(b"\0" + name.encode() + b"\0") + 1 if name else 0
        headers += struct.pack("<IIQQQQ", start, 1, 0, 0, 64 + len(content), len(body)).ljust(
            64, b"\0"
        )
        content += body + b"\0" * (-len(body) % 8)
    head = b"\x7fELF\2\1\1".ljust(0x28, b"\0") + struct.pack("<Q", 64 + len(content))
    head += struct.pack("<IHHHHHH", 0, 64, 0, 0, 64, len(sections), len(sections) - 1)
    return head + content + headers


@pytest.fixture
def slimmed(kit, tmp_path):
    def make(files: dict[str, bytes]) -> dict[str, bytes]:
        given = tmp_path / "given.whl"
        with zipfile.ZipFile(given, "w") as archive:
            for name, body in files.items():
                archive.writestr(name, body)
        with zipfile.ZipFile(
            kit("kit.slim").slim(given, tmp_path / "made.whl", 90, "3.12")
        ) as archive:
            return {name: archive.read(name) for name in archive.namelist()}

    return make


def test_code_of_other_gpus_and_names_for_debuggers_become_zeros(slimmed):
    some, others = b"\x11" * 72, b"\x22" * 200
    both = fat(
        entry(CUBIN, 80, others),
        entry(CUBIN, 90, some),
        entry(PTX, 90, others),
        entry(CUBIN, 120, others),
    )
    only_old = fat(entry(CUBIN, 80, others))  # left alone: the driver would find nothing
    sections = {
        ".nv_fatbin": both + b"\0" * 24 + only_old,
        ".symtab": b"\x33" * 48,
        ".text": others,
    }
    (got,) = slimmed({"a/lib.so": library(sections)}).values()
    want = fat(
        entry(CUBIN, 80, bytes(200)),
        entry(CUBIN, 90, some),
        entry(PTX, 90, bytes(200)),
        entry(CUBIN, 120, bytes(200)),
    )
    assert got == library(
        sections | {".nv_fatbin": want + b"\0" * 24 + only_old, ".symtab": bytes(48)}
    )


def test_modules_for_other_pythons_stay_behind_and_all_else_travels(slimmed):
    files = {
        "nvidia/x.cpython-312-x86_64-linux-gnu.so": b"own",
        "nvidia/x.cpython-311-x86_64-linux-gnu.so": b"other",
        "nvidia/x.cpython-312t-x86_64-linux-gnu.so": b"free-threaded",
        "nvidia/plain.so": b"\x7fELF, but small",
        "nvidia/a.py": b"code",
        "x-1.dist-info/METADATA": b"Name: x\n",
    }
    assert slimmed(files) == {
        name: body for name, body in files.items() if body not in (b"other", b"free-threaded")
    }


@pytest.mark.skipif(
    not importlib.util.find_spec("nvidia.dali"), reason="needs NVIDIA DALI: its libraries are read"
)
def test_libraries_of_dali_are_read_whole(kit):
    spec = importlib.util.find_spec("nvidia.dali")
    library = bytearray((Path(spec.origin).parent / "libdali.so").read_bytes())
    start, size = next(
        (start, size)
        for name, start, size in kit("kit.slim")._sections(library)
        if name == ".nv_fatbin"
    )
    found = [
        entry for entries in kit("kit.slim")._fat(library, start, start + size) for entry in entries
    ]
    assert {built_for for _, built_for, _, _ in found} >= {75, 80, 90, 100}
    assert sum(last - first for _, _, first, last in found) > 0.95 * size
    assert all(library[first : first + 4] != b"\0\0\0\0" for _, _, first, _ in found)
