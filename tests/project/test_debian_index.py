"""The index of Debian's packages, which wheels for other machines are tested with, counts if Debian
signed it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import lzma
import shutil
from pathlib import Path
from types import ModuleType

import pytest

PACKAGES = lzma.compress(b"Package: libc6\nFilename: pool/x.deb\nSHA256: 00\n")
NAME = "main/binary-arm64/Packages.xz"
RELEASE = (
    f"Suite: stable\nCodename: bookworm\nSHA256:\n {hashlib.sha256(PACKAGES).hexdigest()}"
    f" {len(PACKAGES)} {NAME}\n"
)


@pytest.fixture
def debian(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    path = Path(__file__).parents[2] / "packaging" / "debian.py"
    spec = importlib.util.spec_from_file_location("debian_packages", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(
        module, "_get", lambda url: PACKAGES if url.endswith(".xz") else RELEASE.encode()
    )
    return module


def test_a_signed_index(debian: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "_signed", bytes.decode)
    assert debian._index("bookworm", "arm64")["libc6"]["SHA256"] == "00"
    with pytest.raises(SystemExit, match="another suite than trixie"):
        debian._index("trixie", "arm64")
    monkeypatch.setattr(
        debian, "_get", lambda url: PACKAGES + b"x" if url.endswith(".xz") else RELEASE.encode()
    )
    with pytest.raises(SystemExit, match="is not what Debian signed"):
        debian._index("bookworm", "arm64")


@pytest.mark.skipif(shutil.which("gpgv") is None, reason="needs gpgv")
def test_an_index_that_is_not_signed(debian: ModuleType) -> None:
    with pytest.raises(SystemExit, match=r"is not signed by Debian|No keys of Debian"):
        debian._index("bookworm", "arm64")
